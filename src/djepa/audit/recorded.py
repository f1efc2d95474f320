"""A geometry on recorded episodes, where nothing can be executed.

From a recorded frame, the goal is the frame H controls later. The candidates are the H controls
that were recorded and K - 1 segments from elsewhere in the data. Only the recorded one is known to
reach the goal. Others may too, so a geometry that ranks it second need not be wrong. The audit
reports how often the recorded one ranks first, and the error of predicted latents. It uses held-out
episodes only.

Legend: N starts, K candidates, H controls, B blocks of a stride, A action width, D latent.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from djepa.bank.read import Decisions
from djepa.errors import DjepaError
from djepa.evaluate.intervals import markdown_table, rate_of
from djepa.models.predict import encode_states, predict
from djepa.models.protocol import CONTEXT
from djepa.models.weights import load_geometry
from djepa.seeds import generator
from djepa.tasks.recorded import HORIZON, Recording
from djepa.tasks.task import Scene

STARTS, CANDIDATES = 128, 16
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RecordedQuality:
    """The result of one geometry."""

    name: str
    ranks: Ints  # (N,) of the recorded controls, 0 the first
    candidates: int
    errors: tuple[float, ...]  # (B,) mean squared latent error, in units of the latents' variance

    def column(self) -> dict[str, str]:
        """For a table."""
        first = rate_of(self.ranks == 0)
        found = {
            "starts": str(len(self.ranks)),
            "candidates": str(self.candidates),
            "recorded controls come first": first.percent(interval=True),
            "a random order would give": f"{100 / self.candidates:.1f} %",
            "their median rank": f"{np.median(self.ranks) + 1:.0f}",
        }
        marks = {"first": self.errors[0], "last": self.errors[-1]}
        return found | {f"error of the {n} block / variance": f"{x:.3f}" for n, x in marks.items()}


def audit_recorded(
    path: Path, geometries: tuple[str, ...], device: str = "cpu", starts: int = STARTS
) -> str:
    """A table of these geometries on a folder of recorded episodes."""
    recording, scene = Recording(path), Scene(str(path), "recorded")
    columns = []
    for name in geometries:
        model = load_geometry(name, device)
        if (model.config.actions, model.stride) != (
            recording.about.actions,
            recording.about.stride,
        ):
            raise DjepaError(
                f"{name} takes controls of {model.config.actions} numbers, {model.stride} between "
                f"two frames; {path} has {recording.about.actions}, and {recording.about.stride}."
            )
        decisions, own = hindsight(recording, starts)
        with torch.inference_mode():
            p = predict(model, scene, decisions, device=device)
            steps = recording.about.stride * np.arange(1, HORIZON + 1)
            seen = torch.from_numpy(decisions.state[:, None] + steps[None, :, None]).to(device)
            real = encode_states(model, scene, seen)  # (N, B, D)
            futures = p.futures[torch.arange(len(own)), torch.from_numpy(own)]
            errors = (futures - real).square().mean((0, 2)) / real.flatten(0, 1).var(0).mean()
        cost = p.cost.cpu().numpy()
        mine = cost[np.arange(len(own)), own][:, None]
        ranks = (cost < mine).sum(1) + ((cost == mine).sum(1) - 1)  # a tie is no success
        columns.append(RecordedQuality(name, ranks, cost.shape[1], tuple(errors.tolist())))
    names = [one.name for one in columns]
    return markdown_table("recorded", names, [one.column() for one in columns])


def hindsight(recording: Recording, starts: int) -> tuple[Decisions, Ints]:
    """Decisions whose goal was reached by recorded controls, and (N,) positions of these."""
    rng, stride = generator("hindsight"), recording.about.stride
    back, ahead = (CONTEXT - 1) * stride, HORIZON * stride
    inside = recording.starts(held_out=True) + back  # a whole segment is longer than both
    at = inside[np.linspace(0, len(inside) - 1, min(starts, len(inside))).astype(int)]
    others = rng.choice(inside, (len(at), CANDIDATES))
    own = rng.integers(CANDIDATES, size=len(at))
    others[np.arange(len(at)), own] = at
    segment = recording.controls[others[:, :, None] + np.arange(ahead)]  # (N, K, H, A)
    frames = at[:, None].astype(np.float64)
    context = frames[:, None] + stride * np.arange(1 - CONTEXT, 1)[None, :, None]
    return (
        Decisions(
            start_ids=np.arange(len(at)),
            identities=np.zeros((len(at), 32), np.uint8),
            state=frames,
            goal=frames + ahead,
            context=context,
            history=recording.controls[at[:, None] + np.arange(-back, 0)],
            candidate_ids=np.tile(np.arange(CANDIDATES), (len(at), 1)),
            actions=segment,
            action_hashes=np.zeros((*others.shape, 32), np.uint8),
        ),
        own,
    )
