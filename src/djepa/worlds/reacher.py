"""The reacher world: dm_control's two-link planar arm, driven by torques through MuJoCo.

State (4 numbers): shoulder and wrist angle in rad (raw, the shoulder is not wrapped), then their
velocities in rad/s. A control holds for one integration of 0.02 s, dm_control's own control step,
or for `repeat` of them.

Four numbers are the whole state. The solver's only memory is its warm start, which matters while
the wrist presses against a stop; it is switched off, so an episode that is stopped and restored
anywhere continues with the same bits. Only execution needs the extra `mujoco`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from djepa.errors import DjepaError, check_name
from djepa.worlds.checks import as_controls, as_ends, as_state, as_states, draw_states
from djepa.worlds.protocol import Bools, Floats, Frames
from djepa.worlds.reacher_mujoco import load_model
from djepa.worlds.restorable import Restorable
from djepa.worlds.rules import angle_error

if TYPE_CHECKING:
    from djepa.worlds.reacher_draw import ArmAppearance

ARM, HAND = 0.12, 0.12  # m, shoulder to wrist and wrist to finger
WRIST_STOP = np.deg2rad(160.0)  # soft: hard pushing goes some 0.2 rad beyond
DT = 0.02  # s of an integration
TOLERANCE = 0.05  # rad
MAX_SPEED = 1e3  # rad/s; torques reach at most 10: larger speeds mean diverged physics
RULES = ("reacher.v1",)


class ReacherWorld(Restorable):
    """Two links on a table. Cheap to make; its live state is four numbers.

    `repeat` integrations make a control: 1 in dm_control, 2 in stable-worldmodel.
    """

    name = "reacher"
    version = 1
    state_size = 4
    action_size = 2

    def __init__(self, rule: str = "reacher.v1", repeat: int = 1) -> None:
        check_name("success rule", rule, RULES)
        if type(repeat) is not int or repeat < 1:
            raise DjepaError(f"repeat must be a whole number, 1 or more, got {repeat!r}.")
        self.rule, self.repeat, self.variant = rule, repeat, str(repeat)
        self.made_with = (rule, repeat)
        self._engine, self._model = load_model()
        self._data = self._engine.MjData(self._model)
        self.restore(np.zeros(4))

    def step(self, control: npt.ArrayLike) -> Floats:
        """Execute one control (2,): torques of shoulder and wrist in units of 0.05 Nm."""
        data = self._data
        data.ctrl[:] = as_controls("Reacher controls", (2,), control)
        data.qpos[:], data.qvel[:] = self._state[:2], self._state[2:]
        self._engine.mj_step(self._model, data, self.repeat)
        self._state = _stable(np.concatenate([data.qpos, data.qvel]))
        return self._state.copy()

    def execute(self, state: npt.ArrayLike, controls: npt.ArrayLike) -> Floats:
        """(K, H, 2) controls, each executed from `state` -> (K, H + 1, 4)."""
        start = as_state("reacher", 4, state)
        actions = as_controls("Reacher controls", (None, None, 2), controls)
        K, H, _ = actions.shape
        states = np.empty((K, H + 1, 4))
        states[:, 0] = start
        if K and H:
            begin = np.tile([0.0, *start], (K, 1))  # MuJoCo counts the time as a part of the state
            repeated = np.repeat(actions, self.repeat, axis=1)
            paths, _ = self._engine.rollout.rollout(self._model, self._data, begin, repeated)
            states[:, 1:] = _stable(paths[:, self.repeat - 1 :: self.repeat, 1:])
        return states

    def judge(self, goal: npt.ArrayLike, states: npt.ArrayLike) -> tuple[Bools, Floats]:
        """(..., 4) final states -> success and task cost; success is cost < 1.

        Cost is the larger of the two joint errors in units of 0.05 rad; velocities do not count.
        """
        cost = reacher_v1(*as_ends(4, goal, states))
        return cost < 1.0, cost

    def render(
        self,
        states: npt.ArrayLike,
        size: int = 112,
        goal: npt.ArrayLike | None = None,
        appearance: ArmAppearance | None = None,
    ) -> Frames:
        """(..., 4) states -> (..., size, size, 3); `goal` (4,) or (..., 4) is drawn beneath."""
        from djepa.worlds.reacher_draw import draw_reacher

        return draw_states(
            lambda flat, marks: draw_reacher(flat, size, marks, appearance),
            as_states(4, states),
            goal,
        )


def reacher_v1(goal: Floats, states: Floats) -> Floats:
    """(..., 4) states against a goal (4,) or (..., 4) -> (...) cost in units of the tolerance.

    The shoulder turns freely, so its angles are compared modulo 2π. The wrist has stops at ±160°
    and cannot turn through them, so its angles are compared as they are.
    """
    shoulder = angle_error(states[..., 0], goal[..., 0])
    wrist = np.abs(states[..., 1] - goal[..., 1])
    return np.asarray(np.maximum(shoulder, wrist) / TOLERANCE)


def joints(states: npt.ArrayLike) -> Floats:
    """(..., 4) states -> (..., 2, 2) x and y of wrist and finger in m; the shoulder is at 0, 0."""
    angles = np.cumsum(np.asarray(states, np.float64)[..., :2], axis=-1)
    links = np.stack([np.cos(angles), np.sin(angles)], axis=-1) * [[ARM], [HAND]]
    return np.asarray(np.cumsum(links, axis=-2))


def _stable(states: Floats) -> Floats:
    if not (np.abs(states[..., 2:]) <= MAX_SPEED).all():  # also false for NaN
        raise DjepaError(
            "The arm came apart: it started from a state no torque leads to. Angles of the wrist "
            "lie within 3 rad, velocities within 10 rad/s."
        )
    return states
