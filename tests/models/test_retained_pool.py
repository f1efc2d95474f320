"""The paper's PushT pools: retained by a native cost, the same bytes from anywhere."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_planner_pool import files, save_narrow

from commands import djepa as command
from djepa.bank.check import check_bank
from djepa.bank.collect import collect
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.models.planner_pool import CEMProposer, RetainingProposer, proposer_of
from djepa.models.predict import predict
from djepa.models.weights import load_geometry, weights_hash
from djepa.pools import REFERENCE, Retention
from djepa.rollout.cluster import RayEngine
from djepa.rollout.engine import LocalEngine
from djepa.rollout.execute import BlockWork, CollectConfig, draw_block, run_block
from djepa.tasks.task import Scene

FEW = Retention(keep=20, top=6)
CONFIG = CollectConfig(profile="pusht-confirmation", starts=3, block=2)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_narrow(tmp_path_factory.mktemp("weights") / "narrow")


@pytest.fixture(scope="module")
def bank(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Bank:
    folder = tmp_path_factory.mktemp("banks") / "retained"
    return collect(folder, CONFIG, LocalEngine(1), RetainingProposer(weights, FEW))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    """All 255 candidates of the same starts, executed."""
    return collect(tmp_path_factory.mktemp("banks") / "whole", CONFIG, LocalEngine(1))


def test_the_cheapest_are_retained_and_then_families_in_turn(
    bank: Bank, whole: Bank, weights: Path
) -> None:
    cost = predict(load_geometry(weights), Scene(), whole.decisions).cost.numpy()  # (N, 255)
    for row, ids in enumerate(bank.decisions.candidate_ids):
        cheapest = whole.decisions.candidate_ids[row][np.argsort(cost[row])]
        assert ids[:6].tolist() == cheapest[:6].tolist()
        turns = bank.provenance.family[row, 6:]
        assert len(set(turns[:6])) == 6  # each of the six families before any comes again
        assert list(turns[:6]) == sorted(turns[:6]) == list(turns[6:12])
        kept = np.isin(whole.decisions.candidate_ids[row], ids)
        recorded = bank.provenance.native_cost
        assert recorded is not None
        assert np.sort(recorded[row]) == pytest.approx(np.sort(cost[row][kept]), rel=1e-4)
    assert whole.provenance.native_cost is None


def test_retained_candidates_are_those_of_the_whole_pool(bank: Bank, whole: Bank) -> None:
    assert (len(whole), whole.candidates, bank.candidates) == (3, 255, 20)
    assert np.array_equal(bank.decisions.identities, whole.decisions.identities)
    for row, ids in enumerate(bank.decisions.candidate_ids):
        where = [whole.decisions.candidate_ids[row].tolist().index(i) for i in ids]
        assert np.array_equal(bank.decisions.actions[row], whole.decisions.actions[row, where])
        assert np.array_equal(bank.outcomes.success[row], whole.outcomes.success[row, where])
    assert bank.decisions.actions.dtype == np.float16
    assert REFERENCE not in bank.provenance.family


def test_neither_engines_nor_blocks_change_a_byte(
    bank: Bank, weights: Path, tmp_path: Path
) -> None:
    collect(tmp_path / "two", CONFIG, LocalEngine(2), RetainingProposer(weights, FEW))
    assert files(tmp_path / "two") == files(bank.path)
    single = replace(CONFIG, block=1)
    other = collect(tmp_path / "one", single, LocalEngine(1), RetainingProposer(weights, FEW))
    for name, array in vars(bank.decisions).items():
        assert np.array_equal(array, getattr(other.decisions, name)), name


@pytest.mark.filterwarnings("ignore")
def test_ray_writes_the_same_bytes(bank: Bank, weights: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    collect(tmp_path / "ray", CONFIG, RayEngine(workers=2), RetainingProposer(weights, FEW))
    assert files(tmp_path / "ray") == files(bank.path)


def test_what_is_retained_in_the_driver_is_the_same(
    bank: Bank, weights: Path, tmp_path: Path
) -> None:
    """Where a device other than the CPU costs the candidates, the starts must still be the same."""
    proposer = RetainingProposer(weights, FEW)
    proposer.portable = False
    other = collect(tmp_path / "x", CONFIG, LocalEngine(1), proposer)
    assert np.array_equal(other.decisions.candidate_ids, bank.decisions.candidate_ids)
    assert np.array_equal(other.outcomes.states, bank.outcomes.states)


def test_only_starts_and_drawn_candidates_reach_the_retention(weights: Path) -> None:
    seen: list[Any] = []

    class Watched(RetainingProposer):
        def propose(self, scene: Any, starts: Any, seeds: Any, drawn: Any = ()) -> Any:
            seen.extend([scene, *starts, *drawn])
            return super().propose(scene, starts, seeds, drawn)

    run_block(BlockWork(CONFIG, 0, proposer=Watched(weights, FEW)))
    assert [type(entry).__name__ for entry in seen] == ["Scene", *["Start"] * 2, *["Pool"] * 2]
    for pool, entry in zip(seen[3:], draw_block(BlockWork(CONFIG, 0)), strict=True):
        assert len(pool) == 255
        stored = entry.centres[0].astype(np.float16)  # the reference is not among them
        assert not (pool.actions == stored).all(axis=(1, 2)).any()


def test_other_weights_or_numbers_do_not_go_on_with_a_bank(
    bank: Bank, weights: Path, tmp_path: Path
) -> None:
    source = bank.manifest["source"]
    assert (source["search"], source["geometry"]) == ("retention", "lewm")
    assert (source["weights"], source["keep"], source["top"]) == (weights_hash(weights), 20, 6)
    other = save_narrow(tmp_path / "other", seed=1)
    for proposer in (RetainingProposer(other, FEW), RetainingProposer(weights), None):
        with pytest.raises(DjepaError, match="holds a bank of another configuration"):
            collect(bank.path, CONFIG, LocalEngine(1), proposer)


def test_a_block_is_made_again_from_the_manifest(bank: Bank, weights: Path, tmp_path: Path) -> None:
    again = proposer_of(bank.manifest["source"], 25, weights)
    assert isinstance(again, RetainingProposer)
    assert again.settings == bank.manifest["source"]
    assert any("made again from it" in line for line in check_bank(bank.path, proposer=again))
    assert not any("made again" in line for line in check_bank(bank.path))
    with pytest.raises(DjepaError, match="it was proposed by"):
        list(check_bank(bank.path, proposer=RetainingProposer(weights, Retention(20, 7))))


def test_a_retained_bank_must_say_what_retained_it(bank: Bank, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(bank.path, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["about"]["source"] = None
    (copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DjepaError, match="does not go with its source"):
        list(check_bank(copy))


def test_what_does_not_go_together_is_refused(weights: Path, tmp_path: Path) -> None:
    with pytest.raises(DjepaError, match="for the profile 'planner', not for 'pusht-confirmation'"):
        collect(tmp_path / "x", CONFIG, LocalEngine(1), CEMProposer(weights))
    with pytest.raises(DjepaError, match="top must not exceed keep"):
        Retention(keep=4, top=5)
    with pytest.raises(DjepaError, match="keep 256, 255 candidates"):
        run_block(BlockWork(CONFIG, 0, proposer=RetainingProposer(weights, Retention(256))))
    assert not (tmp_path / "x").exists()


def test_the_command_line_retains_and_checks(weights: Path, tmp_path: Path) -> None:
    def djepa(*arguments: str) -> str:
        done = command(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    where, flags = str(tmp_path / "bank"), ["--starts", "1", "--workers", "1"]
    profile = ["--profile", "pusht-confirmation", "--geometry", str(weights)]
    assert "1 starts x 63 candidates" in djepa("collect", "push", *profile, *flags, "--out", where)
    assert "retention not done again" in djepa("check", where)
    assert "every byte the same" in djepa("check", where, "--geometry", str(weights))
    assert "start-0" in djepa("show", where)
    assert "pusht-confirmation" in djepa("pools", where)
