"""Starts of the arm world, and the behaviours that drive references and training episodes.

push    the T lies anywhere on the table and the closed gripper stands beside it. A reference pushes
        towards a point of the T; the final pose of the T is the goal.
stack   the upper cube is in the gripper, beside and above the lower one. A reference carries it
        there, lowers it and opens the gripper; a reference whose cube does not stay is dropped.
"""

from collections.abc import Callable

import numpy as np

from djepa.worlds.arms.kinematics import TOOL, forward
from djepa.worlds.arms.rules import withdraw, yaw
from djepa.worlds.arms.scene import CUBE, MIDDLE, PIECES, THICK
from djepa.worlds.arms.table import ACTIONS, HIGH, LOW, PUSHING, STEP, ArmWorld, at_rest, put
from djepa.worlds.behaviours import Controls, drive
from djepa.worlds.protocol import Floats
from djepa.worlds.starts import CONTEXT_FRAMES, DECOY_TRIES, Start

CONTROLS = 5  # of a candidate
HISTORY = CONTEXT_FRAMES - 1
DROPS = ("unmoved", "edge", "lost", "solved", "replay", "decoy")
LEAST = 0.03  # m, least distance of the goal of a T, or
LEAST_TURN = 0.35  # rad
SQUEEZE = 0.012  # m by which the commanded gap is less than the cube's width
AXES = {"push": (1.0, 1.0, 0.0, 0.0), "stack": (1.0, 1.0, 1.0, 1.0)}  # controls that a task uses
Rng = np.random.Generator


class Push:
    """Pushes towards a point of the T, along a slightly curved line."""

    def __init__(self, world: ArmWorld, rng: Rng) -> None:
        self._rng = rng
        self._heading: float | None = None
        self._pace, self._bend = rng.uniform(0.5, 1.0), rng.normal(0.0, 0.15)

    def act(self, state: Floats) -> Floats:
        """(S,) -> (4,)."""
        if self._heading is None:
            place, size = PIECES[int(self._rng.integers(2))]
            inside = np.array(place) + self._rng.uniform(-0.5, 0.5, 2) * size
            angle = yaw(state)
            turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
            way = state[8:10] + turn @ inside - tool(state)[:2]
            self._heading = float(np.arctan2(way[1], way[0]))
        self._heading = heading = self._heading + self._bend
        x, y = np.cos(heading), np.sin(heading)
        return np.array([self._pace * x, self._pace * y, 0.0, 0.0])


class Stack:
    """Carries the upper cube over the lower one, lowers it and opens the gripper."""

    def __init__(self, world: ArmWorld, rng: Rng) -> None:
        self._aside = rng.normal(0.0, 0.002, 2)  # error of its aim

    def act(self, state: Floats) -> Floats:
        """(S,) -> (4,)."""
        upper, lower = state[8:11], state[15:18]
        way = (lower - upper)[:2] + self._aside
        down = lower[2] + CUBE + 0.004 - upper[2]
        far = float(np.abs(way).max())
        if far > 0.01:
            return np.array([*np.clip(way / STEP, -1, 1), 0.0 if down < 0 else down / STEP, 0.0])
        if down < -0.004:
            return np.array([*(way / STEP), max(down / STEP, -1.0), 0.0])
        return np.array([0.0, 0.0, 0.0, -1.0])


REFERENCES: dict[str, Callable[[ArmWorld, Rng], Push | Stack]] = {"push": Push, "stack": Stack}


class Expert:
    """The behaviour of references: `Push` or `Stack`, by the world's task."""

    def __init__(self, world: ArmWorld, rng: Rng) -> None:
        self._inner = REFERENCES[world.task](world, rng)

    def act(self, state: Floats) -> Floats:
        """(S,) -> (4,) in [-1, 1]."""
        return _stored(self._inner.act(state))


class Explorer:
    """The behaviour of training episodes: the expert with noise, or noise alone."""

    def __init__(self, world: ArmWorld, rng: Rng) -> None:
        self._expert, self._rng = Expert(world, rng), rng
        self._noise = rng.choice([0.1, 0.3, 0.6, 1.0])
        self._share, self._axes = float(rng.random() < 0.7), np.array(AXES[world.task])
        self._drift = rng.normal(0.0, 0.5, ACTIONS) * (1 - self._share)

    def act(self, state: Floats) -> Floats:
        """(S,) -> (4,) in [-1, 1]."""
        noise = self._rng.normal(0.0, self._noise, ACTIONS) + self._drift
        return _stored(self._share * self._expert.act(state) + self._axes * noise)


