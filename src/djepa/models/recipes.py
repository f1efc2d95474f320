"""How each geometry is trained: its loss, its windows, its batches, its steps."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from djepa.errors import DjepaError, check_name
from djepa.models.kinds import Model, get_kind
from djepa.models.objectives import Draws, dinowm_loss, jepawm_loss, lewm_loss, tdjepa_loss
from djepa.models.protocol import CONTEXT
from djepa.tasks.task import PLAIN, get_task

Loss = Callable[[Any, Tensor, Tensor, Draws, bool], Tensor]
COMPILED = ("blocks", "loss", "nothing")
LATE = CONTEXT + 5  # frames of a late window: as far ahead as a plan of the push world


@dataclass(frozen=True)
class Objective:
    """The training settings that differ between geometries."""

    loss: Loss
    frames: int  # of a window
    first: int  # batch of the first phase: windows, or frames to distil from
    then: int  # batch of the second: windows of cached latents


OBJECTIVES: dict[str, Objective] = {
    "lewm": Objective(lewm_loss, frames=4, first=512, then=2048),
    "tdjepa": Objective(tdjepa_loss, frames=8, first=256, then=1024),
    "jepawm": Objective(jepawm_loss, frames=6, first=512, then=512),
    "dinowm": Objective(dinowm_loss, frames=6, first=512, then=512),
}

# Settings of `TrainConfig` by name and geometry; "" stands for every other geometry. "long" trains
# four geometries to the end, each with an encoder of its own: no two have a seed in common. How
# long that has to be is a guess until learning curves are there.
RECIPES: dict[str, dict[str, dict[str, Any]]] = {
    "standard": {"": {}},
    "long": {
        "lewm": {"steps": 120_000, "joint": 0.25, "episodes": 400_000, "seed": 1},
        "tdjepa": {"steps": 80_000, "joint": 0.3, "episodes": 400_000, "seed": 2},
        "jepawm": {"steps": 120_000, "joint": 0.2, "episodes": 400_000, "seed": 3},
        "dinowm": {"steps": 120_000, "joint": 0.2, "episodes": 400_000, "seed": 4},
    },
}


def recipe_for(name: str, geometry: str) -> dict[str, Any]:
    """Settings of that recipe for that geometry."""
    check_name("recipe", name, RECIPES)
    by_geometry = RECIPES[name]
    return by_geometry.get(geometry, by_geometry.get("", {}))


@dataclass(frozen=True)
class TrainConfig:
    """One training run: with the same configuration, the same weights on the same CPU.

    The options from `late` on are variations to try; as they stand here they are off.
    """

    geometry: str = "lewm"
    size: str = "small"
    world: str = "push"
    shapes: tuple[str, ...] = ()  # in turn; the world's first unless some are named
    look: str = PLAIN  # what its frames look like
    blend: float = 1.0  # TD-JEPA's planning cost: 1 latent L2, 0 the learned distance
    terminal: float = 1.0  # and the weight of the last step in it
    context: int = 0  # and the context frames that its mean counts
    steps: int = 40_000  # of both phases together
    joint: float = 0.4  # share of the steps for the first phase
    episodes: int = 200_000
    seed: int = 0
    device: str = "cpu"
    rate: float = 1e-3
    decay: float = 1e-3
    shrink: int = 1  # divides the batches, for a small machine
    development: int = 256  # starts that choose the checkpoint
    encoder: str = ""  # weights whose encoder is taken as it is: no first phase then
    begin: tuple[str, ...] = ()  # weights to start from, the later ones over the earlier
    ema: float = 0.999  # of the predictor's weights, per step
    compiled: str = "blocks"  # on a GPU: blocks, loss or nothing
    late: float = 0.0  # last share of the predictor's steps, on long windows, open loop
    curriculum: float = 0.0  # first share of them, in which windows grow from four frames
    noise: float = 0.0  # spread of the noise on latents that the predictor reads
    last: int = 0  # checkpoints of the last fifth whose mean is judged too
    perturbed: float = 0.0  # share of episodes whose controls were disturbed and executed again
    windows: int = 0  # batch of the predictor, if not the objective's

    def __post_init__(self) -> None:
        kind, task = get_kind(self.geometry), get_task(self.world)
        if self.geometry not in OBJECTIVES:
            raise DjepaError(
                f"'{self.geometry}' has a training of its own: python -m djepa.models.ac_train OUT"
            )
        object.__setattr__(self, "shapes", tuple(self.shapes) or task.shapes[:1])
        for name in self.shapes:
            check_name("shape", name, task.shapes)
        check_name("look", self.look, task.looks)
        if not (0 <= self.blend <= 1 and 0 <= self.terminal <= 1):
            raise DjepaError("blend and terminal must lie between 0 and 1.")
        if self.context < 0:
            raise DjepaError(f"context counts frames, not {self.context} of them.")
        check_name("size", self.size, kind.sizes)
        if self.steps < 2 or not 0 < self.joint < 1:
            raise DjepaError("steps must be at least 2 and joint between 0 and 1.")
        if self.episodes < 1 or self.development < 1 or self.shrink < 1:
            raise DjepaError("episodes, development and shrink must be at least 1.")
        if min(self.late, self.curriculum) < 0 or self.late + self.curriculum > 1:
            raise DjepaError("late and curriculum are shares of the predictor's steps.")
        if not (0 < self.ema < 1 and 0 <= self.perturbed < 1):
            raise DjepaError("ema and perturbed must lie between 0 and 1.")
        if self.noise < 0 or self.last < 0 or self.windows < 0:
            raise DjepaError("noise, last and windows cannot be negative.")
        check_name("part to compile", self.compiled, COMPILED)
        if self.device.startswith("cuda") and not torch.cuda.is_available():
            raise DjepaError("No CUDA device here. Use --device cpu, or train where there is one.")


@dataclass(frozen=True)
class Stage:
    """A part of the predictor's steps, with windows of one length."""

    begin: int  # its first step
    frames: int
    open_loop: bool = False  # add the open-loop loss over the whole window


def stages(config: TrainConfig, steps: int) -> list[Stage]:
    """The parts of `steps` predictor steps: growing windows, the objective's own, long ones."""
    frames = OBJECTIVES[config.geometry].frames
    grows = range(CONTEXT + 1, frames) if config.curriculum else ()
    each = config.curriculum * steps / max(1, len(grows))
    found = [Stage(round(i * each), short) for i, short in enumerate(grows)]
    found.append(Stage(round(len(grows) * each), frames))
    if config.late:
        found.append(Stage(round((1 - config.late) * steps), max(LATE, frames), open_loop=True))
    return found


def begin_with(model: Model, where: str, device: torch.device) -> None:
    """Start from other weights: copy all tensors of equal name and shape; none is an error."""
    from djepa.models.weights import load_geometry

    own, other = model.state_dict(), load_geometry(where, device).state_dict()
    shared = {n: t for n, t in other.items() if n in own and own[n].shape == t.shape}
    if not any(name.startswith("predictor") for name in shared):
        raise DjepaError(f"{where} holds no predictor of the sizes of this {model.name}.")
    model.load_state_dict(shared, strict=False)


def take_encoder(model: Model, where: str, device: torch.device) -> None:
    """Load a trained encoder: of a geometry of the same family, or DINOv2's own.

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
