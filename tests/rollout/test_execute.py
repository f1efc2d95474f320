"""Blocks: what is recorded is what the world does, and depends on nothing else."""

import hashlib
import platform
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from djepa.artefacts.folder import encode
from djepa.bank.collect import collect
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.pools import REFERENCE, Pool
from djepa.rollout.engine import LocalEngine
from djepa.rollout.execute import BlockWork, CollectConfig, draw_block, run_block
from djepa.tasks.task import Scene
from djepa.worlds.push import PushWorld
from djepa.worlds.starts import Start

TINY = CollectConfig(starts=2, block=2)
DIGESTS = {
    "reference-control": "599580e53e49a861",
    "pusht-confirmation": "3e0c9f43f3deea65",
    "visual-shape": "8119ebc92133785b",
    "decoy": "ff2c5b2e85f4d5e5",
}


def test_recorded_outcomes_are_what_execution_shows(small_bank: Bank) -> None:
    d, o, world = small_bank.decisions, small_bank.outcomes, PushWorld()
    states = world.execute(d.state[3], d.actions[3])
    assert np.array_equal(states[:, 5::5], o.states[3])
    success, cost = world.judge(d.goal[3], states[:, -1])
    assert np.array_equal(success, o.success[3])
    assert np.array_equal(cost, o.cost[3])
    assert o.observed.all()


def test_the_size_of_a_block_changes_no_start() -> None:
    one = run_block(BlockWork(replace(TINY, block=2), 0))
    two = run_block(BlockWork(replace(TINY, block=1), 1))
    for name, array in one.decision.items():
        assert np.array_equal(array[1:], two.decision[name])


@pytest.mark.parametrize("change", [{"seed": 1}, {"split": "confirmation"}, {"shape": "L"}])
def test_other_populations_share_no_start(change: dict[str, object]) -> None:
    ours = run_block(BlockWork(TINY, 0)).decision["identities"]
    theirs = run_block(BlockWork(replace(TINY, **change), 0)).decision["identities"]  # type: ignore[arg-type]
    assert not {row.tobytes() for row in ours} & {row.tobytes() for row in theirs}


@pytest.mark.parametrize(
    ("profile", "candidates", "dtype"),
    [
        ("reference-control", 63, "float32"),
        ("visual-shape", 63, "float32"),
        ("pusht-confirmation", 255, "float16"),
        ("decoy", 64, "float32"),
    ],
)
def test_profiles(profile: str, candidates: int, dtype: str) -> None:
    config = replace(TINY, profile=profile, starts=1)
    block = run_block(BlockWork(config, 0))
    actions = block.decision["actions"]
    assert actions.shape == (1, candidates, 25, 2)
    assert actions.dtype.name == dtype
    centres = block.provenance["centres"][0]
    assert len(centres) == (4 if profile == "decoy" else 1)
    # Neither the reference nor a decoy is on offer.
    offered = {sequence.astype("f4").tobytes() for sequence in actions[0]}
    stored = centres.astype(dtype).astype("f4")
    assert not offered & {centre.tobytes() for centre in stored}


@pytest.mark.parametrize("profile", ["reference-control", "visual-shape", "decoy"])
def test_other_horizons(profile: str) -> None:
    block = run_block(BlockWork(replace(TINY, profile=profile, starts=1, horizon=10), 0))
    assert block.decision["actions"].shape[2:] == (10, 2)
    assert block.outcome["states"].shape[2:] == (2, 10)


def test_every_profile_sees_the_same_starts() -> None:
    decoy = run_block(BlockWork(replace(TINY, profile="decoy"), 0))
    reference = run_block(BlockWork(TINY, 0))
    assert np.array_equal(decoy.decision["identities"], reference.decision["identities"])
    assert np.array_equal(decoy.provenance["centres"][:, :1], reference.provenance["centres"])


