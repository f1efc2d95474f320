"""Our worlds as Gymnasium environments, and a wrapper that stores a planner's inputs.

gymnasium.make("djepa.interop.gym:djepa/World-v0", world="reacher")
gymnasium.make_vec("djepa.interop.gym:djepa/World-v0", 4, world="push", shape="L")

`world` is push, reacher, granular or one of your own, `package.module:TASK`. The goal frame is
`info["goal"]`, as in stable-worldmodel.
"""

from collections import deque
from typing import Any, ClassVar

import numpy as np
import torch

from djepa.errors import MissingExtraError, check_name, unknown_name
from djepa.models.protocol import CONTEXT, STRIDE
from djepa.tasks.task import PLAIN, Scene, get_task
from djepa.worlds.granular import PUSH_BOUND
from djepa.worlds.protocol import Frames, World

try:
    import gymnasium
except ImportError as error:
    raise MissingExtraError("The Gymnasium environment", "gym") from error

ENV_ID = "djepa/World-v0"
EPISODE = 100  # controls until the registered environment truncates
LIMIT = 1e6  # no number of a state is larger
BOUNDS = {"granular": PUSH_BOUND}  # of a control, if not 1
FEW = 8  # pixels of an unused frame
TRIES = 1000  # draws of a start; nearly all are kept


class WorldEnv(gymnasium.Env):  # type: ignore[misc]
    """Any world: reward is -cost, and an episode ends when the rule is satisfied.

    `reset` draws a start and a goal that a behaviour reaches; options "state" and "goal_state"
    (S,) replace them.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 10}
    world: World

    def __init__(
        self,
        world: str = "push",
        shape: str | None = None,
        rule: str | None = None,
        size: int = 112,
        render_mode: str | None = "rgb_array",
    ) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise unknown_name("render mode", str(render_mode), self.metadata["render_modes"])
        self.task, self.render_mode, self.size = get_task(world), render_mode, size
        shape, rule = shape or self.task.shapes[0], rule or self.task.rules[0]
        check_name("shape", shape, self.task.shapes)
        check_name("rule", rule, self.task.rules)
        self.shape, self.world = shape, self.task.make(shape, rule)
        numbers = gymnasium.spaces.Box(-LIMIT, LIMIT, (self.world.state_size,), np.float64)
        self.observation_space = gymnasium.spaces.Dict({"state": numbers})
        most = BOUNDS.get(self.task.name, 1.0)
        self.action_space = gymnasium.spaces.Box(-most, most, (self.task.actions,), np.float32)
        self._goal = self.world.snapshot()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode; a seed fixes its start, its goal and those of the episodes after it."""
        super().reset(seed=seed)
        given = options or {}
        for name in given:
            check_name("reset option", name, ("state", "goal_state"))
        state, goal = given.get("state"), given.get("goal_state")
        if state is None or goal is None:
            drawn = self._draw()
            state = drawn[0] if state is None else state
            goal = drawn[1] if goal is None else goal
        self.world.restore(goal)  # the world refuses an invalid state
        self._goal = self.world.snapshot()
        self._aim = self.world.render(self._goal, self.size)
        self.world.restore(state)
        return {"state": self.world.snapshot()}, self._info()

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Execute one control."""
        state, info = self.world.step(action), self._info()
        return {"state": state}, -info["cost"], info["success"], False, info

    def render(self) -> Frames | None:
        """The live state, (size, size, 3)."""
        if self.render_mode is None:
            return None
        return self.world.render(self.world.snapshot(), self.size)

    def felt(self) -> Any:
        """(2, 4) the task's proprioception, now and at the goal; push: x, y, vx, vy."""
        states = torch.from_numpy(np.stack([self.world.snapshot(), self._goal]))
        scene = Scene(self.task.name, self.shape, PLAIN)
        return scene.observe(states, FEW)[1].float().numpy()

    def _draw(self) -> tuple[Any, Any]:
        hand = next(iter(self.task.behaviours))
        for _ in range(TRIES):
            drawn = self.task.draw_start(self.world, hand, self.np_random, self.task.horizon, 1)
            if not isinstance(drawn, str):
                return drawn[0].state, drawn[0].goal
        raise RuntimeError(f"No start of {TRIES} was kept.")

    def _info(self) -> dict[str, Any]:
        success, cost = self.world.judge(self._goal, self.world.snapshot())
        about = {"success": bool(success), "cost": float(cost), "goal_state": self._goal.copy()}
        return {**about, "goal": self._aim.copy()}


class Remember(gymnasium.Wrapper):  # type: ignore[misc]
    """Adds a planner's inputs to `info`: `context`, three frames a stride apart, and `history`.

    If the environment has proprioception (`proprio` and `goal_proprio`, as PushT of
    stable-worldmodel, or our worlds' `felt`), also `djepa_proprio` (4, 4), which DINO-WM and
    JEPA-WM need. Pass it to `World(..., extra_wrappers=[Remember])`. Before the first control the
    past repeats the present state. Controls are clipped to the action space, as in costs: a search
    may exceed it.
    """

    def __init__(self, env: Any, stride: int = STRIDE) -> None:
        super().__init__(env)
        self._frames: deque[Any] = deque(maxlen=(CONTEXT - 1) * stride + 1)
        self._controls: deque[Any] = deque(maxlen=(CONTEXT - 1) * stride)
        self._felt: deque[Any] = deque(maxlen=self._frames.maxlen)
        self._stride = stride

    def reset(self, **given: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode with an empty memory."""
        seen, info = self.env.reset(**given)
        still = np.zeros(self.env.action_space.shape, np.float32)
        self._frames.extend([info["pixels"]] * (self._frames.maxlen or 0))
        self._felt.extend([self._feels(info)] * (self._frames.maxlen or 0))
        self._controls.extend([still] * (self._controls.maxlen or 0))
        return seen, self._added(info)

    def step(self, action: Any) -> Any:
        """Execute the control clipped to the action space, and store it."""
        action = np.clip(action, self.env.action_space.low, self.env.action_space.high)
        seen, reward, ended, cut, info = self.env.step(action)
        self._frames.append(info["pixels"])
        self._felt.append(self._feels(info))
        self._controls.append(np.asarray(action, np.float32))
        return seen, reward, ended, cut, self._added(info)

    def _added(self, info: dict[str, Any]) -> dict[str, Any]:
        context = np.stack(list(self._frames)[:: self._stride])
        added = {"context": context, "history": np.stack(list(self._controls))}
        felt = list(self._felt)[:: self._stride]
        if felt[-1] is not None:
            now = [one[0] for one in felt]
            added["djepa_proprio"] = np.stack([*now, felt[-1][1]]).astype(np.float32)
        return {**info, **added}

    def _feels(self, info: dict[str, Any]) -> Any:
        """(2, 4) proprioception now and at the goal, or None."""
        if hasattr(self.env.unwrapped, "felt"):
            return self.env.unwrapped.felt()
        if "proprio" in info and "goal_proprio" in info:
            return np.stack([np.ravel(info[name])[-4:] for name in ("proprio", "goal_proprio")])
        return None


if ENV_ID not in gymnasium.registry:
    gymnasium.register(ENV_ID, f"{__name__}:WorldEnv", max_episode_steps=EPISODE)
