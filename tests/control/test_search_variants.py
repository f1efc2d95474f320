"""Variants of the search: iCEM, MPPI, and scores that compare within one population alone."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from djepa.errors import DjepaError
from djepa.pools.cem import CEM, Run, Variant, coloured

FEW = CEM(samples=12, iterations=4, elites=3, keep=11)
WIDTH = np.array([0.4, 0.2])


def bowl(actions: Any) -> Any:
    return ((actions - 0.3) ** 2).sum((2, 3))


def run(cost: Any = bowl, variant: Variant | None = None, **more: Any) -> list[Run]:
    return FEW.run(cost, 6, WIDTH, [3, 4], variant=variant or Variant(), **more)


def test_relative_scores_may_change_from_population_to_population() -> None:
    """Only the order within a population counts: ranks give the same search as costs."""

    def ranks(actions: Any) -> Any:
        return bowl(actions).argsort(1).argsort(1).astype(float)

    relative = Variant(relative=True)
    for by_cost, by_rank in zip(run(variant=relative), run(ranks, relative), strict=True):
        assert by_cost.best()[0] == by_rank.best()[0]
        assert np.array_equal(by_cost.pool().actions, by_rank.pool().actions)
        assert by_cost.best()[0] >= 3 * FEW.samples  # of the last population


def test_without_it_the_best_ever_seen_is_kept() -> None:
    seen = list[Any]()

    def falling(actions: Any) -> Any:
        seen.append(actions)
        return bowl(actions) + 100 * len(seen)

    assert all(one.best()[0] < FEW.samples for one in run(falling))


def test_the_best_are_carried_along() -> None:
    populations = list[Any]()

    def noting(actions: Any) -> Any:
        populations.append(actions.copy())
        return bowl(actions)

    run(noting, Variant(carry=2))
    for before, after in pairwise(populations):
        best = np.argsort(bowl(before), axis=1)[:, :2]
        assert np.array_equal(after[:, :2], np.take_along_axis(before, best[..., None, None], 1))


def test_a_search_may_begin_with_a_plan() -> None:
    plan = np.full((6, 2), 0.25)
    first = list[Any]()

    def noting(actions: Any) -> Any:
        first.append(actions.copy())
        return bowl(actions)

    FEW.run(noting, 6, WIDTH, [3, 4], [plan, None])
    assert np.array_equal(first[0][0, 0], plan.astype(np.float32))
    alone = FEW.run(bowl, 6, WIDTH, [4])[0]
    both = FEW.run(bowl, 6, WIDTH, [3, 4], [plan, None])[1]
    assert np.array_equal(alone.pool().actions, both.pool().actions)
    with pytest.raises(DjepaError, match="first mean"):
        FEW.run(bowl, 6, WIDTH, [3], [plan[:3]])


def test_weights_replace_elites() -> None:
    """exp(-(c - min c) / T) as MPPI has it: one refit by hand."""
    once = CEM(samples=12, iterations=1, elites=3, keep=11)
    (found,) = once.run(bowl, 6, WIDTH, [3], variant=Variant(temperature=0.5))
    weights = np.exp(-(found.costs - found.costs.min()) / 0.5)
    mean = np.average(found.actions.astype(float), axis=0, weights=weights)
    assert np.allclose(found.mean, mean, atol=1e-12)


def test_coloured_noise_is_smooth_and_of_deviation_one() -> None:
    random = np.random.default_rng(0)
    white, red = (coloured(random, (2000, 25, 2), colour) for colour in (0.0, 2.0))
    for noise in (white, red):
        assert abs(noise.std() - 1) < 0.05
    steps = [np.abs(np.diff(noise, axis=1)).mean() for noise in (white, red)]
    assert steps[1] < 0.6 * steps[0]


@pytest.mark.parametrize("wrong", [{"carry": -1}, {"colour": np.nan}, {"limit": 0.0}])
def test_odd_variants_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DjepaError, match=next(iter(wrong))):
        Variant(**wrong)


def test_controls_stay_within_the_limit() -> None:
    wide = Variant(limit=2.5)
    pools = [one.pool() for one in FEW.run(bowl, 6, np.array([3.0, 3.0]), [3], variant=wide)]
    assert 1 < np.abs(pools[0].actions).max() <= 2.5
