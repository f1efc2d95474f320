"""Frames of the push world, batched, on the device of the states.

Legend: N frames, P parts of the block.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from djepa.errors import check_name
from djepa.worlds.push import CANVAS, PUSHER_RADIUS, WALL_RADIUS, WALLS
from djepa.worlds.raster import Discs, Layer, Polygons, paint_background, rasterise
from djepa.worlds.shapes import Shape

RGB = tuple[int, int, int]
FIXED_MARKER = (256.0, 256.0, torch.pi / 4)  # the original's decoration; it is not the goal


@dataclass(frozen=True)
class Appearance:
    """Colours, and the pose of the goal marker.

    `marker` is "goal" (block and pusher of the goal given to `draw_push`), "fixed" (the original's
    decoration, always at the same pose) or "none".
    """

    block: RGB = (119, 136, 153)
    pusher: RGB = (65, 105, 225)
    goal: RGB = (144, 238, 144)
    background: RGB = (255, 255, 255)
    walls: RGB | None = (211, 211, 211)
    marker: Literal["goal", "fixed", "none"] = "goal"

    def __post_init__(self) -> None:
        check_name("marker", self.marker, ("goal", "fixed", "none"))


def draw_push(
    shape: Shape,
    states: Tensor,
    size: int = 112,
    goal: Tensor | None = None,
    appearance: Appearance | None = None,
) -> Tensor:
    """(N, 10) states -> uint8 (N, size, size, 3). `goal` (10,) or (N, 10) is drawn beneath."""
    look = appearance or Appearance()
    layers: list[Layer] = []
    if look.marker == "fixed":
        pose = _marker(states.dtype, states.device)
        layers.append(_body(shape, pose.expand(len(states), 3), look.goal))
    elif look.marker == "goal" and goal is not None:
        layers.append(_body(shape, goal[..., 2:5].expand(len(states), 3), look.goal))
        layers.append(Discs(goal[..., :2].expand(len(states), 2), PUSHER_RADIUS, look.goal))
    layers.append(_body(shape, states[:, 2:5], look.block))
    layers.append(Discs(states[:, 0:2], PUSHER_RADIUS, look.pusher))
    backdrop = _backdrop(size, look.background, look.walls, states.device)
    return rasterise(layers, size, canvas=CANVAS, background=backdrop)


def _body(shape: Shape, pose: Tensor, colour: RGB) -> Polygons:
    """The block at (N, 3) poses x, y, angle."""
    local = _local(shape, pose.dtype, pose.device)
    c, s = torch.cos(pose[:, 2, None, None]), torch.sin(pose[:, 2, None, None])
    x, y = local[..., 0], local[..., 1]
    turned = torch.stack([c * x - s * y, s * x + c * y], dim=-1)
    return Polygons(
        vertices=turned + pose[:, None, None, :2],
        anchor=pose[:, :2],
        reach=shape.reach,
        colour=colour,
    )


@lru_cache(maxsize=64)
def _local(shape: Shape, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(P, 4, 2) body-frame vertices; copied to the device once, so that drawing never waits."""
    return torch.as_tensor(shape.vertices).to(device, dtype)


@lru_cache(maxsize=16)
def _marker(dtype: torch.dtype, device: torch.device) -> Tensor:
    """(3,) pose of the fixed marker; also copied to the device once."""
    return torch.tensor(FIXED_MARKER, dtype=dtype, device=device)


@lru_cache(maxsize=16)
def _backdrop(size: int, background: RGB, walls: RGB | None, device: torch.device) -> Tensor:
    lines = () if walls is None else WALLS
    ink = background if walls is None else walls
    return paint_background(size, CANVAS, background, lines, WALL_RADIUS, ink, device=device)
