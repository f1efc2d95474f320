import copy
import importlib.util
import pickle
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from djepa.errors import DjepaError, MissingExtraError
from djepa.worlds.gym import EPISODE, PushEnv
from djepa.worlds.push import PushWorld

ID = "djepa/Push-v0"


def trajectory(env, seed: int, controls: int = 12) -> list:
    """Everything an agent sees with seeded random controls."""
    rng = np.random.default_rng(seed)
    drawn = rng.uniform(-1, 1, (controls, 2)).astype(np.float32)
    return [env.reset(seed=seed), *(env.step(control) for control in drawn)]


def assert_same(a, b) -> None:
    assert gymnasium.utils.env_checker.data_equivalence(a, b, exact=True)


@pytest.mark.parametrize("settings", [{}, {"shape": "Z", "rule": "push-symmetric.v1"}])
def test_the_checker_of_gymnasium_has_nothing_to_say(settings):
    check_env(gymnasium.make(ID, **settings).unwrapped)


def test_made_by_module_and_name_in_a_new_process():
    code = (
        "import gymnasium; env = gymnasium.make('djepa.worlds.gym:djepa/Push-v0', shape='L');"
        "env.reset(seed=0); print(env.unwrapped.world.shape.name)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "L"


def test_registering_twice_is_quiet():
    spec = importlib.util.find_spec("djepa.worlds.gym")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert gymnasium.spec(ID).max_episode_steps == EPISODE


def test_the_same_seed_gives_the_same_trajectory():
    env = gymnasium.make(ID)
    first = trajectory(env, 3)
    assert_same(first, trajectory(env, 3))
    assert_same(first, trajectory(gymnasium.make(ID), 3))
    other = trajectory(env, 4)
    assert (first[0][0]["state"] != other[0][0]["state"]).any()


def test_episodes_after_the_seed_differ_and_repeat():
    env = PushEnv()
    env.reset(seed=0)
    second = env.reset()[0]
    assert (second["goal"] != env.reset()[0]["goal"]).any()
    env.reset(seed=0)
    assert_same(env.reset()[0], second)


def test_the_numbers_are_those_of_the_world():
    env, world = PushEnv("L"), PushWorld("L")
    (observation, info), *steps = trajectory(env, 7)
    controls = np.random.default_rng(7).uniform(-1, 1, (12, 2)).astype(np.float32)
    states = world.execute(observation["state"], controls[None])[0, 1:]
    success, cost = world.judge(observation["goal"], states)
    for h, (after, reward, terminated, truncated, info) in enumerate(steps):
        assert after["state"].tobytes() == states[h].tobytes()
        assert (reward, terminated, truncated) == (-cost[h], success[h], False)
        assert info == {"success": success[h], "cost": cost[h], "rule": "push.v1"}


def test_drawn_starts_are_unsolved_and_options_replace_them():
    env = PushEnv()
    assert not env.reset(seed=1)[1]["success"]
    state = np.array([100.0, 100, 300, 300, 1, 0, 0, 0, 0, 0])
    observation, info = env.reset(options={"state": state, "goal": state})
    assert observation["state"].tolist() == observation["goal"].tolist() == state.tolist()
    assert info["success"]
    assert info["cost"] == 0.0
    assert env.step(np.zeros(2, np.float32))[2]  # standing still, it stays solved: terminated
    observation = env.reset(options={"goal": state})[0]
    assert (observation["state"] != state).any()


def test_an_episode_is_truncated():
    env = gymnasium.make(ID)
    env.reset(seed=0, options={"goal": np.full(10, 300.0)})
    ends = [env.step(np.zeros(2, np.float32))[2:4] for _ in range(EPISODE)]
    assert ends == [(False, False)] * (EPISODE - 1) + [(False, True)]


def test_frames_show_state_and_goal():
    env = gymnasium.make(ID, render_mode="rgb_array", size=64)
    env.reset(seed=2)
    frame = env.render()
    assert frame.shape == (64, 64, 3)
    assert frame.dtype == np.uint8
    world, inner = PushWorld(), env.unwrapped
    drawn = world.render(inner.world.snapshot(), 64, goal=inner._goal)
    assert (frame == drawn).all()
    assert (frame != world.render(inner.world.snapshot(), 64)).any()
    assert PushEnv().render() is None


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_continues_with_the_same_bits(clone):
    env = PushEnv("L")
    for seed in range(6):
        env.reset(seed=seed)
        rng = np.random.default_rng(seed)
        for _ in range(8):
            block = env.world.block_centre(env.world.snapshot())
            toward = np.clip((block - env.world.snapshot()[:2]) / 50, -1, 1)
            env.step((toward + rng.normal(0, 0.1, 2)).clip(-1, 1).astype(np.float32))
        twin = clone(env)
        rest = rng.uniform(-1, 1, (5, 2)).astype(np.float32)
        assert_same([env.step(a) for a in rest], [twin.step(a) for a in rest])
        assert_same(env.reset(), twin.reset())


def test_mistakes_are_named():
    for settings, message in (
        ({"shape": "sqare"}, "Did you mean 'square'"),
        ({"rule": "push.v2"}, "Did you mean 'push.v1'"),
        ({"behaviour": "pusch"}, "Did you mean 'push'"),
        ({"render_mode": "rgb_aray"}, "Did you mean 'rgb_array'"),
    ):
        with pytest.raises(DjepaError, match=message):
            PushEnv(**settings)
    env = PushEnv()
    with pytest.raises(DjepaError, match="Did you mean 'state'"):
        env.reset(seed=0, options={"stat": np.zeros(10)})
    with pytest.raises(DjepaError, match="10 numbers"):
        env.reset(seed=0, options={"state": np.zeros(10), "goal": np.zeros(5)})
    with pytest.raises(DjepaError, match="must lie in"):
        env.step(np.array([np.nan, 0.0]))


def test_without_gymnasium_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    monkeypatch.delitem(sys.modules, "djepa.worlds.gym")
    with pytest.raises(MissingExtraError, match=r"djepa\[gym\]"):
        importlib.import_module("djepa.worlds.gym")
