"""Behaviours of the cube world, which drive its references.

As in `djepa.worlds.behaviours`, a behaviour maps a state to a control and draws every choice from
its generator, so a seed fixes a segment. Controls have float32 values. Behaviours use the state
alone, not the world.
"""

from collections.abc import Callable

import numpy as np

from djepa.errors import check_name
from djepa.worlds.behaviours import Behaviour
from djepa.worlds.cube import CLOSED, CUBE, FINGERS, PINCH, PINCH_TURN, TURN
from djepa.worlds.protocol import Floats, World

Maker = Callable[[World, np.random.Generator], Behaviour]
LOW, HIGH = np.array([0.3, -0.3]), np.array([0.55, 0.3])  # where OGBench puts cubes, in m
REST = 0.02  # height of the centre of a cube on the table
GRASPED = (0.4, 0.7)  # range of closing with the cube between the fingers
STEP = np.array([0.05, 0.05, 0.05])  # m of a full control
BESIDE = 0.065  # m from the cube's centre to where a push begins
OPEN, SHUT = -1.0, 1.0


class Carry:
    """Grasps and lifts the cube, moves it to a random place, and puts it down or drops it."""

    def __init__(self, world: World, rng: np.random.Generator) -> None:
        self._rng = rng
        self._aim()

    def _aim(self) -> None:
        rng = self._rng
        self._target = np.array([*rng.uniform(LOW, HIGH), REST])
        self._height = rng.uniform(0.06, 0.2)
        self._pace = rng.uniform(0.6, 1.0)
        self._release = 0

    def act(self, state: Floats) -> Floats:
        """(73,) state -> (5,) control."""
        hand, cube = state[PINCH], state[CUBE]
        turn = _nearest(_yaw_of(state[TURN]) - _yaw(state[PINCH_TURN]))
        if self._release:
            self._release -= 1
            if not self._release:
                self._aim()
            up = [*hand[:2], hand[2] + 0.1]
            return self._control(hand, np.array(up), 0.0, OPEN)
        if holds(state):
            return self._carry(hand, cube)
        aside = float(np.linalg.norm(cube[:2] - hand[:2]))
        if aside > 0.03 and hand[2] < self._height:
            above = np.array([*hand[:2], self._height + 0.02])
            return self._control(hand, above, turn, OPEN)
        if aside > 0.02:
            above = np.array([*cube[:2], max(self._height, cube[2])])
            return self._control(hand, above, turn, OPEN)
        near = np.linalg.norm(cube - hand) < 0.02
        return self._control(hand, cube, turn, SHUT if near else OPEN)

    def _carry(self, hand: Floats, cube: Floats) -> Floats:
        left = self._target - cube
        if np.linalg.norm(left[:2]) > 0.03:
            high = self._height if cube[2] > self._height - 0.03 else self._height + 0.05
            share = 1.0 if cube[2] > 0.05 else 0.2  # first up, then across
            return self._control(hand, np.array([*(hand + share * left)[:2], high]), 0.0, SHUT)
        if left[2] < -0.015:
            return self._control(hand, hand + left, 0.0, SHUT)
        self._release = 8
        return self._control(hand, hand, 0.0, OPEN)

    def _control(self, hand: Floats, place: Floats, turn: float, grip: float) -> Floats:
        return _towards(hand, place, turn, grip, self._pace, self._rng)


