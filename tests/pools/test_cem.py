"""The cross-entropy search: refits by hand, IDs that persist, the best ever seen, no repeats."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from djepa.errors import DjepaError
from djepa.pools import Pool
from djepa.pools.cem import CEM, EARLIER, FLOOR, LAST
from djepa.seeds import generator

Array = npt.NDArray[Any]
H, A = 3, 2
DEVIATION = np.array([0.3, 0.5])
TARGET = np.linspace(-0.6, 0.6, H * A).reshape(H, A)
SMALL = CEM(samples=6, iterations=3, elites=2, keep=5)


class Quadratic:
    """Squared distance to a target; remembers the populations it was asked about."""

    def __init__(self, discount: float = 0.0) -> None:
        self.populations: list[Array] = []
        self.costs: list[Array] = []
        self.discount = discount  # of the first population

    def __call__(self, actions: Array) -> Array:
        self.populations.append(actions.copy())
        cost = np.square(actions.astype(np.float64) - TARGET).mean(axis=(-2, -1))
        self.costs.append(cost - self.discount * (len(self.populations) == 1))
        return self.costs[-1]

    def sequence(self, start: int, number: int, samples: int = 6) -> Array:
        return np.asarray(self.populations[number // samples][start, number % samples])


def one(cem: CEM, cost: Any, seed: int = 5) -> Pool:
    return cem.search(cost, H, DEVIATION, [seed])[0]


@pytest.mark.parametrize("momentum", [0.0, 0.25])
def test_populations_are_drawn_around_the_elites(momentum: float) -> None:
    cost, random = Quadratic(), generator("cem", 5)
    one(CEM(6, 3, 2, 5, momentum), cost)
    mean, deviation = np.zeros((H, A)), np.broadcast_to(DEVIATION, (H, A))
    assert len(cost.populations) == 3
    for population in cost.populations:
        noise = random.standard_normal((6, H, A))
        expected = np.clip(mean + deviation * noise, -1, 1).astype(np.float32)
        assert population.dtype == np.float32
        assert np.array_equal(population[0], expected)
        far = [((sequence - TARGET) ** 2).mean() for sequence in expected.astype(float)]
        a, b = (expected[k].astype(float) for k in np.argsort(far)[:2])
        refit, half = (a + b) / 2, np.abs(a - b) / 2
        mean = momentum * mean + (1 - momentum) * refit
        deviation = np.maximum(momentum * deviation + (1 - momentum) * half, 0.002)


def test_a_deviation_never_falls_below_a_thousandth_of_the_range() -> None:
    cost = Quadratic()
    one(CEM(6, 2, 1, 5), cost)  # a single elite has none
    spread = cost.populations[1][0].std(axis=0)
    assert FLOOR == 0.002
    assert (spread > 0.2 * FLOOR).all()
    assert (spread < 3 * FLOOR).all()


def test_it_finds_the_target() -> None:
    cost = Quadratic()
    one(CEM(), cost)
    assert cost.costs[-1].max() < 0.1 * cost.costs[0].min()


def test_ids_name_what_was_drawn_when() -> None:
    cost = Quadratic()
    for start, pool in enumerate(SMALL.search(cost, H, DEVIATION, [5, 6, 7])):
        assert len(pool) == 5
        assert np.array_equal(pool.ids, np.unique(pool.ids))
        for number, sequence in zip(pool.ids, pool.actions, strict=True):
            assert np.array_equal(sequence, cost.sequence(start, number))
        assert pool.actions.dtype == np.float32
        assert set(pool.centres) == {-1}
        assert pool.seed == 5 + start


def test_the_pool_is_the_last_population_less_the_most_expensive() -> None:
    cost = Quadratic(discount=-1.0)  # the first population is dear: the best is a later one
    pool = one(CEM(6, 2, 2, 5), cost)
    worst = cost.costs[-1][0].argmax()
    assert pool.ids.tolist() == [6 + k for k in range(6) if k != worst]
    assert set(pool.families) == {LAST}


def test_the_best_ever_seen_is_in_the_pool_whenever_it_came() -> None:
    cost = Quadratic(discount=9.0)
    pool = one(SMALL, cost)
    best = cost.costs[0][0].argmin()
    assert pool.ids[0] == best
    assert np.array_equal(pool.actions[0], cost.populations[0][0, best])
    assert pool.families == (EARLIER, LAST, LAST, LAST, LAST)
    order = cost.costs[-1][0].argsort()
    assert sorted(pool.ids[1:]) == sorted(12 + order[:4])


def test_ties_go_to_the_smaller_id() -> None:
    seen: list[Array] = []

    def flat(actions: Array) -> Array:
        seen.append(actions.copy())
        return np.zeros(actions.shape[:2])

    pool = one(CEM(6, 2, 2, 5), flat)
    assert pool.ids.tolist() == [0, 6, 7, 8, 9]
    a, b = seen[0][0, :2].astype(float)
    random = generator("cem", 5)
    random.standard_normal((6, H, A))
    drawn = (a + b) / 2 + np.maximum(np.abs(a - b) / 2, FLOOR) * random.standard_normal((6, H, A))
    assert np.array_equal(seen[1][0], np.clip(drawn, -1, 1).astype(np.float32))


def test_a_start_does_not_depend_on_its_batch() -> None:
    together = SMALL.search(Quadratic(), H, DEVIATION, [1, 2, 3])
    mixed = SMALL.search(Quadratic(), H, DEVIATION, [3, 1])
    for pool, seed in ((together[0], 1), (together[2], 3), (mixed[0], 3), (mixed[1], 1)):
        alone = one(SMALL, Quadratic(), seed)
        assert np.array_equal(pool.ids, alone.ids)
        assert pool.hashes() == alone.hashes()
    assert not set(together[0].hashes()) & set(together[1].hashes())


def test_no_two_sequences_are_the_same() -> None:
    """So wide that everything is clipped to a corner: repeats are drawn again."""
    cem = CEM(samples=4, iterations=1, elites=1, keep=4)
    for seed in range(20):
        pool = cem.search(lambda a: a.sum((-2, -1)), 2, [1e9], [seed])[0]
        assert len(set(pool.hashes())) == 4
        assert np.array_equal(np.abs(pool.actions), np.ones((4, 2, 1)))


def test_a_search_that_can_only_repeat_itself_is_an_error() -> None:
    with pytest.raises(DjepaError, match="keeps drawing the same sequences"):
        CEM(4, 1, 1, 4).search(lambda a: a.sum((-2, -1)), 1, [1e9], [0])


def test_an_earlier_best_that_was_drawn_again_is_not_there_twice() -> None:
    """Two corners only, so the second population repeats the first."""
    pool = CEM(2, 2, 2, 2).search(lambda a: np.zeros(a.shape[:2]), 1, [1e9], [0])[0]
    assert len(set(pool.hashes())) == len(pool) == 2


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"samples": 6}, "8 elites cannot come from 6 samples"),
        ({"samples": 62}, "A pool of 63 needs a last population of at least as many"),
        ({"samples": 64.0}, "samples must be an integer"),
        ({"iterations": 0}, "iterations must be at least 1"),
        ({"elites": 0}, "elites must be at least 1"),
        ({"keep": 1}, "keep must be at least 2"),
        ({"momentum": 1.0}, "momentum must be at least 0 and below 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DjepaError, match=complaint):
        CEM(**change)


@pytest.mark.parametrize(
    ("cost", "complaint"),
    [
        (lambda a: a.sum((-2, -1))[0], r"must have shape \(1, 6\), not \(6,\)"),
        (lambda a: a.sum((-2, -1)) / 0, "NaN or infinity"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_costs_that_are_none_are_refused(cost: Any, complaint: str) -> None:
    with pytest.raises(DjepaError, match=complaint):
        one(SMALL, cost)


@pytest.mark.parametrize("deviation", [[0.0, 0.1], [np.nan, 0.1], [[0.1]], [1]])
def test_deviations_that_are_none_are_refused(deviation: Any) -> None:
    with pytest.raises(DjepaError, match="initial deviation"):
        SMALL.search(Quadratic(), H, deviation, [0])