def _stored(control: Floats) -> Floats:
    """The control clipped to the bounds and rounded to float32."""
    return np.clip(control, -1.0, 1.0).astype(np.float32).astype(np.float64)


def tool(states: Floats) -> Floats:
    """(..., S) -> (..., 3) position of the tool."""
    return forward(states[..., :6], TOOL)[..., :3, 3]


def initial_state(world: ArmWorld, rng: Rng) -> Floats:
    """(S,) a random first state of an episode."""
    while True:
        state = _beside_tee(world, rng) if world.task == "push" else _in_hand(world, rng)
        if state is not None:
            return state


def draw_start(
    world: ArmWorld, behaviour: str, rng: Rng, horizon: int, centres: int = 1
) -> tuple[Start, Controls] | str:
    """One start and its (C, H, 4) centres, the first being the reference; or why it is dropped."""
    before, history = _segment(world, initial_state(world, rng), _Still(), HISTORY)
    state = before[-1]
    path, reference = _segment(world, state, Expert(world, rng), horizon)
    if reason := _fault(world, state, path[-1]):
        return reason
    found = [reference]
    for _ in range(DECOY_TRIES):
        if len(found) == centres:
            break
        other, segment = _segment(world, state, Explorer(world, rng), horizon)
        if not world.judge(other[-1], state)[0]:
            found.append(segment)
    if len(found) < centres:
        return "decoy"
    return Start(state, path[-1], before, history), np.stack(found)


def _fault(world: ArmWorld, state: Floats, end: Floats) -> str:
    """Why `end` cannot be a goal; empty if it can."""
    if world.task == "stack":
        if state[10] < CUBE or abs(withdraw(world, end[None])[0, 10] - 1.5 * CUBE) > 0.005:
            return "lost"
        return "solved" if world.judge(end, state)[0] else ""
    moved = np.linalg.norm(end[8:10] - state[8:10])
    turned = abs((yaw(end) - yaw(state) + np.pi) % (2 * np.pi) - np.pi)
    if moved < LEAST and turned < LEAST_TURN:
        return "unmoved"
    away = np.abs(end[8:10] - MIDDLE)
    return "edge" if away.max() > 0.17 or abs(end[10] - THICK / 2) > 0.003 else ""


class _Still:
    def act(self, state: Floats) -> Floats:
        return np.zeros(ACTIONS)


def _segment(
    world: ArmWorld, state: Floats, hand: "Expert | Explorer | _Still", controls: int
) -> tuple[Floats, Controls]:
    """Let `hand` act from the state: states (H + 1, S) and controls (H, 4)."""
    world.restore(state)
    return drive(world, hand, controls)  # type: ignore[arg-type]


def _beside_tee(world: ArmWorld, rng: Rng) -> Floats | None:
    centre = np.array(MIDDLE) + rng.uniform(-1, 1, 2) * (0.05, 0.09)
    angle, side = rng.uniform(-np.pi, np.pi, 2)
    place = centre + rng.uniform(0.07, 0.11) * np.array([np.cos(side), np.sin(side)])
    if (place < LOW[:2] + 0.01).any() or (place > HIGH[:2] - 0.01).any():
        return None
    own = place - centre
    c, s = np.cos(angle), np.sin(angle)
    own = np.array([c * own[0] + s * own[1], -s * own[0] + c * own[1]])  # in the frame of the T
    for middle, size in PIECES:
        if (np.abs(own - middle) < np.array(size) / 2 + 0.022).all():
            return None
    state = at_rest(world, [*place, PUSHING], 0.0)
    put(state, 0, (float(centre[0]), float(centre[1]), THICK / 2), float(angle))
    return state


def _in_hand(world: ArmWorld, rng: Rng) -> Floats | None:
    lower = np.array(MIDDLE) + rng.uniform(-1, 1, 2) * (0.05, 0.09)
    side = rng.uniform(-np.pi, np.pi)
    upper = lower + rng.uniform(0.05, 0.09) * np.array([np.cos(side), np.sin(side)])
    height = rng.uniform(0.085, 0.11)
    grasp = rng.uniform(-0.006, 0.006), 0.0, rng.uniform(0.0, 0.01)  # of the cube in the hand
    place = np.array([*upper, height]) - grasp
    if (place < LOW + 0.01).any() or (place > HIGH - 0.01).any():
        return None
    state = at_rest(world, place, CUBE)
    state[-1] = CUBE - SQUEEZE
    put(state, 0, (float(upper[0]), float(upper[1]), float(height)), 0.0)
    put(state, 1, (float(lower[0]), float(lower[1]), CUBE / 2), rng.uniform(-0.4, 0.4))
    return state
