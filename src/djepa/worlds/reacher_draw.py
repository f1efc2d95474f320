"""Frames of the reacher world: batched torch on the device of the states.

The view is that of the model's camera `fixed`: 0.62 m of the table, the shoulder in the middle,
x to the right, y up. A link is a capsule: a box with a disc at each end.

Legend: N frames.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from djepa.worlds.raster import Discs, Layer, Polygons, paint_background, rasterise
from djepa.worlds.reacher import ARM, HAND

RGB = tuple[int, int, int]
CANVAS = 0.62  # m
ROOT_RADIUS, LINK_RADIUS, FINGER_RADIUS = 0.011, 0.01, 0.01
HAND_END = 0.1  # the hand's capsule ends before the finger begins
LOW, HIGH = CANVAS / 2 - 0.3, CANVAS / 2 + 0.3
CORNERS = ((LOW, LOW), (HIGH, LOW), (HIGH, HIGH), (LOW, HIGH))
WALLS = tuple(zip(CORNERS, (*CORNERS[1:], CORNERS[0]), strict=True))
WALL_RADIUS = 0.002


@dataclass(frozen=True)
class ArmAppearance:
    """Colours of the frame's parts."""

    arm: RGB = (119, 136, 153)
    hand: RGB = (84, 100, 118)
    finger: RGB = (65, 105, 225)
    root: RGB = (60, 60, 60)
    goal: RGB = (144, 238, 144)
    background: RGB = (255, 255, 255)
    walls: RGB | None = (211, 211, 211)


def draw_reacher(
    states: Tensor,
    size: int = 112,
    goal: Tensor | None = None,
    appearance: ArmAppearance | None = None,
) -> Tensor:
    """(N, 4) states -> uint8 (N, size, size, 3). `goal` (4,) or (N, 4) is drawn beneath."""
    look = appearance or ArmAppearance()
    layers: list[Layer] = []
    if goal is not None:
        layers += _links(goal.expand(len(states), 4), look.goal, look.goal, look.goal)
    layers += _links(states, look.arm, look.hand, look.finger)
    root = torch.full_like(states[:, :2], CANVAS / 2)
    layers.append(Discs(root, ROOT_RADIUS, look.root))
    backdrop = _backdrop(size, look.background, look.walls, states.device)
    return rasterise(layers, size, canvas=CANVAS, background=backdrop)


def _links(states: Tensor, arm: RGB, hand: RGB, finger: RGB) -> list[Layer]:
    """Layers of the arm at (N, 4) states: hand, arm over it, finger; the root is drawn later."""
    shoulder = torch.full_like(states[:, :2], CANVAS / 2)
    along = _direction(states[:, 0])
    wrist = shoulder + ARM * along
    beyond = _direction(states[:, 0] + states[:, 1])
    return [
        _box(wrist, beyond, HAND_END, hand),
        Discs(wrist + HAND_END * beyond, LINK_RADIUS, hand),
        _box(shoulder, along, ARM, arm),
        Discs(wrist, LINK_RADIUS, arm),
        Discs(wrist + HAND * beyond, FINGER_RADIUS, finger),
    ]


def _direction(angle: Tensor) -> Tensor:
    """(N,) angles -> (N, 2) in the picture, where y points down."""
    return torch.stack([torch.cos(angle), -torch.sin(angle)], dim=-1)


def _box(begin: Tensor, along: Tensor, length: float, colour: RGB) -> Polygons:
    """A bar of the given length from (N, 2) along (N, 2), as wide as a link."""
    side = LINK_RADIUS * torch.stack([-along[:, 1], along[:, 0]], dim=-1)
    end = begin + length * along
    corners = torch.stack([begin - side, begin + side, end + side, end - side], dim=1)
    reach = length / 2 + LINK_RADIUS
    return Polygons(corners[:, None], begin + length / 2 * along, reach, colour)


@lru_cache(maxsize=16)
def _backdrop(size: int, background: RGB, walls: RGB | None, device: torch.device) -> Tensor:
    lines = () if walls is None else WALLS
    ink = background if walls is None else walls
    return paint_background(size, CANVAS, background, lines, WALL_RADIUS, ink, device=device)
