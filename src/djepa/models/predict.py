"""What a geometry predicts of a bank's candidates: label-free evidence, block by block.

Legend: N starts, K candidates, B blocks of a stride of controls, D latent.
"""

import numpy as np
import torch
from torch import Tensor

from djepa.bank.read import Decisions
from djepa.models.fast import Predicted
from djepa.models.precision import arithmetic
from djepa.models.protocol import Geometry
from djepa.tasks.task import Scene


def encode_states(geometry: Geometry, scene: Scene, states: Tensor, batch: int = 0) -> Tensor:
    """Latents (..., D) of drawn states (..., S), at most `batch` frames at a time.

    By default as many as suit the device: on a CPU what fits its caches, a third faster than 1,024.
    """
    flat = states.reshape(-1, states.shape[-1])
    batch = batch or (4096 if states.is_cuda else 32)
    parts = [geometry.encode(*scene.observe(part, geometry.image)) for part in flat.split(batch)]
    return torch.cat(parts).view(*states.shape[:-1], -1)


def predict(
    geometry: Geometry,
    scene: Scene,
    decisions: Decisions,
    rows: slice | None = None,
    device: str | torch.device = "cpu",
) -> Predicted:
    """Encode the context and the goal, roll out every candidate, cost every future; in float32."""
    rows = rows or slice(None)

    def tensor(array: np.ndarray, kind: type = np.float32) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array[rows], dtype=kind)).to(device)

    with arithmetic(torch.device(device), "float32"):
        context = encode_states(geometry, scene, tensor(decisions.context, np.float64))
        goal = encode_states(geometry, scene, tensor(decisions.goal, np.float64))
        taken = (tensor(decisions.history), tensor(decisions.actions))
        futures = geometry.rollout(context, *map(scene.controls, taken))
        return Predicted(geometry.native_cost(futures, goal).float(), futures, goal)
