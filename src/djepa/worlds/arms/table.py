"""The arm world: a PiPER-class arm at a table pushes a T, or stacks two cubes.

State: the positions (qpos) and velocities (qvel) of the MuJoCo model, then the seven servo targets.
Push has 36 numbers, stack 49. The solver's warm start is off, so these numbers are the whole state.

A control (4 numbers in [-1, 1]) changes the commanded tool: x, y, z in steps of at most 5 cm, then
the gripper. It holds for 0.25 s: the servos go there in 0.2 s and wait. The tool keeps its tilt.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from djepa.errors import check_name
from djepa.worlds.arms.camera import render_states
from djepa.worlds.arms.kinematics import OPENING, TOOL, end_pose, forward, inverse
from djepa.worlds.arms.rules import RULE, judge_push, judge_stack
from djepa.worlds.arms.scene import DT, load_scene
from djepa.worlds.checks import as_controls, as_ends, as_state, as_states
from djepa.worlds.protocol import Bools, Floats, Frames
from djepa.worlds.restorable import Restorable

TASKS = ("push", "stack")
ACTIONS = 4  # x, y, z, gripper
STEP = 0.05  # m, of a control of 1
CLOSE = 0.75  # share of the gripper's range, for a control of 1
SMALL = 0.25  # a smaller control of the gripper counts as none
RAMP, HOLD = 50, 13  # integrations: servos move, servos wait
TILT = 0.45  # rad between the tool and the vertical
LOW, HIGH = np.array([0.22, -0.2, 0.012]), np.array([0.48, 0.2, 0.18])  # m, where the tool may be
PUSHING = 0.014  # m, height of the closed gripper in push


class ArmWorld(Restorable):
    """The table, the arm and the objects; `task` is push or stack."""

    name = "arm"
    version = 1
    action_size = ACTIONS

    def __init__(self, task: str = "push", rule: str = RULE) -> None:
        check_name("task of the arm", task, TASKS)
        check_name("success rule", rule, (RULE,))
        self.task, self.variant, self.rule = task, task, rule
        self.made_with = (task, rule)
        self._engine, self._model = load_scene(task)
        self._data = self._engine.MjData(self._model)
        self.nq, self.nv = int(self._model.nq), int(self._model.nv)
        self.state_size = self.nq + self.nv + 7
        self.restore(at_rest(self, [0.3, 0.0, 0.1], OPENING))

    def step(self, control: npt.ArrayLike) -> Floats:
        """Execute one control (4,)."""
        action = as_controls("Arm controls", (ACTIONS,), control)
        self._state = self.execute(self._state, action[None, None])[0, -1]
        return self._state.copy()

    def execute(self, state: npt.ArrayLike, controls: npt.ArrayLike) -> Floats:
        """(K, H, 4) controls, each executed from `state` -> (K, H + 1, S)."""
        start = as_state("arm", self.state_size, state)
        actions = as_controls("Arm controls", (None, None, ACTIONS), controls)
        K, H, _ = actions.shape
        states = np.empty((K, H + 1, self.state_size))
        states[:, 0] = start
        if K and H:
            servos = servo_targets(start[-7:], actions)
            each = RAMP + HOLD
            share = np.minimum(np.arange(1, each + 1) / RAMP, 1.0)[:, None]
            ways = servos[:, :-1, None] + share * (servos[:, 1:, None] - servos[:, :-1, None])
            paths = self.run(start, ways.reshape(K, H * each, 7))
            states[:, 1:, :-7] = paths[:, each - 1 :: each]
            states[:, 1:, -7:] = servos[:, 1:]
        return states

    def run(self, state: Floats, servos: Floats) -> Floats:
        """(S,) or (K, S) states, (K, T, 7) servo targets -> (K, T, qpos + qvel), every step."""
        K = len(servos)
        bodies = np.broadcast_to(state[..., :-7], (K, self.nq + self.nv))
        begin = np.concatenate([np.zeros((K, 1)), bodies], axis=1)  # with the time
        paths, _ = self._engine.rollout.rollout(self._model, self._data, begin, servos)
        return np.asarray(paths[..., 1:])

    def judge(self, goal: npt.ArrayLike, states: npt.ArrayLike) -> tuple[Bools, Floats]:
        """(..., S) final states -> success and task cost; success is cost < 1."""
        goals, ends = as_ends(self.state_size, goal, states)
        cost = judge_push(goals, ends) if self.task == "push" else judge_stack(self, goals, ends)
        return cost < 1.0, cost

    def render(
        self,
        states: npt.ArrayLike,
        size: int = 112,
        goal: npt.ArrayLike | None = None,
        camera: str = "front",
    ) -> Frames:
        """(..., S) states -> (..., size, size, 3); a `goal` is blended in at a third."""
        frames = render_states(self.task, as_states(self.state_size, states), size, camera)
        if goal is None:
            return frames
        behind = render_states(self.task, as_states(self.state_size, goal), size, camera)
        return ((2 * frames.astype(np.uint16) + behind) // 3).astype(np.uint8)


def to_moves(actions: Floats) -> Floats:
    """(..., 4) controls -> (..., 7): metres x, y, z, no turn, closing of the gripper."""
    moves = np.zeros((*actions.shape[:-1], 7))
    moves[..., :3] = STEP * actions[..., :3]
    grip = CLOSE * actions[..., 3]
    moves[..., 6] = np.where(np.abs(grip) < SMALL * CLOSE, 0.0, grip)
    return moves


def servo_targets(servo: Floats, actions: Floats) -> Floats:
    """(7,) present targets, (K, H, 4) controls -> (K, H + 1, 7) targets by inverse kinematics.

    They depend on the commands alone, so they are known before execution.
    """
    K, H, _ = actions.shape
    moves = to_moves(actions)
    servos = np.empty((K, H + 1, 7))
    servos[:, 0] = servo
    target = np.repeat(tool_frame(np.zeros(3))[None], K, axis=0)
    for h in range(H):
        here = forward(servos[:, h, :6], TOOL)[:, :3, 3]
        target[:, :3, 3] = np.clip(here + moves[:, h, :3], LOW, HIGH)
        servos[:, h + 1, :6] = inverse(target, servos[:, h, :6], TOOL)[0]
        closed = 1 - servos[:, h, 6] / OPENING + moves[:, h, 6]
        servos[:, h + 1, 6] = OPENING * (1 - np.clip(closed, 0.0, 1.0))
    return servos


def poses(states: Floats) -> Floats:
    """(..., S) -> (..., 7): the tool's x, y, z, rx, ry, rz and how far the gripper is closed."""
    closed = 1 - states[..., 6:8].sum(-1, keepdims=True) / OPENING
    return np.concatenate([end_pose(states[..., :6], TOOL), closed], axis=-1)


