"""Frames of the cube world: batched torch on whatever device the states are on, without OpenGL.

The view is that of OGBench's camera `front_pixels`. Hand and cube are boxes whose visible faces are
drawn from far to near, with shadows straight below. The arm is not drawn, and the palm is
translucent: OGBench makes both nearly transparent in its own images.

Legend: N frames, B boxes, F faces.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from djepa.worlds.cube import CUBE, FINGERS, PINCH, PINCH_TURN, TURN
from djepa.worlds.raster import Layer, Polygons, paint_background, rasterise

RGB = tuple[int, int, int]
EYE = (1.053, -0.014, 0.639)  # m, the camera
RIGHT, UP = (0.0, 1.0, 0.0), (-0.628, 0.0, 0.778)  # not quite of length 1, as OGBench writes it
SPAN = 2 * 0.41421356  # width of the picture at a distance of 1: 45 degrees
NEAR = 0.2  # m, least depth; nearer points are drawn at this depth
RED, GOAL, PURPLE = (245, 66, 84), (150, 210, 150), (156, 71, 209)
FLOOR, SHADOW, LINE = (46, 56, 77), (28, 34, 47), (120, 130, 150)
TABLE = ((0.22, -0.38), (0.63, -0.38), (0.63, 0.38), (0.22, 0.38))  # OGBench's walls
SIDE = 0.02  # m, half the cube's
PALM, LINK, PAD = (0.034, 0.042, 0.045), (0.008, 0.009, 0.024), (0.011, 0.004, 0.019)
CORNERS = ((1, 1), (1, -1), (-1, -1), (-1, 1))
SMALL, LARGE = 0.09, 0.22  # bounds of faces in the picture: of cube and fingers, of the palm


class Boxes(NamedTuple):
    """Centres (N, B, 3), axes as columns (N, B, 3, 3), half sides (B, 3) and colours (B, 3)."""

    centres: Tensor
    axes: Tensor
    halves: Tensor
    colours: Tensor


def draw_cube(states: Tensor, size: int = 112, goal: Tensor | None = None) -> Tensor:
    """(N, 73) states -> uint8 (N, size, size, 3). The cube of `goal` (N, 73) is drawn beneath."""
    hand, palm, cube = _fingers(states), _palm(states), _cube(states, RED)
    layers: list[Layer] = []
    if goal is not None:
        layers += _faces(_cube(goal.expand(len(states), -1), GOAL), SMALL)
    layers += [_shadow(palm, LARGE), _shadow(cube, SMALL)]
    layers += _faces(_joined(hand, cube), SMALL) + _faces(palm, LARGE, alpha=0.4)
    return rasterise(layers, size, canvas=1.0, background=_backdrop(size, states.device))


def project(points: Tensor) -> tuple[Tensor, Tensor]:
    """(..., 3) in m -> (..., 2) in the picture, which is 1 wide with y down, and depths (...)."""
    right, up, towards = _camera(points)
    from_eye = points - _filled(EYE, points)
    depth = -_dot(from_eye, towards).clamp(max=-NEAR)
    flat = torch.stack([_dot(from_eye, right), -_dot(from_eye, up)], dim=-1)
    return 0.5 + flat / (SPAN * depth[..., None]), depth


def _camera(like: Tensor) -> Tensor:
    """(3, 3): to the right, up, and towards the camera; of length 1."""
    right, up = _filled(RIGHT, like), _filled(UP, like)
    up = up / torch.linalg.vector_norm(up)
    return torch.stack([right, up, torch.linalg.cross(right, up)])


def _faces(boxes: Boxes, reach: float, alpha: float = 1.0) -> list[Layer]:
    """The three visible faces of each box, the farthest of all boxes first."""
    N, B = boxes.centres.shape[:2]
    away = _filled(EYE, boxes.centres) - boxes.centres
    along = _dot(away[..., None, :], boxes.axes.mT)  # the eye in each box's axes
    arms = boxes.axes * boxes.halves[:, None]  # (N, B, 3, 3), columns as long as half a side
    found, normals = [], []
    for a in range(3):
        outward = 2 * (along[..., a] > 0).to(along)[..., None] - 1
        u, v = arms[..., (a + 1) % 3], arms[..., (a + 2) % 3]
        seen = (along[..., a].abs() > boxes.halves[:, a]).to(u)[..., None]
        middle = boxes.centres + outward * arms[..., a]
        found.append(_square(middle, seen * u, seen * v))  # a hidden one has no area
        normals.append(outward * boxes.axes[..., a])
    corners = torch.stack(found, dim=2).view(N, 3 * B, 4, 3)
    light = _light(torch.stack(normals, dim=2)).view(N, 3 * B, 1)
    colours = light * boxes.colours.repeat_interleave(3, dim=0)
    flat, depth = project(corners)
    order = depth.mean(-1).argsort(dim=1, descending=True, stable=True)
    flat = flat.gather(1, order[..., None, None].expand_as(flat))
    colours = colours.gather(1, order[..., None].expand_as(colours))
    return [
        Polygons(flat[:, f, None], flat[:, f].mean(1), reach, colours[:, f], alpha)
        for f in range(3 * B)
    ]


def _square(middle: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """(..., 3) centre and half sides -> (..., 4, 3) corners."""
    return torch.stack([middle + i * u + j * v for i, j in CORNERS], dim=-2)


def _light(normals: Tensor) -> Tensor:
    """(..., 3) normals -> (...) brightness: mostly from above, some from the front and one side."""
    sun = _filled((0.25, 0.15, 0.95), normals)
    return 0.6 + 0.4 * _dot(normals, sun).clamp(0.0, 1.0)


def _shadow(boxes: Boxes, reach: float) -> Polygons:
    """The shadow of the first box, straight below: the area spanned by its first two axes."""
    arms = boxes.axes[:, 0] * boxes.halves[0]
    corners = _square(boxes.centres[:, 0], arms[..., 0], arms[..., 1])
    flat, _ = project(corners * _filled((1.0, 1.0, 0.0), corners))
    return Polygons(flat[:, None], flat.mean(1), reach, SHADOW)


def _cube(states: Tensor, colour: RGB) -> Boxes:
    halves = states.new_full((1, 3), SIDE)
    axes = _matrix(states[:, TURN])[:, None]
    return Boxes(states[:, None, CUBE], axes, halves, _filled(colour, states)[None])


def _palm(states: Tensor) -> Boxes:
    return _on_hand(states, _filled((0.0, 0.0, -0.11), states)[None], (PALM,))


def _fingers(states: Tensor) -> Boxes:
    """A link and a pad on each side; their gap is nearly linear in the driver joint."""
    apart = 0.0471 - 0.0552 * states[:, FINGERS]
    zero = torch.zeros_like(apart)
    places = [
        torch.stack([zero, side * (apart + beyond), zero + height], dim=-1)
        for side in (1.0, -1.0)
        for beyond, height in ((0.012, -0.045), (0.0, -0.007))
    ]
    return _on_hand(states, torch.stack(places, dim=1), (LINK, PAD, LINK, PAD))


def _on_hand(states: Tensor, places: Tensor, halves: tuple[tuple[float, ...], ...]) -> Boxes:
    """Boxes at (B, 3) or (N, B, 3) in the frame of the point between the fingers."""
    turn = states[:, PINCH_TURN].view(-1, 3, 3)
    offsets = _dot(places.expand(len(states), -1, 3)[:, :, None], turn[:, None])
    B = len(halves)
    axes = turn[:, None].expand(-1, B, 3, 3)
    colours = _filled(PURPLE, states).expand(B, 3)
    return Boxes(
        states[:, None, PINCH] + offsets,
        axes,
        torch.stack([_filled(half, states) for half in halves]),
        colours,
    )


def _joined(a: Boxes, b: Boxes) -> Boxes:
    pairs = list(zip(a, b, strict=True))
    return Boxes(*(torch.cat(p, dim=1) for p in pairs[:2]), *(torch.cat(p) for p in pairs[2:]))


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """(..., 3) -> (...). Not a matrix product, whose last bits may change with the batch."""
    return (a * b).sum(-1)


def _filled(values: tuple[float, ...], like: Tensor) -> Tensor:
    """A tensor of these values, filled on the device: copying a list would wait for it."""
    return torch.stack([torch.full_like(like.new_empty(()), value) for value in values])


def _matrix(quaternion: Tensor) -> Tensor:
    """(N, 4) w, x, y, z -> (N, 3, 3)."""
    w, x, y, z = (quaternion / torch.linalg.vector_norm(quaternion, dim=-1, keepdim=True)).T
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return torch.stack([torch.stack(row, dim=-1) for row in rows], dim=-2)


@lru_cache(maxsize=16)
def _backdrop(size: int, device: torch.device) -> Tensor:
    ground = torch.tensor([(*corner, 0.0) for corner in TABLE], dtype=torch.float64)
    ends = [(float(x), float(y)) for x, y in project(ground)[0]]
    walls = tuple(zip(ends, (*ends[1:], ends[0]), strict=True))
    return paint_background(size, 1.0, FLOOR, walls, 0.003, LINE, device=device)
