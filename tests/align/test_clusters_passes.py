"""Rows that are one start count once; passes over the fitting starts; checkpoints by cost."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from djepa.align.fit import AlignConfig, Alignment, task_local
from djepa.align.gates import NEVER, Gate, calibrate
from djepa.align.mixture import fit_logs
from djepa.align.outcomes import Outcomes
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence, clusters


def test_names_before_the_at_sign_are_starts() -> None:
    assert clusters(["a@x", "b@x", "a@y", "c", "b@y"]).tolist() == [0, 1, 0, 2, 1]
    assert clusters([]).tolist() == []


def gated(changes: list[int], same: list[int] | None) -> Gate:
    """A careful gate on starts where the aligned choice gains (1), loses (-1) or changes nothing.

    Two candidates; the base takes the first, the aligned score the second, all by one advantage.
    """
    N = len(changes)
    base = torch.tensor([[0.0, 1.0]]).double().repeat(N, 1)
    refined = torch.tensor([[0.5, -0.5]]).repeat(N, 1)
    success = torch.tensor([[c < 0, c > 0] if c else [True, True] for c in changes])
    ids = torch.tensor([[1, 2]]).repeat(N, 1)
    number = None if same is None else torch.tensor(same)
    return calibrate(Gate(), base, refined, ids, success, "careful", same=number)


def test_five_gains_are_shown_and_five_looks_of_one_start_are_not() -> None:
    """One-sided sign tests: 5 of 5 has p = 1/32, 1 of 1 has p = 1/2."""
    assert gated([1] * 5, None).threshold < NEVER
    assert gated([1] * 5, [0, 1, 2, 3, 4]).threshold < NEVER
    assert gated([1] * 5, [0] * 5).threshold == NEVER
    assert gated([1] * 4, None).threshold == NEVER  # p = 1/16


def test_gains_and_losses_of_one_start_are_added_up() -> None:
    """Seven gains and two losses: p = 0.09. If the losses are of starts that gain as much, the
    starts' net is five gains, and none of them loses: p = 1/32.
    """
    changes = [1] * 7 + [-1] * 2
    assert gated(changes, None).threshold == NEVER
    assert gated(changes, [0, 1, 2, 3, 4, 5, 6, 0, 1]).threshold < NEVER
    assert gated(changes, [0, 0, 0, 1, 2, 3, 4, 5, 6]).threshold == NEVER  # 5 of 7


def test_folds_keep_the_looks_of_a_start_together() -> None:
    """Judged by folds, a mixture has seen no other look of the start: copies teach nothing new."""
    rng = np.random.default_rng(0)
    costs = {"a": rng.random((20, 6)) + 0.1, "b": rng.random((20, 6)) + 0.1}
    success = torch.from_numpy(rng.random((20, 6)) < 0.3)
    ids = np.tile(np.arange(6), (20, 1))
    once = Evidence.from_arrays(
        start_ids=[f"s{n}" for n in range(20)], candidate_ids=ids, costs=costs
    )
    names = [f"s{n}@{look}" for look in "xyz" for n in range(20)]
    tripled = {name: np.tile(c, (3, 1)) for name, c in costs.items()}
    thrice = Evidence.from_arrays(
        start_ids=names, candidate_ids=np.tile(ids, (3, 1)), costs=tripled
    )
    seen = torch.ones(60, 6, dtype=torch.bool)
    one = fit_logs(once, success, seen[:20], ("a", "b"))
    many = fit_logs(thrice, success.repeat(3, 1), seen, ("a", "b"))
    assert many.held_out == 3 * one.held_out


def problem(N: int, split: str) -> tuple[Evidence, Outcomes]:
    rng = np.random.default_rng([N, len(split)])
    success = rng.random((N, 8)) < 0.4
    success[:, 0], success[:, 1] = True, False
    costs = {name: rng.random((N, 8)) + 0.3 * ~success for name in ("v", "p", "j")}
    ids = np.tile(np.arange(8), (N, 1))
    e = Evidence.from_arrays(
        start_ids=[f"{split}{n}" for n in range(N)], candidate_ids=ids, costs=costs
    )
    return e, Outcomes.from_arrays(e, success, cost=rng.random((N, 8)))


def test_a_pass_takes_every_start_once() -> None:
    alignment = Alignment(AlignConfig(epochs=3, every=1, batch=4))
    assert alignment._length(10, 4) == (9, 3)
    for turn in range(3):
        parts = [alignment._batch(10, 4, 3 * turn + i + 1).tolist() for i in range(3)]
        assert [len(part) for part in parts] == [4, 4, 2]
        assert sorted(i for part in parts for i in part) == list(range(10))
    orders = {tuple(alignment._batch(10, 4, 3 * turn + 1).tolist()) for turn in range(3)}
    assert len(orders) == 3
    assert Alignment(AlignConfig(updates=7, every=2))._length(10, 4) == (7, 2)


def test_the_published_task_local_fit_makes_120_passes() -> None:
    config = task_local(("v", "p", "j"))
    assert (config.epochs, config.every, config.batch, config.rate) == (120, 10, 16, 3e-4)
    assert Alignment(config)._length(512, config.batch) == (120 * 32, 320)


def test_of_equal_successes_the_grid_takes_the_checkpoint_that_costs_least() -> None:
    """Checkpoints solve as many; the chosen one is the first of those with the lowest cost."""
    config = replace(task_local(("v", "p", "j")), epochs=20, every=2, rate=0.02)
    alignment = Alignment(config).fit(*problem(40, "fit"))
    e, outcomes = problem(40, "calibration")
    scores, found = alignment._scorer(e), []
    for snapshot in alignment._snapshots:
        alignment.operator.load_state_dict(snapshot.weights)
        _, hits, paid = alignment._calibrated(scores(), e.ids, outcomes)
        found.append((hits, -paid, -snapshot.update))
    assert len({x[:2] for x in found}) > 1
    alignment.calibrate(e, outcomes)
    best = alignment._snapshots[found.index(max(found))]
    kept = alignment.operator.state_dict()
    assert all(torch.equal(kept[k], v) for k, v in best.weights.items())


def test_numbers_of_passes_below_zero() -> None:
    with pytest.raises(DjepaError, match="at least 1"):
        AlignConfig(epochs=-1)
