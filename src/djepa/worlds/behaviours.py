"""Behaviours that touch the block: contact-rich data and reference segments without a download.

A behaviour maps a state to a control. It draws every choice from its generator, so a seed fixes a
segment. Controls have float32 values, as they are stored.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from djepa.errors import check_name
from djepa.worlds.protocol import Floats
from djepa.worlds.push import ACTION_SCALE, CANVAS, PUSHER_RADIUS, PushWorld

Controls = npt.NDArray[np.float32]
MARGIN = 25.0  # keep waypoints this far inside the canvas


class Behaviour(Protocol):
    """Chooses the next control from the current state."""

    def act(self, state: Floats) -> Floats:
        """(10,) state -> (2,) control in [-1, 1]²."""


class GoRoundAndPush:
    """Moves round the block to a point behind it, pushes through its centre, and repeats.

    Direction, pace and length of the push are drawn at random, the direction around the side that
    the pusher is on. Some pushes aim beside the centre, which turns the block.
    """

    def __init__(self, world: PushWorld, rng: np.random.Generator) -> None:
        self._world, self._rng = world, rng
        self._radius = world.shape.girth + PUSHER_RADIUS + 4.0
        self._target: Floats | None = None
        self._heading = np.zeros(2)

    def _plan(self, pusher: Floats, centre: Floats) -> None:
        """Draw a push: direction, end point beyond the centre, pace."""
        rng = self._rng
        toward = np.arctan2(*(centre - pusher)[::-1])
        for _ in range(16):  # prefer a side where the pusher fits
            angle = toward + rng.uniform(-0.6, 0.6) * np.pi
            self._heading = np.array([np.cos(angle), np.sin(angle)])
            behind = centre - self._radius * self._heading
            if ((behind > MARGIN) & (behind < CANVAS - MARGIN)).all():
                break
        self._length = rng.uniform(40.0, 180.0)
        self._aside = rng.normal(0.0, 0.25) * self._radius
        self._pace = rng.uniform(0.25, 0.6)
        self._pushing = False

    def act(self, state: Floats) -> Floats:
        """(10,) state -> (2,) control."""
        pusher, centre = state[0:2], self._world.block_centre(state)
        if self._target is None:
            self._plan(pusher, centre)
            self._target = centre
        side = np.array([-self._heading[1], self._heading[0]])
        behind = centre - self._radius * self._heading + self._aside * side
        if not self._pushing and np.linalg.norm(pusher - behind) < 14.0:
            self._pushing = True
            end = centre + (self._length - self._radius * 0.3) * self._heading + self._aside * side
            self._target = np.clip(end, MARGIN, CANVAS - MARGIN)
        if self._pushing and np.linalg.norm(pusher - self._target) < 14.0:
            self._plan(pusher, centre)
        waypoint = self._target if self._pushing else _round(pusher, behind, centre, self._radius)
        return _towards(pusher, waypoint, self._pace, self._rng)


class WeakContact:
    """Wanders to points near the block and holds each for a few controls: many light touches."""

    def __init__(self, world: PushWorld, rng: np.random.Generator) -> None:
        self._world, self._rng = world, rng
        self._left = 0

    def act(self, state: Floats) -> Floats:
        """(10,) state -> (2,) control."""
        if self._left == 0:
            self._left = int(self._rng.integers(3, 7))
            near = self._world.block_centre(state) + self._rng.uniform(-100.0, 100.0, 2)
            self._target = np.clip(near, MARGIN, CANVAS - MARGIN)
            self._pace = self._rng.uniform(0.25, 0.6)
        self._left -= 1
        return _towards(state[0:2], self._target, self._pace, self._rng)


def _round(pusher: Floats, goal: Floats, centre: Floats, radius: float) -> Floats:
    """The next waypoint on a path to `goal` outside the circle around the block."""
    arm, wanted = pusher - centre, goal - centre
    here, there = np.arctan2(arm[1], arm[0]), np.arctan2(wanted[1], wanted[0])
    turn = (there - here + np.pi) % (2 * np.pi) - np.pi
    if abs(turn) < 0.35 or np.linalg.norm(arm) > 2.0 * radius:
        return goal
    angle = here + np.sign(turn) * min(abs(turn), 0.7)
    return np.asarray(centre + 1.1 * radius * np.array([np.cos(angle), np.sin(angle)]))


def _towards(pusher: Floats, waypoint: Floats, pace: float, rng: np.random.Generator) -> Floats:
    """A control towards the waypoint at no more than the given pace, with a little noise."""
    step = (waypoint - pusher) / ACTION_SCALE * 2.0
    norm = float(np.linalg.norm(step))
    step = step * min(1.0, pace / norm) if norm > 0 else step
    control = np.clip(step + rng.normal(0.0, 0.05, 2), -1.0, 1.0)
    return control.astype(np.float32).astype(np.float64)


BEHAVIOURS: dict[str, Callable[[PushWorld, np.random.Generator], Behaviour]] = {
    "push": GoRoundAndPush,
    "weak": WeakContact,
}


def get_behaviour(name: str, world: PushWorld, rng: np.random.Generator) -> Behaviour:
    """A fresh behaviour of that name, or an error that suggests the nearest one."""
    check_name("behaviour", name, BEHAVIOURS)
    return BEHAVIOURS[name](world, rng)


def drive(world: PushWorld, behaviour: Behaviour, controls: int) -> tuple[Floats, Controls]:
    """Let a behaviour act from the world's live state: states (H + 1, 10) and controls (H, 2)."""
    states, taken = [world.snapshot()], []
    for _ in range(controls):
        taken.append(behaviour.act(states[-1]))
        states.append(world.step(taken[-1]))
    return np.array(states), np.array(taken, dtype=np.float32)


class Explorer:
    """Behaviour of training episodes, as varied as pools: behaviours with more noise, plain noise.

    For 10 to 30 controls at a time it is a behaviour with its own noise level, or smooth or uniform
    random controls.
    """

    def __init__(
        self, world: Any, rng: np.random.Generator, hands: Mapping[str, Any] | None = None
    ) -> None:
        """`hands`: the behaviours of the world, by name; by default those of the push world."""
        self._world, self._rng, self._hands = world, rng, hands or BEHAVIOURS
        self._left = 0

    def _choose(self) -> None:
        rng = self._rng
        self._left = int(rng.integers(10, 31))
        self._mode = rng.choice(["behaviour", "smooth", "uniform"], p=[0.75, 0.15, 0.10])
        self._tremor = float(rng.choice([0.0, 0.05, 0.15, 0.3], p=[0.3, 0.3, 0.25, 0.15]))
        names = sorted(self._hands)
        self._hand = self._hands[names[int(rng.integers(len(names)))]](self._world, rng)
        self._last = rng.uniform(-1.0, 1.0, 2)

    def act(self, state: Floats) -> Floats:
        """A state -> (2,) control."""
        if self._left == 0:
            self._choose()
        self._left -= 1
        if self._mode == "uniform":
            control = self._rng.uniform(-1.0, 1.0, 2)
        elif self._mode == "smooth":
            control = self._last = 0.8 * self._last + 0.2 * self._rng.uniform(-1.0, 1.0, 2)
        else:
            control = self._hand.act(state) + self._rng.normal(0.0, self._tremor, 2)
        return np.clip(control, -1.0, 1.0).astype(np.float32).astype(np.float64)
