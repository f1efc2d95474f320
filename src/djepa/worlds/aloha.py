"""gym-aloha's TransferCube and Insertion: third-party arms, physics and rewards, unchanged.

A control is 14 numbers as gym-aloha takes them: six joint angles (rad) and an opening in [0, 1] for
the left arm, then for the right. It holds for 0.2 s, ten steps of the environment, whose actions
go linearly from the last control to this one. A state is what MuJoCo needs to continue with the
same bits (time, positions, velocities, the solver's warm start, the drives' inputs), the
poses of two cameras (varied a little between starts, visible only in images), the last control and
the largest reward so far. Success is the environment's own: its largest reward, 4, at any step.
"""

import os
import warnings
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.errors import DjepaError, MissingExtraError, check_name
from djepa.worlds.bimanual.ik import Chain
from djepa.worlds.checks import as_controls, as_ends, as_state, as_states
from djepa.worlds.gl import Canvas
from djepa.worlds.protocol import Bools, Floats, Frames
from djepa.worlds.restorable import Restorable

TASKS = {"transfer cube": "transfer_cube", "insertion": "insertion"}  # ours -> gym-aloha's
RULES = ("gym-aloha.v1",)
COMMAND, ARM = 14, 8  # numbers of a control; positions of an arm: six joints, two fingers
HOLD, REWARD = 10, 4  # steps of a control, the largest reward
CAMERAS = ("top", "angle")
HEAD = np.array([0.006] * 3 + [0.013] * 3)  # m and rad of variation of the cameras
SEEN = HEAD.size * len(CAMERAS)
SITES = ("cali_left_site1", "cali_right_site1")  # between the finger tips
MAX_SPEED, LIMIT = 1e3, 4.0  # rad: the drives of the environment stop at 3.14158


@lru_cache(maxsize=len(TASKS))
def load_env(task: str) -> Any:
    """The dm_control environment inside gym-aloha's; its images are never rendered."""
    try:
        with warnings.catch_warnings(action="ignore"):  # dm_control warns without a display
            from gym_aloha.env import AlohaEnv
    except ImportError as error:
        raise MissingExtraError("The worlds of gym-aloha", "aloha") from error
    return AlohaEnv(TASKS[task])._env


