"""A suite on disk: written as it goes, gone on with, bound to its starts."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from djepa.align import suite as module
from djepa.align.fit import AlignConfig
from djepa.align.methods import (
    PLASTIC,
    TUNED,
    Mixture,
    Population,
    composed,
    fit_aligned,
    fit_composed,
)
from djepa.align.operator import OperatorConfig
from djepa.align.outcomes import Outcomes
from djepa.align.presets import FOUR, PAIR
from djepa.align.registry import slug
from djepa.align.store import alignment_hash
from djepa.align.suite import (
    MIXED,
    MIXTURES,
    SUITE_KIND,
    Recipe,
    Suite,
    fit_suite,
    load_suite,
    unseen,
)
from djepa.artefacts.records import sha256
from djepa.artefacts.write import Writer
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence

SMALL = OperatorConfig(inputs=1, width=8, layers=1, heads=2, hidden=8)
QUICK = AlignConfig(updates=3, every=1, batch=4, rate=1e-2, operator=SMALL)
TINY = {
    "pointwise": replace(QUICK, operator=replace(SMALL, relations=False)),
    "relational": QUICK,
    "log mixture": replace(
        QUICK, dense=(), ranked=FOUR, base=FOUR, mixture="log", density=PAIR, updates=0
    ),
}
ADAPTED = (*FOUR, PLASTIC, TUNED)
CARD = {"bank": "abc"}


@pytest.fixture(autouse=True, scope="module")
def few_methods() -> Iterator[None]:
    """Three alignments of few updates, and the fusions whose grids are small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SUITE", TINY)
        some = {name: MIXTURES[name] for name in ("fusion, two", "consensus + fusion, two")}
        some["both"] = (PAIR, PAIR)
        patch.setattr(module, "MIXTURES", some)
        yield


def population(split: str, names: tuple[str, ...] = ADAPTED, N: int = 12) -> Population:
    rng = np.random.default_rng([ord(c) for c in split])
    K = 8
    success = rng.random((N, K)) < 0.4
    success[:, :2] = True, False
    costs = {name: rng.random((N, K)) + 0.5 * ~success for name in ADAPTED}
    ends = {name: rng.normal(size=(N, K, 4)).astype(np.float32) for name in (*PAIR, PLASTIC)}
    goals = {name: rng.normal(size=(N, 4)).astype(np.float32) for name in (*PAIR, PLASTIC)}
    ids = rng.random((N, K)).argsort(1)
    evidence = Evidence.from_arrays(
        start_ids=[sha256(f"{split}-{n}".encode()) for n in range(N)],
        candidate_ids=ids,
        costs={name: costs[name] for name in names},
        latents={name: end for name, end in ends.items() if name in names},
        goals=goals,
    )
    y = torch.from_numpy(success)
    return Population(evidence, Outcomes(evidence.identities, y, torch.ones_like(y)))


Parts = tuple[Population, Population]


@pytest.fixture(scope="module")
def parts() -> Parts:
    return population("fit"), population("cal")


