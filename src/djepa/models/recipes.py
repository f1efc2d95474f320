"""How each geometry is trained: its loss, its windows, its batches, its rates."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from djepa.errors import DjepaError, unknown_name
from djepa.models.kinds import Model, get_kind
from djepa.models.objectives import Draws, dinowm_loss, jepawm_loss, lewm_loss, tdjepa_loss
from djepa.tasks.task import PLAIN, get_task

Loss = Callable[[Any, Tensor, Tensor, Draws, bool], Tensor]


@dataclass(frozen=True)
class Recipe:
    """What differs between geometries."""

    loss: Loss
    frames: int  # of a window
    first: int  # batch of the first phase: windows, or frames to distil from
    then: int  # batch of the second: windows of cached latents


RECIPES: dict[str, Recipe] = {
    "lewm": Recipe(lewm_loss, frames=4, first=512, then=2048),
    "tdjepa": Recipe(tdjepa_loss, frames=8, first=256, then=1024),
    "jepawm": Recipe(jepawm_loss, frames=6, first=512, then=512),
    "dinowm": Recipe(dinowm_loss, frames=6, first=512, then=512),
}


@dataclass(frozen=True)
class TrainConfig:
    """One training run."""

    geometry: str = "lewm"
    size: str = "small"
    world: str = "push"
    shapes: tuple[str, ...] = ()  # in turn; the world's first unless some are named
    look: str = PLAIN  # what its frames look like
    blend: float = 1.0  # TD-JEPA's planning cost: 1 latent L2, 0 the learned distance
    terminal: float = 1.0  # and the weight of the last step in it
    context: int = 0  # and the context frames that its mean counts
    minutes: float = 8.0
    joint: float = 0.4  # share of the time for the first phase
    episodes: int = 200_000
    seed: int = 0
    device: str = "cpu"
    rate: float = 1e-3
    decay: float = 1e-3
    shrink: int = 1  # divides the batches, for a small machine
    development: int = 256  # starts that choose the checkpoint
    encoder: str = ""  # weights whose encoder is taken as it is: no first phase then
    begin: tuple[str, ...] = ()  # weights to start from, the later ones over the earlier

    def __post_init__(self) -> None:
        kind, task = get_kind(self.geometry), get_task(self.world)
        object.__setattr__(self, "shapes", tuple(self.shapes) or task.shapes[:1])
        for name in self.shapes:
            if name not in task.shapes:
                raise unknown_name("shape", name, task.shapes)
        if self.look not in task.looks:
            raise unknown_name("look", self.look, task.looks)
        if not (0 <= self.blend <= 1 and 0 <= self.terminal <= 1):
            raise DjepaError("blend and terminal must lie between 0 and 1.")
        if self.context < 0:
            raise DjepaError(f"context counts frames, not {self.context} of them.")
        if self.size not in kind.sizes:
            raise unknown_name("size", self.size, kind.sizes)
        if not (self.minutes > 0 and 0 < self.joint < 1):
            raise DjepaError("minutes must be above 0 and joint between 0 and 1.")
        if self.episodes < 1 or self.development < 1 or self.shrink < 1:
            raise DjepaError("episodes, development and shrink must be at least 1.")
        if self.device.startswith("cuda") and not torch.cuda.is_available():
            raise DjepaError("No CUDA device here. Use --device cpu, or train where there is one.")


def begin_with(model: Model, where: str, device: torch.device) -> None:
    """Start from other weights: all tensors of the same name and shape; some there must be."""
    from djepa.models.weights import load_geometry

    own, other = model.state_dict(), load_geometry(where, device).state_dict()
    shared = {n: t for n, t in other.items() if n in own and own[n].shape == t.shape}
    if not any(name.startswith("predictor") for name in shared):
        raise DjepaError(f"{where} holds no predictor of the sizes of this {model.name}.")
    model.load_state_dict(shared, strict=False)


def take_encoder(model: Model, where: str, device: torch.device) -> None:
    """Put a trained encoder in: from weights of a geometry of the same family, or DINOv2's own.

    `where` is a folder of weights, the name of shipped ones, a file of DINOv2 weights, or "dinov2"
    for the file in the cache of the libraries that fetch it.
    """
    from djepa.models.dinov2 import load_dinov2
    from djepa.models.weights import load_geometry

    if where == "dinov2" or Path(where).is_file():
        encoder = load_dinov2(None if where == "dinov2" else where, model.image)
        parts = {"encoder": encoder}
    else:
        other = load_geometry(where, device)
        names = [name for name in ("encoder", "projector") if hasattr(model, name)]
        if any(not hasattr(other, name) for name in names):
            raise DjepaError(f"{where} has no encoder that fits: it is a {other.name}.")
        parts = {name: getattr(other, name) for name in names}
    for name, part in parts.items():
        try:
            getattr(model, name).load_state_dict(part.state_dict())
        except RuntimeError:
            raise DjepaError(
                f"The {name} of {where} has another size than {model.name}'s."
            ) from None
