"""What plans an episode: a search under a geometry, and who chooses among what it leaves.

    random        controls drawn at random; no model
    native-cem    cross-entropy search under one geometry; its cheapest candidate
    icem          the same with coloured noise, and the best carried from population to population
    mppi          candidates weighed by the geometry's log cost; their mean is executed
    aligned       the search of native-cem; the alignment chooses among its final population
    aligned-cem   the alignment scores every population: CEM compares within one alone
    aligned-mppi  mppi by the mixture's log cost, whose magnitudes were fitted to outcomes

All get the same number of model evaluations a decision: one is one candidate rolled out by one
geometry. There is no place for an outcome in here.

Legend: N episodes, K candidates, H controls of a candidate, A action width, M geometries.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from djepa.align.fit import Alignment
from djepa.align.store import alignment_hash, load_alignment
from djepa.checks import check_int
from djepa.errors import DjepaError, check_name
from djepa.evidence.evidence import Evidence
from djepa.evidence.logs import LogMixture
from djepa.models.planner_pool import arithmetic_here, loaded, predictor
from djepa.models.precision import arithmetic
from djepa.models.predict import encode_states
from djepa.models.protocol import STRIDE
from djepa.models.weights import geometry_name, shipped, weights_hash
from djepa.pools.cem import CEM, Run, Variant
from djepa.seeds import generator
from djepa.tasks.task import Scene, get_task
from djepa.threads import one_thread
from djepa.worlds.starts import Start

Array = npt.NDArray[Any]
RANDOM = "random"
ALIGNED = ("aligned", "aligned-cem", "aligned-mppi")
PLANNERS = (RANDOM, "native-cem", "icem", "mppi", *ALIGNED)
SUITE = Path(__file__).parents[1] / "suites" / "pusht" / "planner"
SHIPPED = {"aligned-mppi": "log-costs"}  # alignment of the package; the others take d-jepa
TOGETHER = 32  # episodes of a batch on a GPU
TINY = 1e-30  # costs below count as this before the logarithm


@dataclass(frozen=True)
class PlannerConfig:
    """How decisions are made. What is 0 or empty is the world's own."""

    planner: str = "aligned"
    geometry: str = ""  # weights whose cost the search goes by
    alignment: str = ""  # folder
    horizon: int = 0  # controls of a candidate
    shrink: bool = True  # candidates end when those of the first decision would have; then anew
    evaluations: int = 512  # of models, at most, a decision
    samples: int = 64
    elites: int = 8
    spread: float = 1.0  # of the first population, in deviations of the training controls
    warm: bool = True  # a search begins with what is left of the plan before
    colour: float = 2.0  # of icem's noise
    temperature: float = 0.1  # of mppi's weights, in units of the geometry's log cost

    def __post_init__(self) -> None:
        check_name("planner", self.planner, PLANNERS)
        check_int("evaluations", self.evaluations, 1)
        check_int("samples", self.samples, 2)
        if not (np.isfinite(self.spread) and self.spread > 0):
            raise DjepaError(f"The spread must be positive and finite, not {self.spread!r}.")


class Decision(NamedTuple):
    """What one episode executes next."""

    controls: Array  # (H, A) float32
    candidate: int  # ID; -1 where what is executed was no candidate
    opened: bool  # the alignment's gate was open


