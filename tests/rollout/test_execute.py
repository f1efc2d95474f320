"""Blocks: what is recorded is what the world does, and depends on nothing else."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from djepa.bank.collect import collect
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.pools import REFERENCE, Pool
from djepa.rollout.engine import LocalEngine
from djepa.rollout.execute import BlockWork, CollectConfig, draw_block, run_block
from djepa.worlds.push import PushWorld
from djepa.worlds.starts import Start

TINY = CollectConfig(starts=2, block=2)


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
        ({"horizon": 30}, "published for 25 controls"),
        ({"profile": "decoy", "centres": 1}, "at least 2 centres"),
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

    def propose(self, world: PushWorld, starts: list[Start], seeds: list[int]) -> list[Pool]:
        return [self._one(start, seed) for start, seed in zip(starts, seeds, strict=True)]

    def _one(self, start: Start, seed: int) -> Pool:
        rng = np.random.default_rng(seed)
        drawn = rng.uniform(-1, 1, (32, 25, 2)).astype(np.float32)
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


def test_a_search_gets_the_starts_of_the_profiles(tmp_path: Path) -> None:
    searched = draw_block(BlockWork(replace(TINY, profile="shooting"), 0))
    assert [entry.pool for entry in searched] == [None, None]
    profiled = draw_block(BlockWork(TINY, 0))
    for a, b in zip(searched, profiled, strict=True):
        assert np.array_equal(a.start.state, b.start.state)
