"""Planners: a search under the cost of a geometry, and a choice among its candidates.

    random        controls drawn at random; no model
    native-cem    cross-entropy search under one geometry; its cheapest candidate
    icem          the same with coloured noise, and the best kept from population to population
    mppi          candidates weighted by the geometry's log cost; their mean is executed
    aligned       the search of native-cem; the alignment chooses among its final population
    aligned-cem   the alignment scores every population: CEM compares only within one
    aligned-mppi  mppi by the mixture's log cost, whose magnitudes were fitted to outcomes

All have the same number of model evaluations per decision: one is one candidate rolled out by one
geometry. No planner uses an outcome.

Legend: N episodes, H controls of a candidate, A action width.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from djepa.checks import check_int
from djepa.control.parts import Parts, Sight, shipped_alignment
from djepa.control.recorded import cheapest
from djepa.errors import DjepaError, check_name
from djepa.interop.decide import record
from djepa.interop.record import DecisionRecord, Scorer
from djepa.models.precision import arithmetic
from djepa.models.protocol import STRIDE
from djepa.pools.cem import CEM, Run, Variant
from djepa.rollout.alike import arithmetic_here, same_arithmetic
from djepa.seeds import generator
from djepa.tasks.task import Scene, get_task
from djepa.threads import threads_for
from djepa.worlds.starts import Start

Array = npt.NDArray[Any]
RANDOM = "random"
ALIGNED = {"aligned": "d-jepa", "aligned-cem": "d-jepa", "aligned-mppi": "log-costs"}
"""Planners that need an alignment -> the package's own."""
INSIDE = ("aligned-cem", "aligned-mppi")  # all geometries cost every population
UNCHOSEN = (RANDOM, "mppi", "aligned-mppi")  # they do not execute a candidate
PLANNERS = (RANDOM, "native-cem", "icem", "mppi", *ALIGNED)
COST, ENDS, GOAL = "cost of ", "ends of ", "goal of "  # names of stored evidence
TOGETHER = 32  # episodes of a batch on a GPU


@dataclass(frozen=True)
class PlannerConfig:
    """Settings of decisions. 0 or empty takes the world's default."""

    planner: str = "aligned"
    geometry: str = ""  # weights whose cost the search uses
    alignment: str = ""  # folder
    horizon: int = 0  # controls of a candidate
    shrink: bool = True  # candidates end when those of the first decision would, see `ahead`
    evaluations: int = 512  # of models per decision, at most
    samples: int = 64
    elites: int = 8
    spread: float = 1.0  # of the first population, in deviations of the training controls
    warm: bool = True  # a search begins with the rest of the previous plan
    colour: float = 2.0  # of icem's noise
    temperature: float = 0.1  # of mppi's weights, in units of the geometry's log cost
    record: bool = False  # keep every score of every candidate
    shortlist: int = 0  # aligned: final candidates that the other models evaluate; 0: all

    def __post_init__(self) -> None:
        check_name("planner", self.planner, PLANNERS)
        check_int("evaluations", self.evaluations, 1)
        check_int("samples", self.samples, 2)
        for name in ("spread", "temperature"):
            if not (np.isfinite(value := getattr(self, name)) and value > 0):
                raise DjepaError(f"The {name} must be positive and finite, not {value!r}.")
        if self.record and self.planner in UNCHOSEN:
            raise DjepaError(
                f"{self.planner} executes no candidate, so there is no choice to record."
            )
        if self.shortlist:
            if self.planner != "aligned":
                raise DjepaError(f"A shortlist is of the planner aligned, not of {self.planner}.")
            check_int("shortlist", self.shortlist, 2)
            if self.shortlist >= self.samples:
                raise DjepaError(
                    f"A shortlist holds at most {self.samples - 1} candidates, one less than a "
                    f"population, not {self.shortlist}."
                )

    @property
    def kept(self) -> int:
        """Number of cheapest candidates that a search returns: all but one, or the shortlist."""
        return self.shortlist or self.samples - 1


class Decision(NamedTuple):
    """The next plan of one episode."""

    controls: Array  # (H, A) float32
    candidate: int  # ID; -1 if the controls are not a candidate
    opened: bool  # the alignment's gate was open
    said: DecisionRecord | None = None  # the decision record, if requested