class Nudge:
    """Closes the fingers, comes down beside the cube and pushes it along the table."""

    def __init__(self, world: World, rng: np.random.Generator) -> None:
        self._rng, self._left = rng, 0

    def _aim(self, cube: Floats) -> None:
        rng = self._rng
        for _ in range(16):  # prefer a side where the hand can descend
            angle = rng.uniform(-np.pi, np.pi)
            self._heading = np.array([np.cos(angle), np.sin(angle)])
            behind = cube - BESIDE * self._heading
            if ((behind > LOW - 0.05) & (behind < HIGH + 0.05)).all():
                break
        self._length, self._aside = rng.uniform(0.05, 0.2), rng.normal(0.0, 0.006)
        self._pace = rng.uniform(0.6, 1.0)
        self._end: Floats | None = None
        self._left = 40

    def act(self, state: Floats) -> Floats:
        """(73,) state -> (5,) control."""
        hand, cube = state[PINCH], state[CUBE][:2]
        if self._left == 0:
            self._aim(cube)
        self._left -= 1
        if self._end is None:
            place = self._beside(hand, cube)
        else:
            place = self._end
            if np.linalg.norm(place - hand) < 0.025:
                self._left = 0
        return _towards(hand, place, 0.0, SHUT, self._pace, self._rng)

    def _beside(self, hand: Floats, cube: Floats) -> Floats:
        """The next waypoint to the point behind the cube; once there, the push is fixed."""
        side = np.array([-self._heading[1], self._heading[0]])
        behind = cube - BESIDE * self._heading + self._aside * side
        if np.linalg.norm(behind - hand[:2]) > 0.03:  # over the cube, not through it
            return np.array([*(hand[:2] if hand[2] < 0.08 else behind), 0.1])
        place = np.array([*behind, 0.03])
        if np.linalg.norm(place - hand) < 0.02:
            end = np.clip(cube + self._length * self._heading, LOW - 0.04, HIGH + 0.04)
            self._end = np.array([*end, 0.03])
        return place


BEHAVIOURS: dict[str, Maker] = {"carry": Carry, "nudge": Nudge}


class Explorer:
    """Behaviour of training episodes, as varied as pools: behaviours with noise, plain noise."""

    def __init__(self, world: World, rng: np.random.Generator) -> None:
        self._world, self._rng, self._left = world, rng, 0

    def _choose(self) -> None:
        rng = self._rng
        self._left = int(rng.integers(15, 41))
        self._mode = rng.choice(["behaviour", "smooth", "uniform"], p=[0.8, 0.1, 0.1])
        self._tremor = float(rng.choice([0.0, 0.05, 0.15, 0.3], p=[0.3, 0.3, 0.25, 0.15]))
        self._hand = BEHAVIOURS["nudge" if rng.random() < 0.3 else "carry"](self._world, rng)
        self._last = rng.uniform(-1.0, 1.0, 5)

    def act(self, state: Floats) -> Floats:
        """(73,) state -> (5,) control."""
        if self._left == 0:
            self._choose()
        self._left -= 1
        if self._mode == "uniform":
            return _control(self._rng.uniform(-1.0, 1.0, 5))
        if self._mode == "smooth":
            self._last = 0.8 * self._last + 0.2 * self._rng.uniform(-1.0, 1.0, 5)
            return _control(self._last)
        return _control(self._hand.act(state) + self._rng.normal(0.0, self._tremor, 5))


def get_behaviour(name: str, world: World, rng: np.random.Generator) -> Behaviour:
    """A fresh behaviour of that name, or an error that suggests the nearest one."""
    check_name("behaviour", name, BEHAVIOURS)
    return BEHAVIOURS[name](world, rng)


def holds(state: Floats) -> bool:
    """Whether the fingers have the cube between them."""
    low, high = GRASPED
    near = np.linalg.norm(state[CUBE] - state[PINCH]) < 0.03
    return bool(near and low < state[FINGERS] / CLOSED < high)


def _towards(
    hand: Floats, place: Floats, turn: float, grip: float, pace: float, rng: np.random.Generator
) -> Floats:
    """A control towards a place at no more than the given pace, with a little noise."""
    shift = 2.5 * (place - hand) / STEP  # the arm moves about 0.4 of the command
    far = float(np.abs(shift).max())
    shift = shift * min(1.0, pace / far) if far > 0 else shift
    move = np.array([*shift, np.clip(2.0 * turn / 0.3, -1.0, 1.0), 0.0])
    move[:4] += rng.normal(0.0, 0.05, 4)
    move[4] = grip
    return _control(move)


def _control(values: Floats) -> Floats:
    """Values clipped to ±1 and rounded to float32, as they are stored."""
    return np.clip(values, -1.0, 1.0).astype(np.float32).astype(np.float64)


def _yaw(matrix: Floats) -> float:
    """Yaw of a hand that points down, from its rotation matrix (9,)."""
    return float(np.arctan2(matrix[3], matrix[0]))


def _yaw_of(quaternion: Floats) -> float:
    w, x, y, z = quaternion
    return float(np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)))


def _nearest(angle: float) -> float:
    """The smallest turn that brings the fingers along two faces of the cube."""
    return float((angle + np.pi / 4) % (np.pi / 2) - np.pi / 4)
