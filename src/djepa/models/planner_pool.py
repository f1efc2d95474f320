"""Planner pools: candidates that a cross-entropy search leaves under a geometry's own cost.

Legend: N starts, S samples, H horizon, A action width, D latent.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from djepa.errors import DjepaError
from djepa.models.kinds import Model
from djepa.models.predict import encode_states
from djepa.models.protocol import CONTEXT, STRIDE, Geometry
from djepa.models.weights import find_weights, load_geometry, places, shipped, weights_hash
from djepa.pools import Pool
from djepa.pools.cem import CEM
from djepa.tasks.task import Scene
from djepa.worlds.starts import Start

PLANNER = "planner"
UNKNOWN_STD = 0.2  # of controls, for a geometry that does not know those it was trained on


class CEMProposer:
    """A `Proposer`: searches under the native cost of a geometry, start by start, in one thread.

    It travels to the workers of an engine as a name and a few numbers; each loads the weights once.
    Its inputs are starts: state, context, history and goal. There is no reference and no outcome
    among them.
    """

    name = PLANNER

    def __init__(
        self,
        geometry: str | Path,
        cem: CEM | None = None,
        spread: float = 1.0,
        horizon: int = 25,
        device: str = "cpu",
    ) -> None:
        """`geometry`: shipped weights by name, or a folder.

        `spread`: deviation of the first population, in units of that of the training controls.
        `device`: on another than the CPU whole blocks are searched at once, in this process; what
        is found there repeats on the same kind of device alone.
        """
        if not (np.isfinite(spread) and spread > 0):
            raise DjepaError(f"The spread must be positive and finite, not {spread!r}.")
        self.cem, self.spread, self.horizon = cem or CEM(), float(spread), horizon
        self.device, self.portable = device, device == "cpu"
        found = find_weights(geometry)  # shipped ones go by name, wherever they are
        self.where = found.name if found.parent in places() else str(found.resolve())
        self.weights = weights_hash(self.where)
        stride = int(getattr(_loaded(self.where, self.weights), "stride", STRIDE))
        if horizon < stride or horizon % stride:
            raise DjepaError(f"The horizon must be a multiple of {stride} controls, not {horizon}.")
        self.settings: Mapping[str, Any] = {
            "search": "cem",
            "geometry": _loaded(self.where, self.weights).name,
            "weights": self.weights,
            **asdict(self.cem),
            "spread": self.spread,
            "arithmetic": arithmetic_here(device),
        }

    @classmethod
    def of_source(
        cls, source: Mapping[str, Any], horizon: int, geometry: str | Path | None = None
    ) -> "CEMProposer":
        """The search that a bank's manifest describes, to make a block again.

        The weights are those at `geometry`, or the shipped ones with the recorded hash.
        """
        try:
            cem = CEM(**{name: source[name] for name in CEM.__dataclass_fields__})
            spread, weights, kind = source["spread"], source["weights"], source["geometry"]
        except (KeyError, TypeError):
            raise DjepaError(f"{dict(source)} does not describe a cross-entropy search.") from None
        places = shipped() if geometry is None else [geometry]
        for place in places:
            if weights_hash(place) == weights:
                return cls(place, cem, spread, horizon)
        where = "Not among the shipped weights" if geometry is None else f"Not at {geometry}"
        raise DjepaError(f"{where}: {kind} with SHA-256 {weights[:12]}. Give its folder.")

    def propose(self, scene: Scene, starts: list[Start], seeds: list[int]) -> list[Pool]:
        """One pool per start. Neither the batch nor the number of cores changes a bit.

        How floats add up depends on the shape of a batch and on the threads that share it, and an
        elite may hang on the last bit: so every start is searched alone, by one thread.
        """
        if (there := self.settings["arithmetic"]) != (here := arithmetic_here(self.device)):
            raise DjepaError(
                f"This worker computes with {here}, the driver with {there}: they do "
                "not agree to the last bit. Use machines of one kind."
            )
        model = _loaded(self.where, self.weights, self.device)
        how = (model, self.cem, self.spread, self.horizon, scene)
        if not self.portable:
            return search(*how, starts, seeds, self.device)
        with one_thread():
            return [
                search(*how, [start], [seed])[0] for start, seed in zip(starts, seeds, strict=True)
            ]


@torch.inference_mode()
def search(
    geometry: Geometry,
    cem: CEM,
    spread: float,
    horizon: int,
    scene: Scene,
    starts: list[Start],
    seeds: list[int],
    device: str | torch.device = "cpu",
) -> list[Pool]:
    """Pools of several starts at once; every population of all of them is costed in one call."""
    states = np.stack([np.concatenate([s.context, s.goal[None]]) for s in starts])
    z = encode_states(geometry, scene, torch.from_numpy(states).to(device))  # (N, 4, D)
    history = torch.from_numpy(np.stack([s.history for s in starts])).to(device)
    context, goal = z[:, :CONTEXT], z[:, CONTEXT]

    def cost(actions: Any) -> Any:
        futures = geometry.rollout(context, history, torch.from_numpy(actions).to(device))
        return geometry.native_cost(futures, goal).float().cpu().numpy()

    return cem.search(cost, horizon, spread * training_std(geometry, history.shape[-1]), seeds)


def training_std(geometry: Geometry, width: int) -> Any:
    """(A,) deviation of the controls a geometry was trained on, where it knows them."""
    known = getattr(geometry, "action_std", None)
    if isinstance(known, Tensor):
        return known.double().cpu().numpy()
    return np.full(width, UNKNOWN_STD)


def arithmetic_here(device: str = "cpu") -> str:
    """What the last bit of a sum depends on beside its terms, as far as torch tells."""
    if device != "cpu":
        return f"torch {torch.__version__}, {torch.cuda.get_device_name(device)}"
    return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}"


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with a single thread; afterwards with as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@lru_cache(maxsize=2)
def _loaded(where: str, weights: str, device: str = "cpu") -> Model:
    """Weights, once per process; refused if they are not those of the driver."""
    if weights_hash(where) != weights:
        raise DjepaError(
            f"The weights '{where}' of this worker are not those of the driver. "
            "Install the same version, or put the same folder in the same place."
        )
    return load_geometry(where, device)
