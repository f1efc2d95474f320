"""Frames of the granular world, batched, on the device of the grains.

All grains of all frames are drawn at once: each covers a small patch, and a pixel takes the largest
coverage of the grains that touch it. A maximum does not depend on the order, so neither threads nor
atomic operations change a bit; pixels follow `djepa.worlds.raster` (x right, y down).

Legend: N frames, n grains, s side of a patch in pixels.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from djepa.errors import DjepaError
from djepa.worlds.granular import VIEW

RGB = tuple[int, int, int]
_CPU_CELLS, _GPU_CELLS = 1 << 20, 1 << 27  # pixels of images and patches held at a time


@dataclass(frozen=True)
class GranularLook:
    """Colours, and the visible square of the table, within ±`view`."""

    grain: RGB = (90, 72, 56)
    goal: RGB = (144, 238, 144)
    table: RGB = (255, 255, 255)
    view: float = VIEW

    def __post_init__(self) -> None:
        if not 0 < self.view < math.inf:
            raise DjepaError(f"view is {self.view}; give a finite length above 0.")


@torch.no_grad()
def draw_granular(
    grains: Tensor,
    radius: float,
    size: int = 112,
    goal: Tensor | None = None,
    look: GranularLook | None = None,
) -> Tensor:
    """(N, n, 2) places -> uint8 (N, size, size, 3). `goal` (m, 2) or (N, m, 2) lies beneath."""
    look = look or GranularLook()
    _check(grains, size)
    layers = [(grains, look.grain)]
    if goal is not None:
        _check(goal if goal.ndim == 3 else goal[None], size)
        layers.insert(0, (goal.expand(len(grains), -1, 2), look.goal))
    out = torch.empty((len(grains), size, size, 3), dtype=torch.uint8, device=grains.device)
    for part in _chunks(grains, radius, size, look.view):
        # Half a level is added to every colour, so that the cast, which truncates, rounds.
        image = _level(look.table, out).expand(part.stop - part.start, size, size, 3)
        for places, colour in layers:
            cover = coverage(places[part], radius, size, look.view)[..., None]
            image = image + (_level(colour, out) - image) * cover
        out[part] = image
    return out


def coverage(grains: Tensor, radius: float, size: int, view: float) -> Tensor:
    """(N, n, 2) places -> float32 (N, size, size), the share of each pixel that grains cover."""
    scale = size / (2 * view)
    side = _side(radius * scale, size)
    centre = (grains + view) * scale
    steps = torch.arange(side, device=grains.device)
    # nan_to_num: an index from NaN would lie outside the image, and a GPU cannot check values.
    origin = (centre - side / 2).floor().nan_to_num(0.0).clamp(0, size - side)
    apart = (origin[..., None] + (steps + 0.5) - centre[..., None]).float().square()  # (N, n, 2, s)
    share = (apart[:, :, 0, None, :] + apart[:, :, 1, :, None]).sqrt_()
    share = share.neg_().add_(0.5 + radius * scale).clamp_(0.0, 1.0)
    cell = origin.long()[..., None] + steps
    pixel = cell[:, :, 1, :, None] * size + cell[:, :, 0, None, :]
    image = torch.zeros((len(grains), size * size), device=grains.device)
    image.scatter_reduce_(1, pixel.flatten(1), share.flatten(1), "amax")
    return image.view(-1, size, size)


def _side(radius: float, size: int) -> int:
    """Pixels across the patch of one grain, its radius in pixels."""
    return min(size, math.ceil(2 * radius) + 3)


def _level(colour: RGB, like: Tensor) -> Tensor:
    """(3,) a colour, filled on the device: copying a host list would wait for it."""
    return torch.cat([torch.full((1,), level + 0.5, device=like.device) for level in colour])


def _chunks(grains: Tensor, radius: float, size: int, view: float) -> list[slice]:
    """Slices of frames drawn at a time; a compiled graph is not unrolled over chunks."""
    N = len(grains)
    if torch.compiler.is_compiling():
        return [slice(0, N)]
    each = 3 * size * size + grains.shape[1] * _side(radius * size / (2 * view), size) ** 2
    step = max(1, (_CPU_CELLS if grains.device.type == "cpu" else _GPU_CELLS) // each)
    return [slice(i, min(i + step, N)) for i in range(0, N, step)]


def _check(grains: Tensor, size: int) -> None:
    if not isinstance(size, int) or size < 8:
        raise DjepaError(f"size is {size}; give a whole number of pixels, 8 or more.")
    if grains.ndim != 3 or grains.shape[-1] != 2 or not grains.is_floating_point():
        raise DjepaError(
            f"Grains are {grains.dtype} {tuple(grains.shape)}; floats (N, n, 2) needed."
        )
    free_look = grains.device.type == "cpu" and not torch.compiler.is_compiling()
    if free_look and not grains.isfinite().all():
        raise DjepaError("Grains hold values that are not finite. Check the states drawn from.")