def test_decoy_centres_all_move_the_block_and_only_the_reference_must_succeed() -> None:
    block = run_block(BlockWork(replace(TINY, profile="decoy", starts=8, block=8), 0))
    world, solved = PushWorld(), []
    for state, goal, centres in zip(
        block.decision["state"],
        block.decision["goal"],
        block.provenance["centres"],
        strict=True,
    ):
        finals = world.execute(state, centres)[:, -1]
        moved = np.linalg.norm(finals[:, 2:4] - state[2:4], axis=1) > 20
        turned = np.abs(finals[:, 4] - state[4]) > np.pi / 9
        assert (moved | turned).all()
        solved.append(world.judge(goal, finals)[0])
    assert np.array(solved)[:, 0].all()
    assert np.array(solved)[:, 1:].mean() < 0.2


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"world": "pusht"}, "Did you mean 'push'"),
        ({"shape": "tee"}, "Unknown shape"),
        ({"rule": "push.v2"}, "Did you mean 'push.v1'"),
        ({"behaviour": "pusch"}, "Did you mean 'push'"),
        ({"starts": 0}, "starts must be at least 1"),
        ({"seed": -1}, "seed must be 0 or more"),
        ({"horizon": 24}, "multiple of 5"),
        ({"profile": "decoy", "centres": 1}, "2 to 16 centres"),
        ({"profile": "decoy", "shuffles": 16}, "fewer shuffles"),
        ({"split": ""}, "split needs a name"),
    ],
)
def test_bad_configurations(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(DjepaError, match=complaint):
        replace(TINY, **change)  # type: ignore[arg-type]


def test_unknown_profile(tmp_path: Path) -> None:
    with pytest.raises(DjepaError, match="Did you mean 'decoy'"):
        collect(tmp_path / "x", replace(TINY, profile="decoys"), LocalEngine(1))
    assert not (tmp_path / "x").exists()


class RandomShooting:
    """The smallest search: uniform sequences, kept if they end near the goal's pusher."""

    name = "shooting"

    def __init__(self, width: float = 1.0) -> None:
        self.settings = {"width": width}

    def propose(
        self, scene: Scene, starts: list[Start], seeds: list[int], drawn: Sequence[Pool]
    ) -> list[Pool]:
        assert not drawn  # the profile is its own
        return [self._one(start, seed) for start, seed in zip(starts, seeds, strict=True)]

    def _one(self, start: Start, seed: int) -> Pool:
        rng = np.random.default_rng(seed)
        drawn = rng.uniform(-1, 1, (32, 25, 2)).astype(np.float32) * self.settings["width"]
        reach = np.linalg.norm(start.goal[:2] - start.state[:2] - 40 * drawn.mean(1), axis=1)
        best = np.sort(np.argsort(reach)[:8])
        ids = np.arange(1, 33)[best]
        return Pool(ids, drawn[best], ("shooting",) * 8, np.full(8, -1), seed)


def test_a_search_can_propose_and_is_the_same_from_any_engine(tmp_path: Path) -> None:
    config = replace(TINY, profile="shooting", starts=3, block=1)
    one = collect(tmp_path / "one", config, LocalEngine(1), RandomShooting())
    two = collect(tmp_path / "two", config, LocalEngine(2), RandomShooting())
    assert one.hash == two.hash
    assert one.candidates == 8
    assert set(one.provenance.family.ravel()) == {"shooting"}
    assert REFERENCE not in one.provenance.family
    assert one.manifest["source"] == {"width": 1.0}
    with pytest.raises(DjepaError, match=r"source: {'width': 1.0} there, {'width': 0.5} asked"):
        collect(tmp_path / "one", config, LocalEngine(1), RandomShooting(0.5))


def test_a_search_gets_the_starts_of_the_profiles(tmp_path: Path) -> None:
    searched = draw_block(BlockWork(replace(TINY, profile="shooting"), 0))
    assert [entry.pool for entry in searched] == [None, None]
    profiled = draw_block(BlockWork(TINY, 0))
    for a, b in zip(searched, profiled, strict=True):
        assert np.array_equal(a.start.state, b.start.state)


class Ragged(RandomShooting):
    """A search whose pools do not go together."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault, self.calls = fault, 0

    def _one(self, start: Start, seed: int) -> Pool:
        pool = super()._one(start, seed)
        self.calls += 1
        if self.fault == "count" and self.calls > 1:
            return pool.take(range(7))
        if self.fault == "horizon":
            actions = pool.actions[:, :20]
            return Pool(pool.ids, actions, pool.families, pool.centres, seed)
        if self.fault == "name":
            return Pool(pool.ids, pool.actions, ("a" * 25,) * 8, pool.centres, seed)
        return pool


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [("count", "7 candidates"), ("horizon", "of 20 controls"), ("name", "longer than 24 bytes")],
)
def test_pools_that_do_not_go_together_are_refused(
    fault: str, complaint: str, tmp_path: Path
) -> None:
    config = replace(TINY, profile="shooting", starts=3, block=1)
    with pytest.raises(DjepaError, match=complaint):
        collect(tmp_path / "x", config, LocalEngine(1), Ragged(fault))
    assert not (tmp_path / "x" / "manifest.json").exists()


def test_a_search_is_asked_block_by_block(tmp_path: Path) -> None:
    """What was searched and executed is on disk before the next search begins."""

    class Failing(RandomShooting):
        calls = 0

        def _one(self, start: Start, seed: int) -> Pool:
            self.calls += 1
            if self.calls == 4:
                raise KeyboardInterrupt
            return super()._one(start, seed)

    config = replace(TINY, profile="shooting", starts=6, block=1)
    with pytest.raises(KeyboardInterrupt):
        collect(tmp_path / "x", config, LocalEngine(1), Failing())
    kept = (tmp_path / "x" / "journal.jsonl").read_text().splitlines()
    assert len(kept) >= 2


def test_a_worker_of_another_version_is_refused() -> None:
    with pytest.raises(DjepaError, match="Install the same versions"):
        run_block(BlockWork(TINY, 0, {"djepa": "0.0.0"}))


@pytest.mark.parametrize(("candidates", "centres", "each"), [(63, 4, 16), (63, 3, 21), (64, 4, 16)])
def test_decoys_in_other_numbers(candidates: int, centres: int, each: int) -> None:
    config = replace(TINY, profile="decoy", starts=1, candidates=candidates, centres=centres)
    block = run_block(BlockWork(config, 0))
    assert block.decision["actions"].shape[1] == candidates
    counts = np.bincount(block.provenance["centre_of"][0], minlength=centres)
    assert counts.max() == each
    assert counts.sum() == candidates


def test_a_reference_that_does_not_replay_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def once_not(world: PushWorld, start: Start, reference: object) -> bool:
        asked.append(True)
        return len(asked) > 1

    monkeypatch.setattr("djepa.rollout.execute.replays", once_not)
    drawn = draw_block(BlockWork(replace(TINY, starts=1), 0))[0]
    assert drawn.drops["replay"] == 1


@pytest.mark.skipif(platform.machine() != "x86_64", reason="bits of the physics are x86-64's")
@pytest.mark.parametrize(("profile", "digest"), DIGESTS.items())
def test_what_a_seed_gives_never_changes(profile: str, digest: str) -> None:
    """A bank made today is made again tomorrow, byte for byte."""
    block = run_block(BlockWork(replace(TINY, profile=profile), 0))
    seen = hashlib.sha256(encode(block.decision) + encode(block.outcome)).hexdigest()
    assert seen[:16] == digest