class Planner:
    """Travels to workers as names and numbers; each of them loads the weights once."""

    def __init__(self, config: PlannerConfig, world: str, device: str = "cpu") -> None:
        self.config, self.world, self.device = config, world, device
        task = get_task(world)
        self.horizon = config.horizon or task.horizon
        self.limit, self.actions = task.limit, task.actions
        self.weights: dict[str, tuple[str, str]] = {}  # geometry -> where, hash
        self.search, self.aligned_by = "", ""
        if config.planner == RANDOM:
            self.settings: dict[str, Any] = {"planner": RANDOM, "limit": self.limit}
            return
        self._find_weights()
        stride = int(getattr(self._model(self.search), "stride", STRIDE))
        if self.horizon < stride or self.horizon % stride:
            raise DjepaError(
                f"The horizon must be a multiple of {stride} controls, not {self.horizon}."
            )
        self.cem = CEM(config.samples, self._iterations(), config.elites, config.samples - 1)
        self.settings = {
            **asdict(config),
            "geometry": self.search,
            "alignment": alignment_hash(Path(self.aligned_by)) if self.aligned_by else "",
            "horizon": self.horizon,
            "iterations": self.cem.iterations,
            "weights": {name: of for name, (_, of) in self.weights.items()},
            "arithmetic": arithmetic_here(device),
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Geometries that are evaluated."""
        return tuple(self.weights)

    def evaluations(self) -> dict[str, int]:
        """Geometry -> candidates that it rolls out in one decision."""
        if self.config.planner == RANDOM:
            return {}
        searched, M = self.cem.samples * self.cem.iterations, dict.fromkeys(self.weights, 0)
        if self.config.planner in ("aligned-cem", "aligned-mppi"):
            return dict.fromkeys(self._known().config.geometries, searched)
        if self.config.planner == "aligned":
            M |= dict.fromkeys(self._known().config.geometries, self.cem.keep)
        return M | {self.search: M[self.search] + searched}

    def ahead(self, executed: int, replan: int) -> int:
        """Controls of a candidate after so many were executed.

        The cost of a candidate is that of where it ends. If that moment moves on with every decision, nothing
        ever makes the planner arrive; so it stays, until it is reached.
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

        `plans` (H, A) are what is left of the latest ones.

        How floats add up depends on the shape of a batch and on the threads that share it. So on a
        CPU every episode is planned alone, by one thread, and on a GPU always 32 together, those
        that are missing filled in: neither the others nor their number change a bit.
        """
        if self.config.planner == RANDOM:
            return [self._random(seed) for seed in seeds]
        if (there := self.settings["arithmetic"]) != (here := arithmetic_here(self.device)):
            raise DjepaError(
                f"This worker computes with {here}, the driver with {there}: they do "
                "not agree to the last bit. Use machines of one kind."
            )
        alone, found = self.device == "cpu", list[Decision]()
        step = 1 if alone else TOGETHER
        begin = plans if self.config.warm else [None] * len(plans)
        exact = arithmetic(torch.device(self.device), "float32")
        with one_thread() if alone else nullcontext(), torch.inference_mode(), exact:
            for i in range(0, len(now), step):
                part = [*range(i, min(i + step, len(now)))]
                rows = part + [i] * (step - len(part))  # filled up with copies of the first
                given = [[of[row] for row in rows] for of in (now, seeds, begin)]
                found += self._plan(scene, horizon, *given)[: len(part)]
        return found

    def _plan(
        self,
        scene: Scene,
        horizon: int,
        now: list[Start],
        seeds: list[int],
        plans: list[Array | None],
    ) -> list[Decision]:
        kind, device = self.config.planner, self.device
        names = self._known().config.geometries if kind in ALIGNED else (self.search,)
        sees = {
            name: predictor(self._model(name), scene, now, device, self._encoder(name, scene))
            for name in dict.fromkeys((*names, self.search))
        }

        def native(actions: Array) -> Array:
            return np.asarray(sees[self.search](actions).cost.cpu().numpy())

        def logs(actions: Array) -> Array:
            costs = [sees[name](actions).cost.double().clamp(min=TINY).log() for name in names]
            weights = self._mixture() if kind in ALIGNED else (1.0,)
            return (
                sum((w * c for w, c in zip(weights, costs, strict=True)), 0 * costs[0])
                .cpu()
                .numpy()
            )

        def aligned(actions: Array, ids: Array | None = None) -> tuple[Tensor, Tensor, Tensor]:
            given = (
                np.arange(actions.shape[1])[None].repeat(len(actions), 0) if ids is None else ids
            )
            d = self._known().decide(self._evidence(sees, names, actions, given))
            return d.final, d.position, d.opened

        variant = Variant(limit=self.limit)
        first = self.config.spread * self._model(self.search).action_std.double().cpu().numpy()

        def run(cost: Any, **changes: Any) -> list[Run]:
            how = Variant(**{**asdict(variant), **changes})
            return self.cem.run(cost, horizon, first, seeds, plans, how)

        if kind == "native-cem":
            return [_cheapest(r) for r in run(native)]
        if kind == "icem":
            carry = max(1, self.config.elites // 2)
            return [_cheapest(r) for r in run(native, colour=self.config.colour, carry=carry)]
        if kind in ("mppi", "aligned-mppi"):
            temperature = self.config.temperature if kind == "mppi" else 1.0
            runs = run(logs, temperature=temperature)
            return [Decision(r.mean.astype(np.float32), -1, False) for r in runs]
        if kind == "aligned-cem":
            runs = run(lambda actions: aligned(actions)[0].cpu().numpy(), relative=True)
            return [_cheapest(r) for r in runs]
        pools = [r.pool() for r in run(native)]
        stacked = np.stack([p.actions for p in pools]), np.stack([p.ids for p in pools])
        _, at, opened = (x.tolist() for x in aligned(*stacked))
        return [
            Decision(p.actions[k], int(p.ids[k]), bool(o))
            for p, k, o in zip(pools, at, opened, strict=True)
        ]

    def _evidence(
        self, sees: dict[str, Any], names: Sequence[str], actions: Array, ids: Array
    ) -> Evidence:
        """Of final latents in float16, as banks store them."""
        costs, ends, goals = {}, {}, {}
        for name in names:
            costs[name], futures, goal = sees[name](actions)
            if name in self._known().config.latents:
                ends[name], goals[name] = futures[:, :, -1].half(), goal.half()
        return Evidence.from_arrays(
            start_ids=range(len(actions)),
            candidate_ids=torch.from_numpy(ids).to(self.device),
            costs=costs,
            latents=ends,
            goals=goals,
        )

    def _random(self, seed: int) -> Decision:
        drawn = generator("random control", seed).uniform(
            -self.limit, self.limit, (self.horizon, self.actions)
        )
        return Decision(drawn.astype(np.float32), -1, False)

    def _iterations(self) -> int:
        """As many populations as the evaluations allow."""
        c, left, M = self.config, self.config.evaluations, 1
        if c.planner in ("aligned-cem", "aligned-mppi"):
            M = len(self._known().config.geometries)
        elif c.planner == "aligned":
            left -= len(self._known().config.geometries) * (c.samples - 1)
        if left < M * c.samples:
            raise DjepaError(
                f"{c.evaluations} evaluations are too few for {c.planner} with populations of "
                f"{c.samples}. Give at least {c.evaluations - left + M * c.samples}."
            )
        return left // (M * c.samples)

    def _find_weights(self) -> None:
        """The geometry that is searched under, and those that the alignment was fitted with."""
        own = [f"{self.world}-tdjepa", f"{self.world}-dinowm", "tdjepa"]
        place = self.config.geometry or next(name for name in own if name in shipped())
        self.search = geometry_name(place)
        self.weights[self.search] = (place, weights_hash(place))
        loaded(*self.weights[self.search])  # strictly
        _same_world(place, self.world)
        if self.config.planner not in ALIGNED:
            return
        self.aligned_by = self.config.alignment or self._shipped_alignment()
        known = self._known()
        for name in known.config.geometries:
            if name != self.search:
                self.weights[name] = _matching(name, known.weights.get(name, ""), self.world)
        for name, (_, of) in self.weights.items():
            if known.weights.get(name, of) != of:
                raise DjepaError(
                    f"The alignment {self.aligned_by} was fitted with other weights of {name} "
                    f"({known.weights[name][:12]}, not {of[:12]}). Fit again, or give --geometry "
                    "those."
                )

    def _shipped_alignment(self) -> str:
        if self.world != "push":
            raise DjepaError(
                f"The package has no alignment for {self.world}. Fit one (djepa fit, or djepa "
                f"study {self.world}) and give --alignment its folder."
            )
        return str(SUITE / SHIPPED.get(self.config.planner, "d-jepa"))

    def _encoder(self, name: str, scene: Scene) -> Callable[[Array], Tensor] | None:
        """On a CPU every frame is encoded once, alone: most were seen in the decision before."""
        if self.device != "cpu":
            return None

        def encode(states: Array) -> Tensor:
            flat = states.reshape(-1, states.shape[-1])
            found = [_latent(*self.weights[name], scene, state.tobytes()) for state in flat]
            return torch.stack(found).view(*states.shape[:-1], -1)

        return encode

    def _model(self, name: str) -> Any:
        return loaded(*self.weights[name], self.device)

    def _known(self) -> Alignment:
        folder = Path(self.aligned_by)
        return _alignment(str(folder), alignment_hash(folder), self.device)

    def _mixture(self) -> tuple[float, ...]:
        """Weights of log costs; density and ranks have no magnitude beyond one population."""
        report = self._known().report
        if report is None or not isinstance(report.fusion, LogMixture) or report.fusion.ranked:
            raise DjepaError(
                f"{self.config.planner} needs an alignment whose base score mixes log costs: fit "
                "with --preset logs."
            )
        weights = dict(zip(report.fusion.names, report.fusion.weights, strict=False))
        return tuple(weights.get(name, 0.0) for name in self._known().config.geometries)


def _cheapest(run: Run) -> Decision:
    candidate, controls = run.best()
    return Decision(controls, candidate, False)


def _same_world(place: str, world: str) -> None:
    from djepa.models.weights import load_geometry

    load_geometry(place, world=get_task(world).name)


def _matching(name: str, of: str, world: str) -> tuple[str, str]:
    """Weights of that geometry with that hash, among those that go by name."""
    for place in shipped():
        if weights_hash(place) == of or (not of and place in (name, f"{world}-{name}")):
            return place, weights_hash(place)
    raise DjepaError(
        f"The alignment was fitted with weights {of[:12]} of {name}, and none of those that go by "
        "name have this hash (djepa weights lists them; DJEPA_WEIGHTS adds folders). Fit again."
    )


@lru_cache(maxsize=1024)
def _latent(where: str, of: str, scene: Scene, state: bytes) -> Tensor:
    """(D,) the latent of one state."""
    given = torch.frombuffer(bytearray(state), dtype=torch.float64)
    return encode_states(loaded(where, of), scene, given[None])[0]


@lru_cache(maxsize=8)
def _alignment(folder: str, of: str, device: str) -> Alignment:
    """An alignment, once per process."""
    found = load_alignment(Path(folder))
    if found.operator is not None:
        found.operator.to(device)
    return found