@pytest.fixture(scope="module")
def whole(parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished suite. Not to be written to."""
    folder = tmp_path_factory.mktemp("suites") / "whole"
    fit_suite(folder, *parts, CARD)
    return folder


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def files(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def same_choices(one: Suite, other: Suite, evidence: Evidence) -> bool:
    first, second = one.choosers(evidence.names), other.choosers(evidence.names)
    assert list(first) == list(second)
    return all(
        torch.equal(choose(evidence).score, second[name](evidence).score)
        for name, choose in first.items()
    )


# --------------------------------------------------------------------------- as it goes


def test_what_is_finished_is_on_disk_before_the_next_begins(parts: Parts, tmp_path: Path) -> None:
    parts_of = [f"{slug(name)}/manifest.json" for name in TINY]
    marks = ["mixtures.json", *parts_of, "composition.json"]
    begun: list[str] = []

    def say(line: str) -> None:
        there = [mark for mark in marks if (tmp_path / mark).exists()]
        assert there == marks[: len(begun)]
        assert (tmp_path / "suite.json").exists()
        begun.append(line)

    fit_suite(tmp_path, *parts, CARD, say)
    assert begun == ["fusions", *TINY, "composition"]
    assert all((tmp_path / mark).exists() for mark in marks)


@pytest.mark.parametrize("stop", ["fusions", "relational", "composition"])
def test_a_stopped_suite_goes_on_where_it_was(
    stop: str, parts: Parts, whole: Path, tmp_path: Path
) -> None:
    def stops(line: str) -> None:
        if line == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_suite(tmp_path, *parts, CARD, stops)
    begun: list[str] = []
    fit_suite(tmp_path, *parts, CARD, begun.append)
    every = ["fusions", *TINY, "composition"]
    assert begun == every[every.index(stop) :]
    assert files(tmp_path) == files(whole)


@pytest.mark.parametrize("lost", [*TINY])
def test_only_what_is_missing_is_fitted(lost: str, parts: Parts, whole: Path, copy: Path) -> None:
    (copy / "manifest.json").unlink()  # as if it had been stopped: a journal of all but one
    with Writer(copy, SUITE_KIND, alone=False).opened() as writer:
        for name in ("suite.json", "mixtures.json"):
            writer.enter({name: (copy / name).read_bytes()})
    shutil.rmtree(copy / slug(lost))
    kept = {p: p.stat().st_mtime_ns for p in copy.glob("*/*")} | {
        p: p.stat().st_mtime_ns for p in copy.glob("mixtures.json")
    }
    begun: list[str] = []
    suite = fit_suite(copy, *parts, CARD, begun.append)
    assert begun == [lost, "composition"]
    assert all(path.stat().st_mtime_ns == age for path, age in kept.items())
    assert files(copy) == files(whole)
    assert same_choices(suite, load_suite(whole), population("test").evidence)


@pytest.mark.parametrize("lost", ["mixtures.json", "composition.json", "suite.json", "relational"])
def test_what_was_finished_and_is_lost_is_named(lost: str, parts: Parts, copy: Path) -> None:
    path = copy / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(DjepaError, match=rf"{lost}.* is missing"):
        load_suite(copy)
    with pytest.raises(DjepaError, match=rf"{lost}.* is missing"):
        fit_suite(copy, *parts, CARD)


def test_mixtures_cannot_be_edited(copy: Path) -> None:
    path = copy / "mixtures.json"
    path.write_text(path.read_text().replace("0.", "1.", 1))
    with pytest.raises(DjepaError, match=r"mixtures\.json is damaged"):
        load_suite(copy)


# --------------------------------------------------------------------------- longer recipes

SHORT = Recipe({"fusion, two": (PAIR, None)}, {"pointwise": TINY["pointwise"]})


def half_made(folder: Path, parts: Parts, recipe: Recipe = SHORT) -> None:
    """Stopped after the fusions."""

    def stops(line: str) -> None:
        if line == "pointwise":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_suite(folder, *parts, CARD, stops, recipe)


def test_a_finished_suite_may_have_fewer_methods(parts: Parts, tmp_path: Path) -> None:
    """More alignments are fitted beside; the file of fusions has one hash, and stays."""
    fit_suite(tmp_path, *parts, CARD, recipe=SHORT)
    suite, fusions = load_suite(tmp_path), (tmp_path / MIXED).read_bytes()
    assert [*suite.choosers(FOUR)] == ["fusion, two", "pointwise"]
    begun: list[str] = []
    longer = fit_suite(tmp_path, *parts, CARD, begun.append)
    assert begun == [
        f"all but 'consensus + fusion, two', 'both': {tmp_path} was finished without",
        "relational",
        "log mixture",
        "composition",
    ]
    assert (tmp_path / MIXED).read_bytes() == fusions
    assert (longer.mixtures, {*longer.alignments}) == (suite.mixtures, {*TINY})
    assert {n: longer.hashes[n] for n in suite.hashes} == suite.hashes


@pytest.mark.parametrize("stopped", [False, True])
def test_a_half_made_suite_gets_the_fusions_it_lacks(
    stopped: bool, parts: Parts, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those alone; all of them, if it was stopped before they were written; and goes on."""
    half_made(tmp_path, parts)
    if stopped:
        with Writer(tmp_path, SUITE_KIND, alone=False).opened() as writer:
            writer.withdraw(MIXED)
    begun, fitted, fit = list[str](), list[object](), Mixture.fit

    def counted(names: tuple[str, ...], of: Population, by: Any, graded: bool) -> Mixture:
        fitted.append((names, by))
        return fit(names, of, by, graded)

    monkeypatch.setattr(Mixture, "fit", counted)
    half_made(tmp_path, parts, Recipe(module.MIXTURES, TINY))
    fit_suite(tmp_path, *parts, CARD, begun.append)
    assert begun == [*TINY, "composition"]
    assert fitted == [(PAIR, None)] * stopped + [(PAIR, "tdjepa"), (PAIR, PAIR)]
    assert files(tmp_path) == files(whole)


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("of", [(FOUR, None), (PAIR, "lewm"), None])
def test_other_fusions_are_refused_before_anything_is_fitted(
    of: Any, finished: bool, parts: Parts, tmp_path: Path
) -> None:
    """Of other inputs, or not in the recipe at all."""
    if finished:
        fit_suite(tmp_path, *parts, CARD, recipe=SHORT)
    else:
        half_made(tmp_path, parts)
    before, begun = files(tmp_path), list[str]()
    longer = {**module.MIXTURES, "fusion, two": of}
    recipe = Recipe({name: one for name, one in longer.items() if one}, TINY)
    with pytest.raises(DjepaError, match=rf"{tmp_path / MIXED} has another 'fusion, two'"):
        fit_suite(tmp_path, *parts, CARD, begun.append, recipe)
    assert not begun
    assert files(tmp_path) == before


# ------------------------------------------------------------------------ what it is bound to


def test_other_starts_and_other_banks_are_refused(parts: Parts, copy: Path) -> None:
    fit, calibration = parts
    before, other = files(copy), population("else")
    for given in ((other, calibration, CARD), (fit, other, CARD), (calibration, fit, CARD)):
        with pytest.raises(DjepaError, match=r"copy was fitted on other starts .* another folder"):
            fit_suite(copy, *given)
    fewer = fit.rows(torch.arange(11))
    with pytest.raises(DjepaError, match="other starts"):
        fit_suite(copy, fewer, calibration, CARD)
    with pytest.raises(DjepaError, match="or pools"):  # the same starts may have other pools
        fit_suite(copy, fit, calibration, {"bank": "xyz"})
    assert files(copy) == before


def test_starts_that_were_fitted_or_calibrated_on_do_not_confirm(whole: Path, parts: Parts) -> None:
    new = population("test").evidence
    unseen(whole, new)
    for part in parts:
        known = part.evidence
        joined = replace(new, identities=(*new.identities[:-2], *known.identities[-2:]))
        with pytest.raises(DjepaError, match=f"{known.identities[-2][:16]} and 1 others"):
            unseen(whole, joined)


def test_an_empty_folder_is_no_suite(tmp_path: Path) -> None:
    with pytest.raises(DjepaError, match=r"no finished suite: it has no manifest\.json"):
        load_suite(tmp_path)
    with pytest.raises(DjepaError, match="There is no suite"):
        load_suite(tmp_path / "nowhere")


def test_damage_is_named(copy: Path) -> None:
    path = copy / "relational/calibration.json"
    path.write_text(path.read_text().replace("threshold", "treshhold"))
    with pytest.raises(DjepaError, match=r"relational/calibration\.json is damaged"):
        load_suite(copy)


# --------------------------------------------------------------------------------- contents


def test_the_suite_is_what_its_methods_are(parts: Parts, whole: Path) -> None:
    """Loaded from disk, it decides as methods fitted here do."""
    test, suite = population("test").evidence, load_suite(whole)
    assert set(suite.alignments) == set(TINY)
    assert suite.mixtures["fusion, two"] == Mixture.fit(PAIR, parts[0])
    dense = Mixture.fit(PAIR, parts[0], "tdjepa")
    assert suite.mixtures["consensus + fusion, two"] == dense
    both = suite.mixtures["both"]
    assert both == Mixture.fit(PAIR, parts[0], PAIR)
    assert len(both.weights) == 4  # two costs, two densities
    densities = both.inputs(test)[..., 2:].unbind(-1)
    for name, rank in zip(PAIR, densities, strict=True):
        assert torch.equal(rank, Mixture(PAIR, (), name).inputs(test)[..., -1])
    choosers = suite.choosers(test.names)
    for name, config in TINY.items():
        here, there = fit_aligned(config, *parts).decide(test), choosers[name](test)
        assert torch.equal(here.final, there.score), name
        assert torch.equal(here.position, there.position), name
    relational = fit_aligned(TINY["relational"], *parts)
    assert suite.threshold == fit_composed(relational, parts[1])
    by_hand = composed(relational, suite.threshold)(test)
    assert torch.equal(choosers["composition"](test).score, by_hand.score)


def test_every_method_has_the_hash_of_its_file(whole: Path) -> None:
    hashes = load_suite(whole).hashes
    assert set(hashes) == {*ALWAYS, "composition"}
    assert all(hashes[name] == alignment_hash(whole / slug(name)) for name in TINY)
    assert len({hashes[name] for name in TINY}) == 3
    assert hashes["fusion, two"] == sha256((whole / "mixtures.json").read_bytes())
    assert hashes["composition"] == sha256((whole / "composition.json").read_bytes())
    card = json.loads((whole / "relational/card.json").read_text())
    assert card == {"method": "relational", **CARD}


ALWAYS = {"fusion, two", "consensus + fusion, two", "both", *TINY}


def test_composition_needs_evidence_of_the_adapted_predictor(whole: Path) -> None:
    suite = load_suite(whole)
    assert set(suite.choosers((*FOUR, TUNED))) == ALWAYS
    assert set(suite.choosers((*FOUR, PLASTIC))) == {*ALWAYS, "composition"}
    plain = population("test", FOUR).evidence
    for name, choose in suite.choosers(plain.names).items():
        assert choose(plain).position.shape == (12,), name


def test_without_an_adapted_predictor_nothing_is_composed(tmp_path: Path) -> None:
    begun: list[str] = []
    parts = (population(split, FOUR) for split in ("fit", "cal"))
    suite = fit_suite(tmp_path, *parts, CARD, begun.append)
    assert begun == ["fusions", *TINY]
    assert suite.threshold is None
    assert "composition" not in suite.hashes
    assert set(suite.choosers(FOUR)) == ALWAYS
    # Evidence that has one does not make up a threshold.
    assert "composition" not in suite.choosers(ADAPTED)
