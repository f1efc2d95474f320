"""Our worlds inside LeRobot: the environment type `djepa`.

lerobot-eval --env.discover_packages_path=lerobot_env_djepa --env.type=djepa --env.world=push ...

A policy sees two cameras, the present frame and the goal frame, and proprioception: in push
position and velocity of the pusher. With `poses` it also sees the poses of block and goal
(`observation.environment_state`), and a planner that chooses among its chunks sees proprioception
now and at the goal (`observation.robot_state`). Success is the world's own rule. Needs the extra
`lerobot`.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import gymnasium
import numpy as np
import torch

from djepa.errors import DjepaError, MissingExtraError
from djepa.interop.gym import WorldEnv
from djepa.tasks.task import PLAIN, Scene, get_task
from djepa.worlds.push import CANVAS

try:
    from lerobot.configs.types import FeatureType, PolicyFeature
    from lerobot.envs.configs import EnvConfig
except ImportError as error:
    raise MissingExtraError("The LeRobot environment", "lerobot") from error

ENV_ID = "djepa/Cameras-v0"
FELT = 4  # numbers of proprioception
POSES, HALF = 10, CANVAS / 2  # numbers of `poses`; half the width of push, in its units
ACTION, IMAGES, STATE = "action", "observation.images", "observation.state"
POSE = "observation.environment_state"


class CameraEnv(gymnasium.Env):  # type: ignore[misc]
    """A world with frames and proprioception as observations, under LeRobot's names."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(
        self,
        world: str = "push",
        shape: str = "",
        size: int = 112,
        render_mode: str = "rgb_array",
        poses: bool = False,
    ) -> None:
        if poses and get_task(world).name != "push":
            raise DjepaError(f"poses are those of push; {world} has none.")
        self.poses = poses
        self._env = WorldEnv(world, shape or None, size=size, render_mode=render_mode)
        self.render_mode, self.action_space = render_mode, self._env.action_space
        self._scene = Scene(world, shape or get_task(world).shapes[0], PLAIN)
        self.task = self.task_description = f"bring the world {world} to the goal frame"
        picture = gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8)
        felt = gymnasium.spaces.Box(-np.inf, np.inf, (FELT,), np.float32)
        cameras = gymnasium.spaces.Dict({"now": picture, "goal": picture})
        seen: dict[str, Any] = {"pixels": cameras, "agent_pos": felt}
        if poses:
            numbers = gymnasium.spaces.Box(-np.inf, np.inf, (POSES,), np.float32)
            seen["environment_state"] = numbers
            seen["robot_state"] = gymnasium.spaces.Dict({"now": felt, "goal": felt})
        self.observation_space = gymnasium.spaces.Dict(seen)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode: a start and a goal that a behaviour reaches."""
        super().reset(seed=seed)
        seen, info = self._env.reset(seed=seed, options=options)
        return self._seen(seen, info), self._told(info)

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Execute one control, clipped to the action space, which policies may exceed."""
        inside = np.clip(action, self.action_space.low, self.action_space.high)
        seen, reward, ended, cut, info = self._env.step(inside)
        return self._seen(seen, info), reward, ended, cut, self._told(info)

    def render(self) -> Any:
        """The live state."""
        return self._env.render()

    def _seen(self, seen: dict[str, Any], info: dict[str, Any]) -> dict[str, Any]:
        state = torch.from_numpy(seen["state"])[None]
        frame, felt = self._scene.observe(state, self._env.size)
        pixels = {"now": frame[0].numpy(), "goal": info["goal"]}
        found: dict[str, Any] = {"pixels": pixels, "agent_pos": felt[0].float().numpy()}
        if self.poses:
            now, goal = self._env.felt()
            found["environment_state"] = poses(seen["state"], info["goal_state"])
            found["robot_state"] = {"now": now, "goal": goal}
        return found

    def _told(self, info: dict[str, Any]) -> dict[str, Any]:
        return {"is_success": info["success"], "cost": info["cost"]}


def poses(state: Any, goal: Any) -> Any:
    """(..., 10) states of push -> (..., 10): the block now, the pusher and the block at the goal.

    Positions are from -1 to 1; an angle is its cosine and sine.
    """

    def block(of: Any) -> Any:
        turned = [np.cos(of[..., 4:5]), np.sin(of[..., 4:5])]
        return np.concatenate([of[..., 2:4] / HALF - 1, *turned], axis=-1)

    found = [block(state), goal[..., :2] / HALF - 1, block(goal)]
    return np.concatenate(found, axis=-1).astype(np.float32)


@EnvConfig.register_subclass("djepa")
@dataclass
class DJEPAEnv(EnvConfig):  # type: ignore[misc]
    """Settings of the environment type `djepa`."""

    task: str | None = "Cameras-v0"
    fps: int = 10
    world: str = "push"
    shape: str = ""
    episode_length: int = 100
    size: int = 112
    render_mode: str = "rgb_array"
    poses: bool = False
    features: dict[str, PolicyFeature] = field(default_factory=dict)
    features_map: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        picture = (self.size, self.size, 3)
        actions = get_task(self.world).actions
        self.features = {
            ACTION: PolicyFeature(type=FeatureType.ACTION, shape=(actions,)),
            "agent_pos": PolicyFeature(type=FeatureType.STATE, shape=(FELT,)),
            "pixels/now": PolicyFeature(type=FeatureType.VISUAL, shape=picture),
            "pixels/goal": PolicyFeature(type=FeatureType.VISUAL, shape=picture),
        }
        self.features_map = {
            ACTION: ACTION,
            "agent_pos": STATE,
            "pixels/now": f"{IMAGES}.now",
            "pixels/goal": f"{IMAGES}.goal",
        }
        if self.poses:
            told = PolicyFeature(type=FeatureType.ENV, shape=(POSES,))
            self.features["environment_state"] = told
            self.features_map["environment_state"] = POSE

    @property
    def package_name(self) -> str:
        """The module that LeRobot imports if the environment is not registered."""
        return __name__

    @property
    def gym_id(self) -> str:
        """The environment's ID in Gymnasium."""
        return ENV_ID

    @property
    def gym_kwargs(self) -> dict[str, Any]:
        """Arguments of the environment."""
        own = {
            name: getattr(self, name) for name in ("world", "shape", "size", "render_mode", "poses")
        }
        return {**own, "max_episode_steps": self.episode_length}


if ENV_ID not in gymnasium.registry:
    gymnasium.register(ENV_ID, f"{__name__}:CameraEnv", max_episode_steps=100)
