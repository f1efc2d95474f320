"""Behaviours that shape a pile: references, attempts and training data without a download.

A behaviour maps a state to a push. It draws every choice from its generator, so a seed fixes a
segment. Pushes have float32 values, as they are stored.

Legend: n grains.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from djepa.errors import check_name
from djepa.worlds.behaviours import Behaviour
from djepa.worlds.granular import PUSH_BOUND, places, reset_places
from djepa.worlds.granular_space import BOARD, BOARD_RADIUS
from djepa.worlds.protocol import Floats

if TYPE_CHECKING:
    from djepa.worlds.granular import GranularWorld

SCALES, SHIFT = (0.6, 0.9), 1.0  # of the reset pile, in each axis
CLEAR = 0.2  # gap between the lowered board and the grains
TREMOR, TURN = 0.04, 0.08  # table units, radians
LEFT = 0.05  # total distance of grains to the region below which no push is made


@dataclass(frozen=True)
class Region:
    """A box into which grains are pushed."""

    centre: Floats  # (2,)
    half: Floats  # (2,) half its sides


def draw_change(rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Scale (2,) and shift (2,) of a goal pile: one size of shift, a sign for each axis."""
    scale = rng.uniform(*SCALES, 2)
    shift = rng.uniform(0.0, SHIFT) * rng.choice([-1.0, 1.0], 2)
    return scale, shift


def pile_region(particles: int, scale: Floats, shift: Floats) -> Region:
    """The box of the reset pile, scaled (2,) and shifted (2,)."""
    return Region(shift, np.abs(reset_places(particles)).max(axis=0) * scale)


def region_of(points: Floats) -> Region:
    """The bounding box of points (n, 2), without a few outliers."""
    low, high = np.quantile(points, [0.03, 0.97], axis=0)
    return Region((low + high) / 2, (high - low) / 2)


class Gather:
    """Pushes grains from outside a region to its edge, where that reduces the distance most.

    The board is lowered beyond the outermost grain of a lane of its own width and stops with its
    face on the edge, with a little noise in position and angle. Without grains outside it sweeps.
    """

    def __init__(
        self, world: GranularWorld, rng: np.random.Generator, region: Region | None = None
    ) -> None:
        self._rng, self._idle = rng, Sweep(world, rng)
        self._touch = world.radius + BOARD_RADIUS  # board's centre line to a touching grain
        self._region = region or pile_region(world.particles, *draw_change(rng))

    def act(self, state: Floats) -> Floats:
        """(4 n,) state -> (4,) push."""
        rng, region, points = self._rng, self._region, places(state)
        axis, sign, lane, gain = self._best(points - region.centre)
        if gain < LEFT:
            return self._idle.act(state)
        along = sign * (points - region.centre)[:, axis]
        beside = np.abs((points - region.centre)[:, 1 - axis] - lane) < BOARD / 2 + self._touch
        begin, end = np.full(2, lane), np.full(2, lane)
        begin[axis] = sign * (along[beside].max() + self._touch + CLEAR)
        end[axis] = sign * (region.half[axis] + self._touch)
        turn = _turned(begin - end, rng.normal(0.0, TURN))
        end += region.centre + rng.normal(0.0, TREMOR, 2)
        return _as_push(end + turn, end)

    def _best(self, points: Floats) -> tuple[int, float, float, float]:
        """(n, 2) from the region's centre -> axis, side and lane of the best push, and its gain."""
        found = []
        for axis in (0, 1):
            across = points[:, 1 - axis]
            beside = np.abs(across[:, None] - across) < BOARD / 2  # (n lanes, n)
            for sign in (1.0, -1.0):
                over = np.maximum(sign * points[:, axis] - self._region.half[axis], 0.0)
                gains = (beside * over).sum(axis=1) * self._rng.uniform(0.8, 1.0, len(points))
                i = int(gains.argmax())
                found.append((float(gains[i]), axis, sign, float(across[i])))
        gain, axis, sign, lane = max(found)
        return axis, sign, lane, gain


class Sweep:
    """Pushes through a random grain near the middle of the pile and some way beyond."""

    def __init__(self, world: GranularWorld, rng: np.random.Generator) -> None:
        self._rng, self._touch = rng, world.radius + BOARD_RADIUS

    def act(self, state: Floats) -> Floats:
        """(4 n,) state -> (4,) push."""
        rng, points = self._rng, places(state)
        apart = np.linalg.norm(points - np.median(points, axis=0), axis=1)
        near = points[apart < 2.0]
        aim = (near if len(near) else points)[int(rng.integers(len(near) or len(points)))]
        angle = rng.uniform(-math.pi, math.pi)
        heading = np.array([math.cos(angle), math.sin(angle)])
        along, across = _frame(points - aim, heading)
        behind = -along[np.abs(across) < BOARD / 2 + self._touch].min()
        begin = aim - (behind + self._touch + CLEAR) * heading
        return _as_push(begin, aim + rng.uniform(-0.3, 0.7) * heading)


class Explorer:
    """Behaviour of training episodes, as varied as pools: both behaviours, and random pushes."""

    def __init__(self, world: GranularWorld, rng: np.random.Generator) -> None:
        self._world, self._rng = world, rng
        self._hand: Behaviour = Gather(world, rng)

    def act(self, state: Floats) -> Floats:
        """(4 n,) state -> (4,) push."""
        rng = self._rng
        if rng.random() < 0.3:
            names = sorted(BEHAVIOURS)
            self._hand = BEHAVIOURS[names[int(rng.integers(len(names)))]](self._world, rng)
        if rng.random() < 0.1:
            return _as_push(*rng.uniform(-2.5, 2.5, (2, 2)))
        push = self._hand.act(state) + rng.normal(0.0, rng.choice([0.0, 0.1, 0.3]), 4)
        return _as_push(push[:2], push[2:])


def _frame(vectors: Floats, heading: Floats) -> tuple[Floats, Floats]:
    """(n, 2) vectors -> components (n,) along a unit heading (2,) and to its left."""
    (x, y), (c, s) = vectors.T, heading
    return c * x + s * y, c * y - s * x


def _turned(vector: Floats, angle: float) -> Floats:
    (x, y), c, s = vector, math.cos(angle), math.sin(angle)
    return np.array([c * x - s * y, s * x + c * y])


def _as_push(begin: Floats, end: Floats) -> Floats:
    """(4,) push, clipped to the bounds and rounded to float32."""
    push = np.clip(np.concatenate([begin, end]), -PUSH_BOUND, PUSH_BOUND)
    return push.astype(np.float32).astype(np.float64)


BEHAVIOURS: dict[str, Callable[[GranularWorld, np.random.Generator], Behaviour]] = {
    "gather": Gather,
    "sweep": Sweep,
}


def get_behaviour(name: str, world: GranularWorld, rng: np.random.Generator) -> Behaviour:
    """A fresh behaviour of that name, or an error that suggests the nearest one."""
    check_name("behaviour", name, BEHAVIOURS)
    return BEHAVIOURS[name](world, rng)
