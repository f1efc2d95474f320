"""The success rule of the arm's tasks, `arm.v1`.

push    the T lies within 2 cm and 15° of the goal's
stack   the gripper opens and withdraws, and two seconds later the upper cube lies relative to the
        lower one as in the goal: within 2 cm sideways and 1 cm in height. The withdrawal is
        simulated from the final state, so the rule needs only that state. It is skipped for a cube
        more than 6 cm beside the lower one, which has failed.

Costs are the larger error in units of its tolerance: below 1 is success.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from djepa.worlds.arms.kinematics import OPENING, TOOL, forward, inverse
from djepa.worlds.arms.scene import DT
from djepa.worlds.protocol import Floats
from djepa.worlds.rules import angle_error

if TYPE_CHECKING:
    from djepa.worlds.arms.table import ArmWorld

RULE = "arm.v1"
PLACE, TURN = 0.02, np.deg2rad(15.0)
SIDE, HEIGHT = 0.02, 0.01
FAR = 0.06
OPEN, RISE, WAIT = 0.3, 0.6, 2.0  # s
UP = 0.1  # m of the withdrawal


def judge_push(goal: Floats, states: Floats) -> Floats:
    """(..., S) -> (...) cost."""
    place = np.linalg.norm(states[..., 8:11] - goal[..., 8:11], axis=-1) / PLACE
    turn = angle_error(yaw(states), yaw(goal)) / TURN
    return np.asarray(np.maximum(place, turn))


def yaw(states: Floats) -> Floats:
    """(..., S) -> (...) angle of the first object about the vertical."""
    w, x, y, z = np.moveaxis(states[..., 11:15], -1, 0)
    return np.asarray(np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)))


def judge_stack(world: ArmWorld, goal: Floats, states: Floats) -> Floats:
    """(..., S) -> (...) cost after the withdrawal and two seconds."""
    wanted = _apart(goal)
    apart = _apart(states)
    near = np.linalg.norm(apart[..., :2] - wanted[..., :2], axis=-1) <= FAR
    if near.any():
        apart = apart.copy()
        apart[near] = _apart(withdraw(world, states[near]))
    error = np.abs(apart - wanted)
    side = np.linalg.norm(error[..., :2], axis=-1)
    return np.asarray(np.maximum(side / SIDE, error[..., 2] / HEIGHT))


def withdraw(world: ArmWorld, states: Floats) -> Floats:
    """(n, S) -> (n, S) once the gripper has opened, risen 10 cm and two seconds have passed."""
    open_, rise, wait = (round(t / DT) for t in (OPEN, RISE, WAIT))
    servo = states[:, -7:]
    above = forward(servo[:, :6], TOOL)
    above[:, 2, 3] += UP
    away = np.concatenate(
        [inverse(above, servo[:, :6], TOOL, steps=30)[0], np.full((len(states), 1), OPENING)], 1
    )
    opened = servo.copy()
    opened[:, 6] = OPENING
    share = (np.arange(1, rise + 1) / rise)[None, :, None]
    targets = np.concatenate(
        [
            np.repeat(opened[:, None], open_, axis=1),
            opened[:, None] + share * (away - opened)[:, None],
            np.repeat(away[:, None], wait, axis=1),
        ],
        axis=1,
    )
    ends = world.run(states, targets)[:, -1]
    return np.concatenate([ends, away], axis=1)


def _apart(states: Floats) -> Floats:
    """(..., S) -> (..., 3) from the lower cube to the upper one."""
    return np.asarray(states[..., 8:11] - states[..., 15:18])
