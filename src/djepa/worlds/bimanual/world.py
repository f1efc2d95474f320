"""The bimanual world: commands in, states out; restored bit for bit.

A control is 14 numbers: six joint angles (rad) and an opening in [0, 1] for the left arm, then for
the right. Or 16: position, unit quaternion and opening of each tool, which become joints by
inverse kinematics first. It holds for 0.2 s, in which the targets of the drives move linearly from
the last command to this one. A state is joint positions, velocities, the pose of the head camera
(varied a little between starts, visible only in images) and the last command: with the solver's
warm start off, nothing else affects the future.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.errors import DjepaError, check_name
from djepa.worlds.arms.kinematics import HIGH, JOINTS, LOW
from djepa.worlds.arms.piper import load_mujoco
from djepa.worlds.bimanual.arm import FINGER
from djepa.worlds.bimanual.ik import POSE, Chain, to_joints
from djepa.worlds.bimanual.rules import RULES, goal_state, task_cost
from djepa.worlds.bimanual.scene import ARMS, TASKS, draw_places, scene_xml, to_drives
from djepa.worlds.checks import as_controls, as_ends, as_state, as_states
from djepa.worlds.protocol import Bools, Floats, Frames
from djepa.worlds.restorable import Restorable

COMMAND, CAMERA = 14, 6  # numbers of a control, of the camera's shift and turn
SUBSTEPS = 50  # integrations of a control: 0.2 s
MAX_SPEED = 1e3


@lru_cache(maxsize=len(TASKS))
def load_model(task: str) -> tuple[Any, Any]:
    """MuJoCo and the model of a task."""
    mujoco = load_mujoco("The bimanual world")
    return mujoco, mujoco.MjModel.from_xml_string(scene_xml(task))


class BimanualWorld(Restorable):
    """Two arms at a table, for one task."""

    name = "bimanual"
    version = 1
    action_size = COMMAND

    def __init__(self, task: str = "grab roller", rule: str = RULES[0]) -> None:
        check_name("task", task, TASKS)
        check_name("success rule", rule, RULES)
        self.variant, self.rule = task, rule
        self.made_with = (task, rule)
        self._engine, self._model = load_model(task)
        self._data = self._engine.MjData(self._model)
        self.positions, self.speeds = int(self._model.nq), int(self._model.nv)
        self.state_size = self.positions + self.speeds + CAMERA + COMMAND
        self.restore(self.initial_state(np.random.default_rng(0)))

    def initial_state(self, rng: np.random.Generator) -> Floats:
        """(S,) arms near home, objects at rest somewhere on the table."""
        places, head, joints = draw_places(self.variant, rng)
        position = np.zeros(self.positions)
        drives = to_drives(joints)
        position[: len(drives)] = drives
        for item, place in zip(TASKS[self.variant], places, strict=True):
            at = int(self._model.joint(item.name).qposadr[0])
            position[at : at + 7] = place
        return np.concatenate([position, np.zeros(self.speeds), head, joints])

    def step(self, control: npt.ArrayLike) -> Floats:
        """Execute one control, (14,) joints or (16,) poses."""
        command = self._joints(self._state, np.asarray(control, np.float64)[None, None])
        self._state = self._run(self._state, command)[0, 1]
        return self._state.copy()

    def execute(self, state: npt.ArrayLike, controls: npt.ArrayLike) -> Floats:
        """(K, H, 14) joints or (K, H, 16) poses, each executed from `state` -> (K, H + 1, S)."""
        start = as_state("bimanual", self.state_size, state)
        return self._run(start, self._joints(start, np.asarray(controls, np.float64)))

    def _joints(self, start: Floats, controls: Floats) -> Floats:
        """(K, H, 14) commands; poses are followed from the last command."""
        width = 2 * POSE if controls.shape[-1:] == (2 * POSE,) else COMMAND
        given = as_controls("Bimanual controls", (None, None, width), controls, np.pi)
        if width == COMMAND:
            return given
        followed = [to_joints(self, start[-COMMAND:], one)[0] for one in given]
        return np.reshape(followed, (*given.shape[:-1], COMMAND))

    def _run(self, start: Floats, commands: Floats) -> Floats:
        K, H, _ = commands.shape
        states = np.empty((K, H + 1, self.state_size))
        states[:, 0] = start
        if not (K and H):
            return states
        physics = self.positions + self.speeds
        last = np.concatenate([np.broadcast_to(start[-COMMAND:], (K, 1, COMMAND)), commands], 1)
        share = np.arange(1, SUBSTEPS + 1)[:, None] / SUBSTEPS
        targets = last[:, :-1, None] + share * np.diff(last, axis=1)[:, :, None]
        begin = np.tile([0.0, *start[:physics]], (K, 1))  # MuJoCo counts time as state
        drives = to_drives(targets.reshape(K, H * SUBSTEPS, COMMAND))
        paths, _ = self._engine.rollout.rollout(self._model, self._data, begin, drives)
        states[:, 1:, :physics] = _stable(paths[:, SUBSTEPS - 1 :: SUBSTEPS, 1:], self.positions)
        states[:, 1:, physics:-COMMAND] = start[physics:-COMMAND]
        states[:, 1:, -COMMAND:] = commands
        return states

    def judge(self, goal: npt.ArrayLike, states: npt.ArrayLike) -> tuple[Bools, Floats]:
        """(..., S) states -> success and task cost against a goal (S,); success is cost < 1."""
        there, here = as_ends(self.state_size, goal, states)
        cost = task_cost(self, there, here)
        return cost < 1.0, cost

    def render(
        self, states: npt.ArrayLike, size: int = 112, goal: npt.ArrayLike | None = None
    ) -> Frames:
        """(..., S) states -> (..., size, size, 3) by the head camera; a goal is not drawn."""
        return self.view(states, "head", size, size)

    def view(
        self, states: npt.ArrayLike, camera: str = "head", height: int = 240, width: int = 320
    ) -> Frames:
        """(..., S) states -> (..., height, width, 3) by one of four cameras."""
        from djepa.worlds.bimanual.camera import draw

        many = as_states(self.state_size, states)
        flat = many.reshape(-1, self.state_size)
        frames = draw(self, flat, camera, height, width)
        return frames.reshape(*many.shape[:-1], height, width, 3)

    def goal(self, start: Floats) -> Floats:
        """(S,) the start with every object placed as the rule requires."""
        return goal_state(self, start)

    @property
    def chain(self) -> Chain:
        """The kinematic chain of both arms, for inverse kinematics."""
        sites = [int(self._model.site(f"{arm}tool").id) for arm in ARMS]
        return Chain(self._engine, self._model, sites, LOW + 0.01, HIGH - 0.01)

    def place(self, states: Floats, name: str) -> Floats:
        """(..., 7) position and quaternion of an item, or (..., 1) of the drawer's slide."""
        joint = self._model.joint(name)
        at, width = int(joint.qposadr[0]), 7 if joint.type[0] == 0 else 1
        return np.asarray(states[..., at : at + width])

    def opening(self, states: Floats) -> Floats:
        """(..., 2) how far the left and the right gripper are open, in [0, 1]."""
        drives = states[..., : 2 * (JOINTS + 2)].reshape(*states.shape[:-1], 2, JOINTS + 2)
        return np.asarray(drives[..., JOINTS:].mean(-1) / FINGER)


def _stable(states: Floats, positions: int) -> Floats:
    if not (np.abs(states[..., positions:]) <= MAX_SPEED).all():  # also false for NaN
        raise DjepaError("The scene came apart: it started from a state with overlapping bodies.")
    return states
