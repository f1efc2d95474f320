"""Candidate pools by a geometry's native cost: from a search, or retained from a drawn pool.

Legend: N starts, S samples, H horizon, A action width, D latent.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from djepa.errors import DjepaError
from djepa.models.fast import Predicted
from djepa.models.kinds import Model
from djepa.models.predict import encode_states
from djepa.models.protocol import CONTEXT, STRIDE, Geometry
from djepa.models.source import open_geometry, source_hash, source_place
from djepa.models.vjepa2 import VJEPA2AC
from djepa.models.weights import shipped
from djepa.pools import Pool, Retention, retain_by_cost
from djepa.pools.cem import CEM, FLOOR, Cost
from djepa.rollout.alike import arithmetic_here, same_arithmetic
from djepa.tasks.task import Scene
from djepa.threads import threads_for
from djepa.worlds.starts import Start

PLANNER = "planner"
RETAINED = "pusht-confirmation"  # the profile of which a part is retained


class _CostProposer(ABC):
    """A `Proposer` that uses the native cost of a geometry, start by start, in one thread.

    It travels to the workers of an engine as a name and a few numbers; each loads the weights once.
    Its inputs are starts (state, context, history and goal) and, for a retention, the drawn
    candidates. There is no reference and no outcome among them.
    """

    name: str
    search: str  # what it does, as the manifest names it

    def __init__(
        self, geometry: str | Path, settings: Mapping[str, Any], horizon: int, device: str
    ) -> None:
        """`geometry`: shipped weights by name, a folder, or V-JEPA 2-AC's file (source.py).

        `device`: on another than the CPU whole blocks are costed at once, in this process; what
        is found there repeats on the same kind of device alone.
        """
        self.horizon, self.device, self.portable = horizon, device, device == "cpu"
        self.where = source_place(geometry)  # shipped ones go by name, wherever they are
        self.weights = source_hash(self.where)
        stride = int(getattr(loaded(self.where, self.weights), "stride", STRIDE))
        if horizon < stride or horizon % stride:
            raise DjepaError(f"The horizon must be a multiple of {stride} controls, not {horizon}.")
        self.settings: Mapping[str, Any] = {
            "search": self.search,
            "geometry": loaded(self.where, self.weights).name,
            "weights": self.weights,
            **settings,
            "arithmetic": arithmetic_here(device),
        }

    def propose(
        self, scene: Scene, starts: list[Start], seeds: list[int], drawn: Sequence[Pool] = ()
    ) -> list[Pool]:
        """One pool per start, bit-identical for any batch and number of cores.

        The rounding of sums depends on batch shape and threads, and can change the order of two
        candidates. So one thread computes the costs of every start alone.
        """
        same_arithmetic(self.settings["arithmetic"], self.device)
        model = loaded(self.where, self.weights, self.device)
        step, pools = 1 if self.portable else len(starts), list[Pool]()
        with threads_for(self.device):
            for i in range(0, len(starts), step):
                part = slice(i, i + step)
                cost = native_costs(model, scene, starts[part], self.device)
                pools += self._pools(model, cost, seeds[part], drawn[part])
        return pools

    @abstractmethod
    def _pools(
        self, model: Model | VJEPA2AC, cost: Cost, seeds: list[int], drawn: Sequence[Pool]
    ) -> list[Pool]:
        """One pool per start, under this cost; `drawn`: the candidates of the profile."""


class CEMProposer(_CostProposer):
    """Planner pools: the final population of a cross-entropy search."""

    name, search = PLANNER, "cem"

    def __init__(
        self,
        geometry: str | Path,
        cem: CEM | None = None,
        spread: float = 1.0,
        horizon: int = 25,
        device: str = "cpu",
        axes: Sequence[float] = (),
    ) -> None:
        """`spread`: deviation of the first population, in units of that of the training controls.

        `axes`: further factors of it, one an axis; an axis with 0 is not searched: it keeps the
        least deviation a search has. The others as for `_CostProposer`.
        """
        if not (np.isfinite(spread) and spread > 0):
            raise DjepaError(f"The spread must be positive and finite, not {spread!r}.")
        self.cem, self.spread, self.axes = cem or CEM(), float(spread), tuple(axes)
        settings = {**asdict(self.cem), "spread": self.spread}
        settings |= {"axes": [*self.axes]} if self.axes else {}
        super().__init__(geometry, settings, horizon, device)

    def _pools(
        self, model: Model | VJEPA2AC, cost: Cost, seeds: list[int], drawn: Sequence[Pool]
    ) -> list[Pool]:
        first = self.spread * model.action_std.double().cpu().numpy()  # (A,)
        if self.axes:
            first = np.maximum(first * self.axes, FLOOR)
        return self.cem.search(cost, self.horizon, first, seeds)


class RetainingProposer(_CostProposer):
    """The paper's PushT pools: candidates drawn around a reference, then retained by native cost.

    Only these are executed; retention reads no outcome.
    """

    name, search = RETAINED, "retention"

    def __init__(
        self,
        geometry: str | Path = "tdjepa",
        retention: Retention | None = None,
        horizon: int = 25,
        device: str = "cpu",
    ) -> None:
        self.retention = retention or Retention()
        super().__init__(geometry, asdict(self.retention), horizon, device)

    def _pools(
        self, model: Model | VJEPA2AC, cost: Cost, seeds: list[int], drawn: Sequence[Pool]
    ) -> list[Pool]:
        if not drawn:
            raise DjepaError(
                "Nothing was drawn to retain candidates of; name a profile that draws."
            )
        costs = np.asarray(cost(np.stack([pool.actions for pool in drawn]).astype(np.float32)))
        how = self.retention
        return [
            retain_by_cost(pool, row, how.keep, how.top)
            for pool, row in zip(drawn, costs, strict=True)
        ]


def proposer_of(
    source: Mapping[str, Any], horizon: int, geometry: str | Path | None = None
) -> CEMProposer | RetainingProposer:
    """The proposer that a bank's manifest describes, to make a block again.

    The weights are those at `geometry`, or the shipped ones with the recorded hash.
    """
    try:
        weights, kind = source["weights"], source["geometry"]
        if source["search"] == RetainingProposer.search:
            make: Callable[..., CEMProposer | RetainingProposer] = partial(
                RetainingProposer, retention=_fields(Retention, source)
            )
        else:
            make = partial(
                CEMProposer,
                cem=_fields(CEM, source),
                spread=source["spread"],
                axes=source.get("axes", ()),
            )
    except (KeyError, TypeError):
        raise DjepaError(f"{dict(source)} describes neither a search nor a retention.") from None
    for place in shipped() if geometry is None else [geometry]:
        if source_hash(place) == weights:
            return make(place, horizon=horizon)
    where = "Not among the shipped weights" if geometry is None else f"Not at {geometry}"
    raise DjepaError(f"{where}: {kind} with SHA-256 {weights[:12]}. Give its folder.")


def _fields(kind: type[Any], source: Mapping[str, Any]) -> Any:
    return kind(**{name: source[name] for name in kind.__dataclass_fields__})


@torch.inference_mode()
def predictor(
    geometry: Geometry,
    scene: Scene,
    starts: list[Start],
    device: str | torch.device = "cpu",
    encode: Callable[[Any], Tensor] | None = None,
) -> Callable[[Any], Predicted]:
    """What a geometry predicts of (N, S, H, A) float32 candidates of several starts.

    Contexts and goals are encoded once; by `encode`, (N, 4, S) states -> (N, 4, D), if given.
    """
    states = np.stack([np.concatenate([s.context, s.goal[None]]) for s in starts])
    if encode is None:
        z = encode_states(geometry, scene, torch.from_numpy(states).to(device))  # (N, 4, D)
    else:
        z = encode(states)
    history = torch.from_numpy(np.stack([s.history for s in starts])).to(device)
    context, goal = z[:, :CONTEXT], z[:, CONTEXT]

    @torch.inference_mode()
    def predict(actions: Any) -> Predicted:
        futures = geometry.rollout(context, history, torch.from_numpy(actions).to(device))
        return Predicted(geometry.native_cost(futures, goal).float(), futures, goal)

    return predict


def native_costs(
    geometry: Geometry, scene: Scene, starts: list[Start], device: str | torch.device = "cpu"
) -> Cost:
    """The native cost of candidates of several starts: (N, S, H, A) float32 -> (N, S)."""
    predict = predictor(geometry, scene, starts, device)
    return lambda actions: predict(actions).cost.cpu().numpy()


@lru_cache(maxsize=8)
def loaded(where: str, weights: str, device: str = "cpu") -> Model | VJEPA2AC:
    """Weights, once per process; refused if they are not those of the driver."""
    if source_hash(where) != weights:
        raise DjepaError(
            f"The weights '{where}' of this worker are not those of the driver. "
            "Install the same version, or put the same folder in the same place."
        )
    return open_geometry(where, device)
