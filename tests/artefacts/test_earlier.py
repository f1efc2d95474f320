"""What earlier versions wrote: a newer field has the value that held before there was one.

Nothing else may be absent, in folders of either version and in planner files.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from artefact import Artefact, rehashed
from edits import content
from every_kind import PAIR, population
from torch import Tensor

from djepa.align.fit import Alignment
from djepa.align.store import load_alignment, save_alignment
from djepa.artefacts.folder import read_shard, seal_shard
from djepa.errors import DjepaError
from djepa.evidence.logs import LogMixture
from djepa.lift.file import write_planner
from djepa.lift.planner import load_planner
from djepa.models.dinowm import DINOWM
from djepa.models.jepawm import JEPAWM
from djepa.models.kinds import Model
from djepa.models.lewm import LeWM
from djepa.models.tdjepa import TDJEPA, PlanningCost
from djepa.models.weights import load_geometry, save_geometry
from tiny import TINY, TINY_PATCHES

SIZES = {LeWM: TINY, TDJEPA: TINY, JEPAWM: TINY_PATCHES, DINOWM: TINY_PATCHES}
CONFIG = "config.json"
Change = Callable[[Any], Any]


def rewrite(folder: Path, version: int, change: Change) -> None:
    """Another configuration, its hash in a manifest of that version; the first has no sizes."""
    file, top = folder / CONFIG, folder / "manifest.json"
    change(record := json.loads(file.read_text()))
    file.write_text(json.dumps(record))
    stated = json.loads(rehashed(top, CONFIG, file.read_bytes()))
    if version == 1:
        stated = {"format": stated["format"], "version": 1, "files": stated["files"]}
    top.write_text(json.dumps(stated))


def without(*path: str) -> Change:
    """Lose one field."""

    def change(record: Any) -> None:
        for step in path[:-1]:
            record = record[step]
        del record[path[-1]]

    return change


def drawn(kind: Any, **planning: Any) -> Model:
    torch.manual_seed(0)
    model: Model = kind(SIZES[kind]).eval().requires_grad_(False)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model.planned_by(PlanningCost(**planning)) if isinstance(model, TDJEPA) else model


def costs(model: Model) -> Tensor:
    """(2, 5) native costs of drawn candidates from drawn latents."""
    draw = torch.Generator().manual_seed(1)
    latents = torch.randn(2, 4, model.latent, generator=draw)
    controls = torch.randn(2, 6, 10, 2, generator=draw)
    futures = model.rollout(latents[:, :3], controls[:, 0], controls[:, 1:])
    return model.native_cost(futures, latents[:, 3])


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("kind", SIZES)
def test_weights_from_before_there_were_strides(kind: Any, version: int, tmp_path: Path) -> None:
    """They are of five controls a block, and their costs those of futures alone."""
    save_geometry(drawn(kind, blend=0.0, terminal=0.3), tmp_path, {})
    saved = load_geometry(tmp_path)

    def change(record: Any) -> None:
        del record["config"]["stride"]
        if kind is TDJEPA:
            del record["planning"]["context"]

    rewrite(tmp_path, version, change)
    found = load_geometry(tmp_path)
    assert (content(found), found.config.stride) == (content(saved), 5)
    assert torch.equal(costs(found), costs(saved))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("kind", SIZES)
def test_weights_that_lack_anything_else_are_refused(
    kind: Any, version: int, tmp_path: Path
) -> None:
    save_geometry(drawn(kind), tmp_path, {})
    before = {name: (tmp_path / name).read_bytes() for name in (CONFIG, "manifest.json")}
    record = json.loads(before[CONFIG])
    lost = [("config", name) for name in record["config"] if name != "stride"]
    if version == 2:  # the first version may leave out whatever of the planning has a default
        lost += [("planning", name) for name in record.get("planning", ()) if name != "context"]
    for part, name in lost:
        rewrite(tmp_path, version, without(part, name))
        with pytest.raises(DjepaError, match=rf"{tmp_path}.*missing field `{name}`"):
            load_geometry(tmp_path)
        for file, data in before.items():
            (tmp_path / file).write_bytes(data)


def test_a_stride_that_was_another_is_not_taken_for_the_first(tmp_path: Path) -> None:
    """Weights of one control a block do not fit five."""
    torch.manual_seed(0)
    save_geometry(LeWM(replace(TINY, stride=1)).eval(), tmp_path, {})
    rewrite(tmp_path, 2, without("config", "stride"))
    with pytest.raises(DjepaError, match=f"{tmp_path}: the tensors do not fit"):
        load_geometry(tmp_path)


def resealed(file: Path, change: Change, target: Path) -> Path:
    arrays, record = read_shard(file)
    change(record)
    target.write_bytes(seal_shard(target, arrays, record))
    return target


def test_a_planner_of_such_weights_plans_as_before(
    artefacts: dict[str, Artefact], tmp_path: Path
) -> None:
    file, target = artefacts["planner"].path / "p.safetensors", tmp_path / "p.safetensors"

    def change(record: Any) -> None:
        for of in record["geometries"].values():
            del of["config"]["config"]["stride"]
        del record["geometries"]["tdjepa"]["config"]["planning"]["context"]

    before = load_planner(file).geometries
    found = load_planner(resealed(file, change, target)).geometries
    assert content(found) == content(before)
    assert all(torch.equal(costs(found[name]), costs(before[name])) for name in PAIR)
    for part, name in (("config", "depth"), ("planning", "blend")):
        resealed(file, without("geometries", "tdjepa", "config", part, name), target)
        with pytest.raises(DjepaError, match=rf"{target}.*missing field `{name}`"):
            load_planner(target)


# ------------------------------------------------------------------------------ log mixtures


def mixed(artefacts: dict[str, Artefact], fusion: LogMixture) -> Alignment:
    """A calibrated alignment over that mixture."""
    found = load_alignment(artefacts["alignment"].path)
    assert found.report is not None
    found.config = replace(found.config, mixture="log")
    found.report = found.report._replace(fusion=fusion)
    return found


FUSION = ("report", "fusion")
PLAIN = LogMixture(PAIR, (), (1.0, 0.5), 3, 2)
RANKED = LogMixture(PAIR, (), (1.0, 0.5, 0.25, 2.0), 3, 2, ranked=True)


@pytest.mark.parametrize("version", [1, 2])
def test_mixtures_from_before_there_were_ranks(
    version: int, artefacts: dict[str, Artefact], tmp_path: Path
) -> None:
    """None are inputs; weights of ranks too are too many."""
    for name, mixture in (("plain", PLAIN), ("ranked", RANKED)):
        save_alignment(mixed(artefacts, mixture), tmp_path / name, {})
        rewrite(tmp_path / name, version, without(*FUSION, "ranked"))
    found = load_alignment(tmp_path / "plain")
    assert found.report is not None
    assert found.report.fusion == PLAIN
    test = population("new", found.weights).evidence
    expected = mixed(artefacts, PLAIN).decide(test)
    assert all(torch.equal(a, b) for a, b in zip(found.decide(test), expected, strict=True))
    with pytest.raises(DjepaError, match=f"{tmp_path / 'ranked'} .* 4 weights of 2 inputs"):
        load_alignment(tmp_path / "ranked")
    rewrite(tmp_path / "plain", version, without(*FUSION, "held_out"))
    with pytest.raises(DjepaError, match=f"{tmp_path / 'plain'} .*missing field `held_out`"):
        load_alignment(tmp_path / "plain")


def test_a_planner_over_such_a_mixture(artefacts: dict[str, Artefact], tmp_path: Path) -> None:
    places = [str(artefacts["weights"].path.parent / name) for name in PAIR]
    for name, mixture in (("plain", PLAIN), ("ranked", RANKED)):
        file = tmp_path / f"{name}.safetensors"
        write_planner(file, mixed(artefacts, mixture), places, "tdjepa", {})
        resealed(file, without("alignment", *FUSION, "ranked"), file)
    report = load_planner(tmp_path / "plain.safetensors").alignment.report
    assert report is not None
    assert report.fusion == PLAIN
    with pytest.raises(DjepaError, match=r"ranked\.safetensors .* 4 weights of 2 inputs"):
        load_planner(tmp_path / "ranked.safetensors")
