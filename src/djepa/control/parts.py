"""The models and the alignment of a planner, and their scores of candidates.

They are sent to workers as names and hashes; each worker loads them once.

Legend: N episodes, K candidates, H controls of a candidate, A action width, S numbers in a state.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from djepa.align.fit import Alignment, Decision
from djepa.align.gates import NEVER
from djepa.align.store import alignment_hash, load_alignment
from djepa.artefacts.store import locate
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence
from djepa.evidence.logs import LogMixture
from djepa.models.fast import Predicted
from djepa.models.planner_pool import loaded, predictor
from djepa.models.predict import encode_states
from djepa.models.weights import geometry_name, load_geometry, shipped, weights_hash
from djepa.tasks.task import Scene, get_task
from djepa.worlds.starts import Start

Array = npt.NDArray[Any]
SUITE = Path(__file__).parents[1] / "suites" / "pusht" / "planner"  # alignments of the package
TINY = 1e-30  # costs below count as this before the logarithm


@dataclass(frozen=True)
class Parts:
    """Names and hashes of geometries and alignment, found and checked but not yet loaded."""

    weights: dict[str, tuple[str, str]]  # geometry -> where, hash; the search uses the first
    alignment: tuple[str, str] | None  # folder, hash
    device: str

    @classmethod
    def find(cls, world: str, geometry: str, folder: str | None, device: str) -> "Parts":
        """The geometry whose cost the search uses, and those of the alignment.

        `folder`: of the alignment, if any.
        """
        own = [f"{world}-tdjepa", f"{world}-dinowm", "tdjepa"]
        place = geometry or next(name for name in own if name in shipped())
        load_geometry(place, world=get_task(world).name)  # refuses weights of another world
        weights = {geometry_name(place): (place, weights_hash(place))}
        if folder is None:
            return cls(weights, None, device)
        known = load_alignment(locate(folder))
        for name in known.config.geometries:
            if name not in weights:
                weights[name] = _matching(name, known.weights.get(name, ""), world)
        for name, (_, of) in weights.items():
            if known.weights.get(name, of) != of:
                raise DjepaError(
                    f"The alignment {folder} was fitted with other weights of {name} "
                    f"({known.weights[name][:12]}, not {of[:12]}). Fit again, or give --geometry "
                    "those."
                )
        return cls(weights, (folder, alignment_hash(locate(folder))), device)

    @property
    def searched(self) -> str:
        """Name of the geometry whose cost the search uses."""
        return next(iter(self.weights))

    @property
    def aligned(self) -> tuple[str, ...]:
        """Geometries that the alignment reads."""
        return self.known.config.geometries

    @property
    def known(self) -> Alignment:
        """The alignment, loaded."""
        assert self.alignment is not None
        return _alignment(*self.alignment, self.device)

    def model(self, name: str) -> Any:
        """A geometry, loaded."""
        return loaded(*self.weights[name], self.device)

    def mixture(self) -> dict[str, float]:
        """Weights of log costs alone: density and ranks compare only within one population."""
        fusion = None if self.known.report is None else self.known.report.fusion
        if not isinstance(fusion, LogMixture) or fusion.ranked:
            raise DjepaError(
                "MPPI needs an alignment whose base score mixes log costs: fit with --preset logs."
            )
        return dict(zip(fusion.names, fusion.weights, strict=False))

    def check_parts_of_pools(self) -> None:
        """Refuse an alignment whose order of candidates depends on other candidates of the pool.

        A mixture of log costs does not; ranks, pool density and an operator that may act do.
        """
        known, gate = self.known, self.known.gate
        fusion, c = None if known.report is None else known.report.fusion, known.config
        shut = (gate is not None and gate.threshold == NEVER) or not (c.updates or c.epochs)
        if not isinstance(fusion, LogMixture) or fusion.ranked or fusion.density or not shut:
            raise DjepaError(
                "A shortlist needs an alignment that mixes log costs alone, behind a gate that "
                "never opens or without an operator: ranks, pool density and the operator of this "
                "one depend on the candidates that a shortlist leaves out."
            )

    def encoder(self, name: str, scene: Scene) -> Callable[[Array], Tensor] | None:
        """On a CPU, an encoder with a cache of frames: most occurred in the previous decision."""
        if self.device != "cpu":
            return None

        def encode(states: Array) -> Tensor:
            flat = states.reshape(-1, states.shape[-1])
            found = [_latent(*self.weights[name], scene, state.tobytes()) for state in flat]
            return torch.stack(found).view(*states.shape[:-1], -1)

        return encode


class Sight:
    """Scores by the parts of a planner for (N, K, H, A) candidates of N episodes now."""

    def __init__(self, parts: Parts, scene: Scene, now: list[Start]) -> None:
        self.parts = parts
        self._kept: list[Predicted] = []  # from every call of `remembered`
        self._sees = {
            name: predictor(parts.model(name), scene, now, parts.device, parts.encoder(name, scene))
            for name in parts.weights
        }

    def native(self, actions: Array) -> Array:
        """(N, K) native cost of the geometry of the search."""
        return np.asarray(self._sees[self.parts.searched](actions).cost.cpu().numpy())

    def remembered(self, actions: Array) -> Array:
        """`native`, with predictions kept for `evidence`, which then need not predict again."""
        said = self._sees[self.parts.searched](actions)
        self._kept.append(Predicted(said.cost, said.futures[:, :, -1:], said.goal))
        return np.asarray(said.cost.cpu().numpy())

    def logs(self, weights: dict[str, float]) -> Callable[[Array], Array]:
        """(N, K) Σ w log c: a cost whose differences mean the same in every population."""

        def cost(actions: Array) -> Array:
            parts = [
                w * self._sees[name](actions).cost.double().clamp(min=TINY).log()
                for name, w in weights.items()
            ]
            return np.asarray(torch.stack(parts).sum(0).cpu().numpy())

        return cost

    def scores(self, actions: Array) -> Array:
        """(N, K) final scores of the alignment, which compare only within this population."""
        ids = np.tile(np.arange(actions.shape[1]), (len(actions), 1))
        return np.asarray(self.decide(actions, ids).final.cpu().numpy())

    def decide(self, actions: Array, ids: Array) -> Decision:
        """The alignment's decision."""
        return self.parts.known.decide(self.evidence(actions, ids))

    def evidence(self, actions: Array, ids: Array) -> Evidence:
        """The alignment's input; latents in float16, as banks store them."""
        known, costs, ends, goals = self.parts.known, {}, {}, {}
        for name in self.parts.aligned:
            if name == self.parts.searched and self._kept:
                costs[name], futures, goal = self._found(ids)
            else:
                costs[name], futures, goal = self._sees[name](actions)
            if name in known.config.latents:
                ends[name], goals[name] = futures[:, :, -1].half(), goal.half()
        return Evidence.from_arrays(
            start_ids=range(len(actions)),
            candidate_ids=torch.from_numpy(ids).to(self.parts.device),
            costs=costs,
            latents=ends,
            goals=goals,
        )

    def _found(self, ids: Array) -> Predicted:
        """Kept predictions of candidates: sample k of population i has ID i · S + k."""
        at = torch.from_numpy(ids).to(self.parts.device)
        cost = torch.cat([of.cost for of in self._kept], 1).gather(1, at)
        ends = torch.cat([of.futures for of in self._kept], 1)  # (N, i · S, 1, D)
        chosen = ends.gather(1, at[..., None, None].expand(-1, -1, *ends.shape[2:]))
        return Predicted(cost, chosen, self._kept[0].goal)


def shipped_alignment(world: str, name: str) -> str:
    """Folder of an alignment in the package."""
    if get_task(world).name != "push":
        raise DjepaError(
            f"The package has no alignment for {world}. Fit one (djepa collect, predict, fit) and "
            "give --alignment its folder."
        )
    return str(SUITE / name)


def _matching(name: str, of: str, world: str) -> tuple[str, str]:
    """Weights of that geometry with that hash, among the named ones."""
    same = [place for place in shipped() if of and weights_hash(place) == of]
    for place in same or ([] if of else [name, f"{world}-{name}"]):
        if place in shipped() and geometry_name(place) == name:
            return place, weights_hash(place)
    if same:
        raise DjepaError(
            f"The alignment reads '{name}', one view or one part of the cost of {same[0]}. Closed "
            "loop sees whole models: fit on evidence of whole models (djepa predict, djepa fit)."
        )
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
    """An alignment, once per process; refused if it is not that of the driver."""
    if alignment_hash(locate(folder)) != of:
        raise DjepaError(f"The alignment {folder} of this worker is not that of the driver.")
    found = load_alignment(locate(folder))
    if found.operator is not None:
        found.operator.to(device)
    return found
