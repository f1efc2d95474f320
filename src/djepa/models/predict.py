"""What a geometry believes of a bank's candidates: label-free evidence, block by block.

Legend: N starts, K candidates, B blocks of five controls, D latent.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from djepa.bank.read import Decisions
from djepa.models.protocol import Geometry
from djepa.worlds.draw import Appearance, draw_push
from djepa.worlds.shapes import Shape

PLAIN = Appearance(marker="none")  # a goal is a frame of its own, not a mark in every frame


@dataclass(frozen=True, eq=False)
class Prediction:
    """Evidence of one geometry."""

    futures: Tensor  # (N, K, B, D)
    goal: Tensor  # (N, D)
    cost: Tensor  # (N, K) float32, from unrounded latents


def observe(shape: Shape, states: Tensor, image: int) -> tuple[Tensor, Tensor]:
    """States (..., 10) -> frames (..., image, image, 3) and proprioception (..., 4)."""
    frames = draw_push(shape, states.reshape(-1, 10), image, appearance=PLAIN)
    proprio = torch.cat([states[..., 0:2], states[..., 5:7]], dim=-1).float()
    return frames.view(*states.shape[:-1], image, image, 3), proprio


def encode_states(geometry: Geometry, shape: Shape, states: Tensor, batch: int = 0) -> Tensor:
    """Latents (..., D) of drawn states (..., 10), at most `batch` frames at a time.

    By default as many as suit the device: on a CPU what fits its caches, a third faster than 1,024.
    """
    flat = states.reshape(-1, states.shape[-1])
    batch = batch or (4096 if states.is_cuda else 32)
    parts = [geometry.encode(*observe(shape, part, geometry.image)) for part in flat.split(batch)]
    return torch.cat(parts).view(*states.shape[:-1], -1)


def predict(
    geometry: Geometry,
    shape: Shape,
    decisions: Decisions,
    rows: slice | None = None,
    device: str | torch.device = "cpu",
) -> Prediction:
    """Encode the context and the goal, roll out every candidate, cost every future."""
    rows = rows or slice(None)

    def tensor(array: np.ndarray, kind: type = np.float32) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array[rows], dtype=kind)).to(device)

    context = encode_states(geometry, shape, tensor(decisions.context, np.float64))
    goal = encode_states(geometry, shape, tensor(decisions.goal, np.float64))
    futures = geometry.rollout(context, tensor(decisions.history), tensor(decisions.actions))
    return Prediction(futures, goal, geometry.native_cost(futures, goal).float())