class Planner:
    """Plans episodes of one world. Picklable: workers load the models themselves."""

    def __init__(self, config: PlannerConfig, world: str, device: str = "cpu") -> None:
        self.config, self.device = config, device
        task = get_task(world)
        self.horizon, self.limit = config.horizon or task.horizon, task.limit
        self.actions, self.parts = task.actions, Parts({}, None, device)
        self.settings: dict[str, Any] = {"planner": RANDOM, "limit": self.limit}
        if config.planner == RANDOM:
            return
        folder = None
        if config.planner in ALIGNED:
            folder = config.alignment or shipped_alignment(world, ALIGNED[config.planner])
        self.parts = Parts.find(world, config.geometry, folder, device)
        stride = int(getattr(self.parts.model(self.parts.searched), "stride", STRIDE))
        if self.horizon < stride or self.horizon % stride:
            raise DjepaError(
                f"The horizon must be a multiple of {stride} controls, not {self.horizon}."
            )
        if config.shortlist:
            self.parts.check_parts_of_pools()
        self.cem = CEM(config.samples, self._iterations(), config.elites, config.kept)
        self.settings = {
            **asdict(config),
            "geometry": self.parts.searched,
            "alignment": self.parts.alignment[1] if self.parts.alignment else "",
            "horizon": self.horizon,
            "iterations": self.cem.iterations,
            "weights": {name: of for name, (_, of) in self.parts.weights.items()},
            "arithmetic": arithmetic_here(device),
        }
        for name in ("record", "shortlist"):
            if not self.settings[name]:
                del self.settings[name]  # as before the setting existed

    @property
    def names(self) -> tuple[str, ...]:
        """Geometries that are evaluated, in the order of their counts in episodes."""
        return tuple(sorted(self.parts.weights))  # in the order of the manifest

    def evaluations(self) -> dict[str, int]:
        """Geometry -> candidates that it rolls out in one decision."""
        if self.config.planner == RANDOM:
            return {}
        found, searched = dict.fromkeys(self.names, 0), self.cem.samples * self.cem.iterations
        if self.config.planner in INSIDE:
            return found | dict.fromkeys(self.parts.aligned, searched)
        found[self.parts.searched] = searched
        if self.config.planner in ALIGNED:
            found |= dict.fromkeys(self._others, self.cem.keep)
        return found

    @property
    def _others(self) -> tuple[str, ...]:
        """Geometries that roll out the final population; the searched one has done so already."""
        return tuple(name for name in self.parts.aligned if name != self.parts.searched)

    def _iterations(self) -> int:
        """Number of populations that the evaluations allow."""
        c, left, models = self.config, self.config.evaluations, 1
        if c.planner in INSIDE:
            models = len(self.parts.aligned)
        elif c.planner in ALIGNED:
            left -= len(self._others) * c.kept
        if left < models * c.samples:
            raise DjepaError(
                f"{c.evaluations} evaluations are too few for {c.planner} with populations of "
                f"{c.samples}. Give at least {c.evaluations - left + models * c.samples}."
            )
        return left // (models * c.samples)

    def ahead(self, executed: int, replan: int) -> int:
        """Controls of a candidate after `executed` controls.

        A candidate is costed at its end. If this time receded with every decision, the planner
        would have no reason to arrive; so it is fixed until it is reached.
        """
        left = self.horizon - executed % self.horizon
        return left if self.config.shrink and left >= replan else self.horizon

    def decide(
        self,
        scene: Scene,
        now: list[Start],
        seeds: list[int],
        plans: Sequence[Array | None],
        horizon: int,
    ) -> list[Decision]:
        """One decision per episode, of candidates of `horizon` controls.

        `plans` (H, A) are the rests of the previous plans.

        Rounding of sums depends on the shape of a batch and on the number of threads. So on a CPU
        every episode is planned alone, by one thread, and on a GPU always in batches of 32, padded
        if needed: other episodes and their number do not change a bit.
        """
        if self.config.planner == RANDOM:
            return [self._random(seed) for seed in seeds]
        same_arithmetic(self.settings["arithmetic"], self.device)
        begin = plans if self.config.warm else [None] * len(plans)
        return self._batched(scene, now, seeds, begin, partial(self._plan, horizon))

    def pools(
        self, scene: Scene, now: list[Start], seeds: list[int], horizon: int
    ) -> list[tuple[Array, dict[str, Array]]]:
        """Final candidates of the search of `aligned` for every episode: (K, H, A), and their IDs,
        costs and last latents by name.
        """
        begin = [None] * len(now)
        return self._batched(scene, now, seeds, begin, partial(self._pools, horizon))

    def _batched(
        self,
        scene: Scene,
        now: list[Start],
        seeds: list[int],
        plans: Sequence[Array | None],
        work: Callable[[Sight, list[int], list[Array | None]], list[Any]],
    ) -> list[Any]:
        alone, found = self.device == "cpu", list[Any]()
        step, exact = 1 if alone else TOGETHER, arithmetic(torch.device(self.device), "float32")
        with threads_for(self.device), torch.inference_mode(), exact:
            for i in range(0, len(now), step):
                part = range(i, min(i + step, len(now)))
                rows = [*part, *[i] * (step - len(part))]
                sight = Sight(self.parts, scene, [now[row] for row in rows])
                given = [seeds[row] for row in rows], [plans[row] for row in rows]
                found += work(sight, *given)[: len(part)]
        return found

    def _search(
        self,
        horizon: int,
        seeds: list[int],
        plans: list[Array | None],
        cost: Callable[[Array], Array],
        **variant: Any,
    ) -> list[Run]:
        model = self.parts.model(self.parts.searched)
        first = self.config.spread * model.action_std.double().cpu().numpy()  # (A,)
        how = Variant(limit=self.limit, **variant)
        return self.cem.run(cost, horizon, first, seeds, plans, how)

    def _pools(
        self, horizon: int, sight: Sight, seeds: list[int], plans: list[Array | None]
    ) -> list[tuple[Array, dict[str, Array]]]:
        runs = self._search(horizon, seeds, plans, sight.remembered)
        pools = [run.pool() for run in runs]
        e = sight.evidence(np.stack([p.actions for p in pools]), np.stack([p.ids for p in pools]))
        of = {"ids": e.ids} | {COST + n: e.cost(n) for n in e.names}
        of |= {ENDS + n: x for n, x in e.latents.items()}
        of |= {GOAL + n: x for n, x in e.goals.items()}
        stored = {name: x.cpu().numpy() for name, x in of.items()}
        return [
            (p.actions, {name: x[i] for name, x in stored.items()}) for i, p in enumerate(pools)
        ]

    def _plan(
        self, horizon: int, sight: Sight, seeds: list[int], plans: list[Array | None]
    ) -> list[Decision]:
        """Search and choose by the configured planner."""
        c, parts = self.config, self.parts
        search = partial(self._search, horizon, seeds, plans)
        match c.planner:
            case "icem":
                carry = max(1, c.elites // 2)
                return self._cheapest(search(sight.native, colour=c.colour, carry=carry))
            case "mppi":
                cost = sight.logs({parts.searched: 1 / c.temperature})
                return _means(search(cost, temperature=1.0))
            case "aligned-mppi":
                return _means(search(sight.logs(parts.mixture()), temperature=1.0))
            case "aligned-cem":
                return self._cheapest(search(sight.scores, relative=True))
            case "aligned":
                return _chosen(sight, search(sight.remembered), c.record)
        return self._cheapest(search(sight.native))

    def _cheapest(self, runs: list[Run]) -> list[Decision]:
        """The candidate with the lowest cost of each search."""
        found = []
        for run in runs:
            candidate, controls = run.best()
            said = cheapest(run, self._scorer) if self.config.record else None
            found.append(Decision(controls, candidate, False, said))
        return found

    def _scorer(self, scores: tuple[float, ...]) -> Scorer:
        """The record of the scorer that costs the populations of a search."""
        if self.config.planner in INSIDE:
            return Scorer("aligned", scores, kind="aligned")
        return Scorer(self.parts.searched, scores)

    def _random(self, seed: int) -> Decision:
        shape = (self.horizon, self.actions)
        drawn = generator("random control", seed).uniform(-self.limit, self.limit, shape)
        return Decision(drawn.astype(np.float32), -1, False)


def _means(runs: list[Run]) -> list[Decision]:
    """The final mean of each search, which need not be a candidate."""
    return [Decision(run.mean.astype(np.float32), -1, False) for run in runs]


def _chosen(sight: Sight, runs: list[Run], recorded: bool) -> list[Decision]:
    """The alignment's choice among the final candidates of each search."""
    pools = [run.pool() for run in runs]
    e = sight.evidence(np.stack([p.actions for p in pools]), np.stack([p.ids for p in pools]))
    known = sight.parts.known
    d = known.decide(e)
    said: Sequence[DecisionRecord | None] = [None] * len(pools)
    if recorded:
        assert known.gate is not None  # required for a decision
        said = record(e, d, known.gate)
    found = zip(pools, d.position.tolist(), d.opened.tolist(), said, strict=True)
    return [Decision(p.actions[k], int(p.ids[k]), opened, of) for p, k, opened, of in found]
