"""Cross-entropy search: draw a population, cost it, draw the next one around its best.

The cost comes from the caller and compares candidates of different populations, so it must be a
model's own: a rank, or anything else that depends on the set, has no meaning across populations.
It takes no reference and no outcome.

Shapes: N starts, S samples, K kept, H horizon, A action width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.checks import check_floats, check_int
from djepa.errors import DjepaError
from djepa.pools.families import LIMIT
from djepa.pools.pool import Pool
from djepa.seeds import generator

LAST, EARLIER = "cem", "cem_earlier"
"""Families: the last population, and the best ever seen where it is not of the last one."""
FLOOR = 1e-3 * 2 * LIMIT
"""Least deviation of a control, in its own units: a thousandth of its range."""
MAX_ATTEMPTS = 64

Array = npt.NDArray[Any]
Cost = Callable[[Array], npt.ArrayLike]  # (N, S, H, A) float32 -> (N, S), lower is better


@dataclass(frozen=True)
class CEM:
    """How to search."""

    samples: int = 64
    """Sequences drawn and costed in every iteration."""
    iterations: int = 16
    elites: int = 8
    """The next population is drawn around this many, the cheapest by (cost, ID)."""
    keep: int = 63
    """Candidates of the pool."""
    momentum: float = 0.0
    """Share of the old mean and deviation that is kept in every refit."""

    def __post_init__(self) -> None:
        check_int("samples", self.samples, 2)
        check_int("iterations", self.iterations, 1)
        check_int("elites", self.elites, 1)
        check_int("keep", self.keep, 2)
        if self.elites > self.samples:
            raise DjepaError(f"{self.elites} elites cannot come from {self.samples} samples.")
        if self.keep > self.samples:
            raise DjepaError(
                f"A pool of {self.keep} needs a last population of at least as many; "
                f"samples is {self.samples}."
            )
        if not 0 <= self.momentum < 1:
            raise DjepaError(f"momentum must be at least 0 and below 1, not {self.momentum!r}.")

    def search(
        self, cost: Cost, horizon: int, deviation: npt.ArrayLike, seeds: Sequence[int]
    ) -> list[Pool]:
        """One pool per seed; a start's draws come from its own generator, whatever the others do.

        Populations are normal around a mean that begins at 0 with `deviation` (A,), clipped to ±1
        and stored in float32. Sample k of iteration i has ID i · samples + k, also in the pool. The
        pool is the last population and the best ever seen, less the most expensive, by ID.
        """
        check_int("The horizon", horizon, 1)
        first = check_floats("The initial deviation", deviation, (None,)).astype(np.float64)
        if first.min() <= 0:
            raise DjepaError(f"The initial deviation must be above 0, not {first.tolist()}.")
        runs = [_Run(self, horizon, first, check_int("The seed", seed, 0)) for seed in seeds]
        for _ in range(self.iterations):
            populations = np.stack([run.draw() for run in runs])
            costs = _checked_costs(cost(populations), populations.shape[:2])
            for run, row in zip(runs, costs, strict=True):
                run.learn(row)
        return [run.pool() for run in runs]


class _Run:
    """The search of one start."""

    def __init__(self, cem: CEM, horizon: int, deviation: Array, seed: int) -> None:
        self._cem, self._seed, self._random = cem, seed, generator("cem", seed)
        self.mean = np.zeros((horizon, len(deviation)))
        self.deviation = np.broadcast_to(deviation, self.mean.shape)
        self._next = 0  # ID of the next sequence
        self._best: tuple[float, int, Array] | None = None  # cost, ID, (H, A)

    def draw(self) -> Array:
        """(S, H, A) float32, no two the same; their IDs go on from those of the last draw."""
        self.actions = self._sample(self._cem.samples)
        repeated = _repeated(self.actions)
        for _ in range(MAX_ATTEMPTS):
            if not len(repeated):
                break
            self.actions[repeated] = self._sample(len(repeated))
            repeated = _repeated(self.actions)
        else:
            raise DjepaError(
                "The search keeps drawing the same sequences: its deviation is too small."
            )
        self.ids = np.arange(self._next, self._next + len(self.actions))
        self._next += len(self.actions)
        return self.actions

    def learn(self, costs: Array) -> None:
        """Refit mean and deviation to the elites; remember the best ever seen."""
        self.costs = costs
        order = np.lexsort((self.ids, costs))
        # In order of their IDs, so that the sums below depend on which they are and no more.
        elites = self.actions[np.sort(order[: self._cem.elites])].astype(np.float64)
        old = self._cem.momentum
        self.mean = old * self.mean + (1 - old) * elites.mean(axis=0)
        self.deviation = old * self.deviation + (1 - old) * elites.std(axis=0)
        self.deviation = np.maximum(self.deviation, FLOOR)
        top = order[0]
        if self._best is None or costs[top] < self._best[0]:
            self._best = (costs[top], int(self.ids[top]), self.actions[top].copy())

    def pool(self) -> Pool:
        """The candidates of the finished search."""
        ids, costs, actions = self.ids, self.costs, self.actions
        families = [LAST] * len(ids)
        assert self._best is not None
        cost, best, sequence = self._best
        if best < ids[0] and not (actions == sequence).all(axis=(1, 2)).any():
            ids, costs = np.append(ids, best), np.append(costs, cost)
            actions = np.concatenate([actions, sequence[None]])
            families.append(EARLIER)
        cheapest = np.lexsort((ids, costs))[: self._cem.keep]
        kept = cheapest[np.argsort(ids[cheapest])]
        return Pool(
            ids=ids[kept],
            actions=actions[kept],
            families=tuple(families[position] for position in kept),
            centres=np.full(len(kept), -1),
            seed=self._seed,
        )

    def _sample(self, count: int) -> Array:
        noise = self._random.standard_normal((count, *self.mean.shape))
        drawn = np.clip(self.mean + self.deviation * noise, -LIMIT, LIMIT)
        return drawn.astype(np.float32)


def _repeated(actions: Array) -> Array:
    """Positions of sequences whose bytes occur before them."""
    seen: set[bytes] = set()
    repeated = []
    for position, sequence in enumerate(actions):
        data = sequence.tobytes()
        if data in seen:
            repeated.append(position)
        seen.add(data)
    return np.array(repeated, dtype=np.int64)


def _checked_costs(costs: npt.ArrayLike, shape: tuple[int, ...]) -> Array:
    array = np.asarray(costs, dtype=np.float64)
    if array.shape != shape:
        raise DjepaError(f"The cost of a population must have shape {shape}, not {array.shape}.")
    if not np.isfinite(array).all():
        raise DjepaError("The cost of a population contains NaN or infinity.")
    return array