class AlohaWorld(Restorable):
    """One of the two tasks. Worlds of a task share one environment of the process, into which each
    writes its own state before it executes.
    """

    name = "aloha"
    version = 1
    action_size = COMMAND

    def __init__(self, task: str = "transfer cube", rule: str = RULES[0]) -> None:
        check_name("task", task, TASKS)
        check_name("success rule", rule, RULES)
        self.variant, self.rule, self._env = task, rule, load_env(task)
        self.made_with = (task, rule)
        import mujoco

        self._engine, self._model = mujoco, self._env.physics.model.ptr
        kinds = mujoco.mjtState
        self._kind = kinds.mjSTATE_FULLPHYSICS | kinds.mjSTATE_WARMSTART | kinds.mjSTATE_CTRL
        self._physics = mujoco.mj_stateSize(self._model, self._kind)
        self.positions = int(self._model.nq)
        self.state_size = self._physics + SEEN + COMMAND + 1
        self.restore(self.initial_state(np.random.default_rng(0)))

    def initial_state(self, rng: np.random.Generator) -> Floats:
        """(S,) as the environment resets it: arms at rest, objects placed by its own sampler."""
        from gym_aloha.tasks import sim
        from gym_aloha.utils import sample_box_pose, sample_insertion_pose

        seed = int(rng.integers(2**31))
        one = self.variant == "transfer cube"
        drawn = sample_box_pose(seed) if one else np.concatenate(sample_insertion_pose(seed))
        sim.BOX_POSE[0], physics = drawn, self._env.physics
        with physics.reset_context():
            self._env.task.initialize_episode(physics)
        seen = (rng.normal(size=(len(CAMERAS), HEAD.size)) * HEAD).ravel()
        return np.concatenate([self._read(), seen, self._env.task.get_qpos(physics), [0.0]])

    def step(self, control: npt.ArrayLike) -> Floats:
        """Execute one control (14,)."""
        command = as_controls("Controls of gym-aloha", (COMMAND,), control, LIMIT)
        self._state = self._run(self._state, command[None])[1]
        return self._state.copy()

    def execute(self, state: npt.ArrayLike, controls: npt.ArrayLike) -> Floats:
        """(K, H, 14) controls, each executed from `state` -> (K, H + 1, S)."""
        start = as_state("gym-aloha", self.state_size, state)
        shape = (None, None, COMMAND)
        commands = as_controls("Controls of gym-aloha", shape, controls, LIMIT)
        found = np.empty((len(commands), commands.shape[1] + 1, self.state_size))
        for row, one in zip(found, commands, strict=True):
            row[:] = self._run(start, one)
        return found

    def _run(self, start: Floats, commands: Floats) -> Floats:
        physics, task = self._env.physics, self._env.task
        data, last, reward = physics.data.ptr, start[-COMMAND - 1 : -1], start[-1]
        self._engine.mj_setState(self._model, data, start[: self._physics], self._kind)
        self._engine.mj_step1(self._model, data)  # what dm_control expects before a step
        states, seen = [start], start[self._physics : self._physics + SEEN]
        for command in commands:
            for i in range(1, HOLD + 1):
                task.before_step(last + i / HOLD * (command - last), physics)
                physics.step(self._env._n_sub_steps)
                reward = max(reward, task.get_reward(physics))
            if not (np.abs(data.qvel) <= MAX_SPEED).all():  # also false for NaN
                raise DjepaError("The scene came apart: it started from overlapping bodies.")
            states.append(np.concatenate([self._read(), seen, command, [reward]]))
            last = command
        return np.stack(states)

    def _read(self) -> Floats:
        found = np.empty(self._physics)
        self._engine.mj_getState(self._model, self._env.physics.data.ptr, found, self._kind)
        return found

    def judge(self, goal: npt.ArrayLike, states: npt.ArrayLike) -> tuple[Bools, Floats]:
        """(..., S) states -> success, and the goal's reward minus that of the state."""
        there, here = as_ends(self.state_size, goal, states)
        cost = np.maximum(there[..., -1] - here[..., -1], 0.0)
        return cost < 1.0, cost

    def goal(self, start: Floats) -> Floats:
        """(S,) any state with the largest reward."""
        return np.append(start[:-1], float(REWARD))

    def places(self, states: Floats) -> Floats:
        """(..., objects, 7) position and quaternion of the objects."""
        found = states[..., 1 + 2 * ARM : 1 + self.positions]  # MuJoCo counts time as state
        return found.reshape(*found.shape[:-1], -1, 7)

    @property
    def chain(self) -> Chain:
        """The kinematic chain of both arms, for inverse kinematics."""
        sites = [int(self._model.site(name).id) for name in SITES]
        low, high = self._model.jnt_range[:6].T
        return Chain(self._engine, self._model, sites, low + 0.01, high - 0.01)

    def render(
        self, states: npt.ArrayLike, size: int = 112, goal: npt.ArrayLike | None = None
    ) -> Frames:
        """(..., S) states -> (..., size, size, 3) from above; a goal is not drawn."""
        return self.view(states, "top", size, size)

    def view(
        self, states: npt.ArrayLike, camera: str = "top", height: int = 240, width: int = 320
    ) -> Frames:
        """(..., S) states -> (..., height, width, 3) by one of the environment's cameras."""
        check_name("camera", camera, CAMERAS)
        many = as_states(self.state_size, states)
        canvas = _canvas(self.variant, os.getpid())
        flat, at = many.reshape(-1, self.state_size), CAMERAS.index(camera)
        frames = np.empty((len(flat), height, width, 3), np.uint8)
        for frame, state in zip(frames, flat, strict=True):
            canvas.place(state[1 : 1 + self.positions])
            heads = state[self._physics : self._physics + SEEN].reshape(-1, HEAD.size)
            canvas.move(camera, heads[at])
            canvas.draw(camera, frame)
        return frames.reshape(*many.shape[:-1], height, width, 3)


@lru_cache(maxsize=len(TASKS))
def _canvas(task: str, process: int) -> Canvas:
    import mujoco

    model = load_env(task).physics.model.ptr
    model.vis.quality.offsamples = 0  # without anti-aliasing one state gives the same bytes
    return Canvas(mujoco, model)
