"""Every world as a Gymnasium environment, alone and vectorised, and what a planner remembers."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import djepa.interop.gym as here
from djepa.errors import DjepaError
from djepa.interop.gym import ENV_ID, Remember

ID = f"djepa.interop.gym:{ENV_ID}"


@pytest.mark.filterwarnings("ignore:.*normalized space")  # pushes of granular are within ±4
@pytest.mark.parametrize("world", ["push", "reacher", "granular"])
def test_a_world_is_an_environment(world: str) -> None:
    env = gymnasium.make(ID, world=world, size=28)
    check_env(env.unwrapped, skip_render_check=True)
    _, info = env.reset(seed=3)
    assert info["goal"].shape == (28, 28, 3)
    assert env.render().shape == (28, 28, 3)
    goal = info["goal_state"]
    seen, _ = env.reset(options={"state": goal, "goal_state": goal})
    assert np.array_equal(seen["state"], goal)
    _, reward, ended, _, info = env.step(np.zeros(env.action_space.shape, np.float32))
    assert reward == -info["cost"]
    assert ended == info["success"]


def test_vectorised_environments_are_those_that_run_alone() -> None:
    many = gymnasium.make_vec(ID, 3, world="push", shape="L", size=28)
    seen, _ = many.reset(seed=[5, 6, 7])
    alone = gymnasium.make(ID, world="push", shape="L", size=28)
    rng = np.random.default_rng(0)
    assert np.array_equal(alone.reset(seed=6)[0]["state"], seen["state"][1])
    for _ in range(4):
        actions = rng.uniform(-1, 1, (3, 2)).astype(np.float32)
        seen, *_ = many.step(actions)
        assert np.array_equal(alone.step(actions[1])[0]["state"], seen["state"][1])
    many.close()


class Pixels(gymnasium.Wrapper):  # type: ignore[misc]
    """As stable-worldmodel puts frames into info."""

    def reset(self, **given: Any) -> Any:
        seen, info = self.env.reset(**given)
        return seen, {**info, "pixels": self.env.render()}

    def step(self, action: Any) -> Any:
        *rest, info = self.env.step(action)
        return *rest, {**info, "pixels": self.env.render()}


def test_context_and_history_are_what_a_planner_sees() -> None:
    env = Remember(Pixels(gymnasium.make(ID, world="push", size=28)))
    _, info = env.reset(seed=0)
    assert info["context"].shape == (3, 28, 28, 3)
    assert (info["context"] == info["context"][0]).all()
    assert not info["history"].any()
    frames, controls = [info["pixels"]], []
    rng = np.random.default_rng(0)
    for _ in range(13):
        action = rng.uniform(-1, 1, 2).astype(np.float32)
        *_, info = env.step(action)
        frames.append(info["pixels"])
        controls.append(action)
    assert np.array_equal(info["context"], np.stack(frames[3::5]))  # 3, 8 and 13
    assert np.array_equal(info["history"], np.stack(controls[3:]))
    felt = [env.unwrapped.world.snapshot()[[0, 1, 5, 6]], info["goal_state"][[0, 1, 5, 6]]]
    assert np.allclose(info["djepa_proprio"][2:], felt)
    assert len(np.unique(info["djepa_proprio"], axis=0)) == 4
    env.step(np.array([7.0, -7.0]))  # a search draws beyond what can be executed
    assert np.array_equal(env.step(np.zeros(2))[-1]["history"][-2], [1.0, -1.0])
    _, info = env.reset(seed=1)
    assert not info["history"].any()


class Told(gymnasium.Wrapper):  # type: ignore[misc]
    """As PushT of stable-worldmodel tells what is felt: in info, with a time axis."""

    def reset(self, **given: Any) -> Any:
        seen, info = self.env.reset(**given)
        told = {"proprio": np.full((1, 4), 3.0), "goal_proprio": np.full((1, 4), 5.0)}
        return seen, {**info, "pixels": info["goal"], **told}

    @property
    def unwrapped(self) -> Any:
        return self  # one that is no world of ours


def test_what_is_felt_is_taken_from_info() -> None:
    _, info = Remember(Told(gymnasium.make(ID, world="push", size=28))).reset(seed=0)
    assert info["djepa_proprio"].tolist() == [[3.0] * 4] * 3 + [[5.0] * 4]


def test_what_is_wrong_is_named() -> None:
    with pytest.raises(DjepaError, match="Did you mean 'push'"):
        here.WorldEnv(world="pusk")
    with pytest.raises(DjepaError, match="Unknown shape"):
        here.WorldEnv(shape="U")
    with pytest.raises(DjepaError, match="Unknown render mode"):
        here.WorldEnv(render_mode="human")
    env = here.WorldEnv(size=28)
    with pytest.raises(DjepaError, match="reset option 'goal'"):
        env.reset(options={"goal": 1})
    with pytest.raises(DjepaError):
        env.reset(options={"state": [0.0] * 3})
