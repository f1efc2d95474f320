"""The cube world: OGBench's UR5e arm with a two-finger gripper and one cube, through MuJoCo.

State (73 numbers), which determines the effect of all further controls:

    0:21   positions: 6 joints of the arm, 8 of the gripper, place and quaternion of the cube
    21:41  their velocities
    41:61  warm start of the contact solver
    61:73  place and rotation matrix of the point between the fingers, as of the last integration

The last twelve do not follow exactly from the joints: the environment aims from the position of the
fingers before the last of its 25 integrations, so that is a part of the state. A control
(5,) lasts 0.05 s: three shifts of up to 5 cm, a turn of up to 0.3 rad, closing or opening.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from djepa.errors import DjepaError, check_name
from djepa.worlds.checks import as_controls, as_ends, as_state, as_states, draw_states
from djepa.worlds.cube_ogbench import load_env
from djepa.worlds.protocol import Bools, Floats, Frames
from djepa.worlds.restorable import Restorable

STATE = 73
POSITIONS, VELOCITIES, WARM = slice(0, 21), slice(21, 41), slice(41, 61)
FINGERS, CUBE, TURN = 6, slice(14, 17), slice(17, 21)  # driver joint, place and quaternion
PINCH, PINCH_TURN = slice(61, 64), slice(64, 73)
CLOSED = 0.8  # rad of the driver joint
TOLERANCE = 0.04  # m
MAX_SPEED = 1e3  # m/s or rad/s; no control reaches it: larger speeds mean diverged physics
RULES = ("cube.v1",)


class CubeWorld(Restorable):
    """An arm, a table and a cube.

    The first world of a process compiles the model, which takes a second. All worlds share one
    environment, into which each writes its own state before it executes.
    """

    name = "cube"
    version = 1
    variant = "single"
    state_size = STATE
    action_size = 5

    def __init__(self, rule: str = "cube.v1") -> None:
        check_name("success rule", rule, RULES)
        self.rule = rule
        self.made_with = (rule,)
        self._engine, self._env = load_env()
        self._state = self.reset(0)

    def reset(self, seed: int) -> Floats:
        """Set and return a state (73,) with arm and cube at rest, drawn by the environment."""
        self._env.reset(seed=seed)
        self._state = self._read()
        return self._state.copy()

    def step(self, control: npt.ArrayLike) -> Floats:
        """Execute one control (5,)."""
        action = as_controls("Cube controls", (5,), control)
        self._write(self._state)
        self._state = self._step(action)
        return self._state.copy()

    def execute(self, state: npt.ArrayLike, controls: npt.ArrayLike) -> Floats:
        """(K, H, 5) controls, each executed from `state` -> (K, H + 1, 73)."""
        start = as_state("cube", STATE, state)
        actions = as_controls("Cube controls", (None, None, 5), controls)
        states = np.empty((len(actions), actions.shape[1] + 1, STATE))
        states[:, 0] = start
        for path, sequence in zip(states, actions, strict=True):
            self._write(start)
            for h, action in enumerate(sequence, start=1):
                path[h] = self._step(action)
        return states

    def judge(self, goal: npt.ArrayLike, states: npt.ArrayLike) -> tuple[Bools, Floats]:
        """(..., 73) final states -> success and task cost; success is cost ≤ 1, OGBench's rule.

        Cost is the distance of the cube from the goal's in units of 4 cm; its orientation and the
        arm do not count.
        """
        cost = cube_v1(*as_ends(STATE, goal, states))
        return cost <= 1.0, cost

    def render(
        self, states: npt.ArrayLike, size: int = 112, goal: npt.ArrayLike | None = None
    ) -> Frames:
        """(..., 73) states -> (..., size, size, 3); the cube of a `goal` is drawn beneath."""
        from djepa.worlds.cube_draw import draw_cube

        return draw_states(
            lambda flat, marks: draw_cube(flat, size, marks), as_states(STATE, states), goal
        )

    def _step(self, action: Floats) -> Floats:
        """What `CubeEnv.step` does to the physics, without its observations."""
        env = self._env
        env.set_control(action)
        self._engine.mj_step(env.model, env.data, nstep=env._n_steps)
        state = self._read()
        if not (np.abs(state[VELOCITIES]) <= MAX_SPEED).all():  # also false for NaN
            raise DjepaError("The arm came apart: it started from a state no control leads to.")
        return state

    def _read(self) -> Floats:
        data, site = self._env.data, self._env._pinch_site_id
        parts = (data.qpos, data.qvel, data.qacc_warmstart)
        return np.concatenate([*parts, data.site_xpos[site], data.site_xmat[site]])

    def _write(self, state: Floats) -> None:
        data, site = self._env.data, self._env._pinch_site_id
        data.qpos[:], data.qvel[:] = state[POSITIONS], state[VELOCITIES]
        data.qacc_warmstart[:] = state[WARM]
        data.site_xpos[site], data.site_xmat[site] = state[PINCH], state[PINCH_TURN]


def cube_v1(goal: Floats, states: Floats) -> Floats:
    """(..., 73) states against a goal (73,) or (..., 73) -> (...) cost in units of 4 cm."""
    apart = np.linalg.norm(states[..., CUBE] - goal[..., CUBE], axis=-1)
    return np.asarray(apart / TOLERANCE)