def tool_frame(place: npt.ArrayLike) -> Floats:
    """(4, 4) frame of the tilted tool at x, y, z; the fingers open along y."""
    sine, cosine = np.sin(TILT), np.cos(TILT)
    frame = np.eye(4)
    frame[:3, :3] = [[-cosine, 0, sine], [0, 1, 0], [-sine, 0, -cosine]]
    frame[:3, 3] = place
    return frame


def at_rest(world: ArmWorld, place: npt.ArrayLike, opening: float) -> Floats:
    """(S,) the tool at x, y, z, objects at rest on the table, apart from each other."""
    x, y, _ = place = np.asarray(place, np.float64)
    joints, _ = inverse(tool_frame(place), [np.arctan2(y, x), 1.8, -1.4, 0, 0.9, 0], TOOL, 60)
    state = np.zeros(world.state_size)
    state[:8] = [*joints, opening / 2, opening / 2]
    state[-7:] = [*joints, opening]
    bodies = ((0.34, 0.1),) if world.task == "push" else ((0.34, 0.1), (0.34, -0.1))
    for i, (bx, by) in enumerate(bodies):
        put(state, i, (bx, by, 0.015 if world.task == "push" else 0.02), 0.0)
    return state


def put(state: Floats, body: int, place: tuple[float, float, float], yaw: float) -> None:
    """Place an object, upright and at rest."""
    at = 8 + 7 * body
    state[at : at + 7] = [*place, np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)]


SECONDS = DT * (RAMP + HOLD)  # of a control
