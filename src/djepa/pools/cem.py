"""Cross-entropy search: draw a population, cost it, draw the next one around its best.

The caller provides the cost, which uses no reference and no outcome. It compares candidates of
different populations, so it must be a model's own: a rank, or anything else that depends on the
set, has no meaning across populations. Such scores need `Variant(relative=True)`.

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
"""Families: the last population, and the best sequence so far if it is from an earlier one."""
FLOOR = 1e-3 * 2 * LIMIT
"""Least standard deviation of a control: a thousandth of its range."""
MAX_ATTEMPTS = 64

Array = npt.NDArray[Any]
Cost = Callable[[Array], npt.ArrayLike]  # (N, S, H, A) float32 -> (N, S), lower is better


@dataclass(frozen=True)
class Variant:
    """Changes to the plain search that make it iCEM or MPPI."""

    colour: float = 0.0
    """Noise along the horizon has a power spectrum 1/f^colour; 0 is white."""
    carry: int = 0
    """Number of the cheapest sequences of a population that the next one keeps."""
    temperature: float = 0.0
    """If above 0, mean and deviation are refitted to all samples, each weighted by
    exp(-(cost - least cost) / temperature)."""
    relative: bool = False
    """Costs compare candidates of one population only: the best of earlier ones is not kept."""
    limit: float = LIMIT
    """Controls are clipped to ± this."""

    def __post_init__(self) -> None:
        check_int("carry", self.carry, 0)
        for name in ("colour", "temperature"):
            if not (np.isfinite(value := getattr(self, name)) and value >= 0):
                raise DjepaError(f"{name} must be 0 or more, not {value!r}.")
        if not (np.isfinite(self.limit) and self.limit > 0):
            raise DjepaError(f"limit must be above 0, not {self.limit!r}.")


PLAIN = Variant()


@dataclass(frozen=True)
class CEM:
    """Settings of a search."""

    samples: int = 64
    """Sequences drawn and costed in every iteration."""
    iterations: int = 16
    elites: int = 8
    """Number of the cheapest by (cost, ID), to which mean and deviation are refitted."""
    keep: int = 63
    """Number of candidates of the pool."""
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
        """One pool per seed: the `keep` cheapest of the last population and the best of all.

        See `run`; candidates are in order of ID.
        """
        return [run.pool() for run in self.run(cost, horizon, deviation, seeds)]

    def run(
        self,
        cost: Cost,
        horizon: int,
        deviation: npt.ArrayLike,
        seeds: Sequence[int],
        means: Sequence[Array | None] | None = None,
        variant: Variant = PLAIN,
    ) -> list["Run"]:
        """One finished search per seed. Each has its own generator, so no search affects another.

        Populations are normal around a mean that begins at 0 with `deviation` (A,), clipped and
        stored in float32. If given, `means` (H, A) replace 0; each is then the first
        candidate too. Sample k of iteration i has ID i · samples + k, also in the pool.
        """
        check_int("The horizon", horizon, 1)
        first = check_floats("The initial deviation", deviation, (None,)).astype(np.float64)
        if first.min() <= 0:
            raise DjepaError(f"The initial deviation must be above 0, not {first.tolist()}.")
        begin = means if means is not None else [None] * len(seeds)
        runs = [
            Run(self, variant, horizon, first, check_int("The seed", seed, 0), mean)
            for seed, mean in zip(seeds, begin, strict=True)
        ]
        for _ in range(self.iterations):
            populations = np.stack([run.draw() for run in runs])
            costs = _checked_costs(cost(populations), populations.shape[:2])
            for run, row in zip(runs, costs, strict=True):
                run.learn(row)
        return runs


class Run:
    """The search of one start; `mean` (H, A) is that of the current distribution."""

    def __init__(
        self,
        cem: CEM,
        variant: Variant,
        horizon: int,
        deviation: Array,
        seed: int,
        mean: Array | None = None,
    ) -> None:
        self._cem, self._variant, self._seed = cem, variant, seed
        self._random = generator("cem", seed)
        self.mean = np.zeros((horizon, len(deviation)))
        self._kept = np.zeros((0, *self.mean.shape), np.float32)  # begin the next population
        if mean is not None:
            self.mean = check_floats("The first mean", mean, self.mean.shape).astype(np.float64)
            self._kept = self._clipped(self.mean[None])
        self.deviation = np.broadcast_to(deviation, self.mean.shape)
        self._next = 0  # ID of the next sequence
        self._best: tuple[float, int, Array] | None = None  # cost, ID, (H, A)

    def draw(self) -> Array:
        """(S, H, A) float32, no two equal; their IDs continue those of the last draw."""
        drawn = self._sample(self._cem.samples - len(self._kept))
        self.actions = np.concatenate([self._kept, drawn])
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
        """Refit mean and deviation; remember the best so far, unless costs are relative."""
        self.costs = costs
        order = np.lexsort((self.ids, costs))
        mean, spread = self._refitted(order, costs)
        old = self._cem.momentum
        self.mean = old * self.mean + (1 - old) * mean
        self.deviation = old * self.deviation + (1 - old) * spread
        self.deviation = np.maximum(self.deviation, FLOOR)
        self._kept = self.actions[order[: self._variant.carry]]
        top = order[0]
        if self._variant.relative:
            self._best = None
        elif self._best is None or costs[top] < self._best[0]:
            self._best = (costs[top], int(self.ids[top]), self.actions[top].copy())

    def _refitted(self, order: Array, costs: Array) -> tuple[Array, Array]:
        """Mean and deviation (H, A) of the elites, or weighted ones of all samples."""
        if (temperature := self._variant.temperature) > 0:
            some = self.actions.astype(np.float64)
            likely = np.exp((costs.min() - costs) / temperature)
            shares = (likely / likely.sum())[:, None, None]
            mean = (shares * some).sum(axis=0)
            return mean, np.sqrt((shares * (some - mean) ** 2).sum(axis=0))
        # In order of their IDs, so that the rounding of the sums does not depend on the costs.
        elites = self.actions[np.sort(order[: self._cem.elites])].astype(np.float64)
        return elites.mean(axis=0), elites.std(axis=0)

    def best(self) -> tuple[int, Array]:
        """ID and (H, A) controls of the cheapest: of all, or if relative of the last population."""
        if self._best is not None:
            return self._best[1], self._best[2]
        top = np.lexsort((self.ids, self.costs))[0]
        return int(self.ids[top]), self.actions[top]

    def pool(self) -> Pool:
        """The candidates of the finished search."""
        return self.scored()[0]

    def scored(self) -> tuple[Pool, Array]:
        """The candidates of the finished search, and their costs (K,)."""
        ids, costs, actions = self.ids, self.costs, self.actions
        families = [LAST] * len(ids)
        cost, best, sequence = self._best or (0.0, int(ids[0]), actions[0])
        if best < ids[0] and not (actions == sequence).all(axis=(1, 2)).any():
            ids, costs = np.append(ids, best), np.append(costs, cost)
            actions = np.concatenate([actions, sequence[None]])
            families.append(EARLIER)
        cheapest = np.lexsort((ids, costs))[: self._cem.keep]
        kept = cheapest[np.argsort(ids[cheapest])]
        pool = Pool(
            ids=ids[kept],
            actions=actions[kept],
            families=tuple(families[position] for position in kept),
            centres=np.full(len(kept), -1),
            seed=self._seed,
        )
        return pool, costs[kept]

    def _sample(self, count: int) -> Array:
        noise = coloured(self._random, (count, *self.mean.shape), self._variant.colour)
        return self._clipped(self.mean + self.deviation * noise)

    def _clipped(self, actions: Array) -> Array:
        return np.clip(actions, -self._variant.limit, self._variant.limit).astype(np.float32)


def coloured(random: np.random.Generator, shape: tuple[int, int, int], colour: float) -> Array:
    """(S, H, A) normal noise whose power along the horizon falls as 1/f^colour, of deviation 1."""
    white = random.standard_normal(shape)
    if not colour or shape[1] < 2:
        return white
    f = np.fft.rfftfreq(shape[1])
    scale = np.maximum(f, f[1]) ** (-colour / 2)
    power = np.concatenate([scale[:1], scale[1:], scale[1 : (shape[1] + 1) // 2]]) ** 2
    waves = np.fft.rfft(white, axis=1) * (scale / np.sqrt(power.mean()))[:, None]
    return np.asarray(np.fft.irfft(waves, shape[1], axis=1))


def _repeated(actions: Array) -> Array:
    """Positions of sequences that equal an earlier one in all bytes."""
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
