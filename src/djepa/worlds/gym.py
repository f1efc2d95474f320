"""The push world as a Gymnasium environment. Importing this module registers `djepa/Push-v0`:

gymnasium.make("djepa.worlds.gym:djepa/Push-v0", shape="L", render_mode="rgb_array")
"""

from typing import Any, ClassVar

import numpy as np

from djepa.errors import MissingExtraError, check_name, unknown_name
from djepa.worlds.behaviours import get_behaviour
from djepa.worlds.protocol import Floats, Frames
from djepa.worlds.push import PushWorld
from djepa.worlds.starts import draw_start

try:
    import gymnasium
except ImportError as error:
    raise MissingExtraError("The Gymnasium environment", "gym") from error

ENV_ID = "djepa/Push-v0"
EPISODE = 100  # controls until the registered environment truncates
GOAL_CONTROLS = 25  # the goal is where a behaviour ends after this many controls
LIMIT = 1e6  # the pusher may leave the table, but not this far in any episode
Observation = dict[str, Floats]


class PushEnv(gymnasium.Env):  # type: ignore[misc]
    """Push the block to its goal: reward is -cost, and an episode ends when the rule is satisfied.

    `reset` draws a start and a goal that its behaviour reached; options "state" and "goal", ten
    numbers each, replace them.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(
        self,
        shape: str = "T",
        rule: str = "push.v1",
        behaviour: str = "push",
        size: int = 112,
        render_mode: str | None = None,
    ) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise unknown_name("render mode", str(render_mode), self.metadata["render_modes"])
        self.render_mode = render_mode
        self.size = size
        self.world = PushWorld(shape, rule)
        get_behaviour(behaviour, self.world, np.random.default_rng(0))  # fails now for a wrong name
        self.behaviour = behaviour
        numbers = gymnasium.spaces.Box(-LIMIT, LIMIT, (self.world.state_size,), np.float64)
        self.observation_space = gymnasium.spaces.Dict({"state": numbers, "goal": numbers})
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self._begin(self.world.snapshot(), self.world.snapshot())

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; a seed fixes its start, its goal and those of the episodes after it."""
        super().reset(seed=seed)
        given = options or {}
        for name in given:
            check_name("reset option", name, ("state", "goal"))
        state, goal = given.get("state"), given.get("goal")
        if state is None or goal is None:
            drawn_state, drawn_goal = self._draw()
            state = drawn_state if state is None else state
            goal = drawn_goal if goal is None else goal
        self._begin(state, goal)
        return self._observe(), self._info()

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Execute one control."""
        self.world.step(action)
        self._taken.append(np.array(action, dtype=np.float64))
        info = self._info()
        return self._observe(), -info["cost"], info["success"], False, info

    def render(self) -> Frames | None:
        """The live state over its goal, (size, size, 3)."""
        if self.render_mode is None:
            return None
        return self.world.render(self.world.snapshot(), self.size, goal=self._goal)

    def _begin(self, state: Any, goal: Any) -> None:
        self.world.restore(goal)  # the world refuses an invalid state
        self._goal = self.world.snapshot()
        self.world.restore(state)
        self._start, self._taken = self.world.snapshot(), list[Floats]()

    def _draw(self) -> tuple[Floats, Floats]:
        while True:
            drawn = draw_start(self.world, self.behaviour, self.np_random, GOAL_CONTROLS)
            if not isinstance(drawn, str):
                return drawn[0].state, drawn[0].goal

    def _observe(self) -> Observation:
        return {"state": self.world.snapshot(), "goal": self._goal.copy()}

    def _info(self) -> dict[str, Any]:
        success, cost = self.world.judge(self._goal, self.world.snapshot())
        return {"success": bool(success), "cost": float(cost), "rule": self.world.rule}

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the engine, which is rebuilt by executing the episode again."""
        recipe = (self.world.shape.name, self.world.rule)
        return {key: value for key, value in self.__dict__.items() if key != "world"} | {
            "_of": recipe
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.world = PushWorld(*state.pop("_of"))
        self.__dict__.update(state)
        self.world.restore(self._start)
        for control in self._taken:
            self.world.step(control)


if ENV_ID not in gymnasium.registry:
    gymnasium.register(ENV_ID, f"{__name__}:PushEnv", max_episode_steps=EPISODE)
