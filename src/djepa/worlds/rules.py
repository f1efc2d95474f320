"""Success rules of the push world. They are named and versioned; every result stores the name.

Both rules read the state after the last control. With e_x the joint L2 error of pusher xy and block
xy, and e_a the angle error,

    success  iff  e_x < 20  and  e_a < π/9,        cost = max(e_x / 20, e_a / (π/9)),

so success is the same as cost < 1, and the cost still orders the failures.
"""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from djepa.errors import check_name
from djepa.worlds.shapes import Shape, turned

Floats = npt.NDArray[np.float64]
POSITION_TOLERANCE = 20.0
ANGLE_TOLERANCE = math.pi / 9


def angle_error(a: Floats, b: Floats) -> Floats:
    """Smallest absolute difference of two angles modulo 2π, in [0, π]."""
    turns = np.round((a - b) / (2 * math.pi))
    return np.asarray(np.abs(a - b - 2 * math.pi * turns))


def _cost(goal: Floats, states: Floats) -> Floats:
    position = np.linalg.norm(states[..., :4] - goal[..., :4], axis=-1)
    angle = angle_error(states[..., 4], goal[..., 4])
    return np.asarray(np.maximum(position / POSITION_TOLERANCE, angle / ANGLE_TOLERANCE))


def push_v1(shape: Shape, goal: Floats, states: Floats) -> Floats:
    """(..., 10) states against a goal of shape (10,) or (..., 10) -> (...) cost."""
    return _cost(goal, states)


def push_symmetric_v1(shape: Shape, goal: Floats, states: Floats) -> Floats:
    """As `push.v1`, against the nearest of the goal poses that look the same.

    A block turned by its symmetry about its centre of gravity occupies the same canvas. For Z the
    body origin is not that centre, so the origin of the turned pose moves too.
    """
    costs = [_cost(other, states) for other in _equivalent_goals(shape, goal)]
    return np.asarray(np.minimum.reduce(costs))


def _equivalent_goals(shape: Shape, goal: Floats) -> list[Floats]:
    goals = [goal]
    for k in range(1, shape.symmetry):
        other = goal.copy()
        other[..., 4] = goal[..., 4] + k * shape.turn
        # The centre of gravity stays, so the origin moves by the change of the offset between them.
        other[..., 2:4] += turned(shape.centre, goal[..., 4]) - turned(shape.centre, other[..., 4])
        goals.append(other)
    return goals


Rule = Callable[[Shape, Floats, Floats], Floats]
RULES: dict[str, Rule] = {"push.v1": push_v1, "push-symmetric.v1": push_symmetric_v1}


def get_rule(name: str) -> Rule:
    """The rule of that name, or an error that suggests the nearest one."""
    check_name("success rule", name, RULES)
    return RULES[name]
