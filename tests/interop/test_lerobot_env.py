"""The push world inside LeRobot: its own `make_env`, its own observations, its own rollout."""

from dataclasses import make_dataclass

import numpy as np
import pytest
import torch
from scratch import needs
from tools.docs.fill import ROOT

from djepa.errors import DjepaError

real = needs("lerobot")
pytestmark = pytest.mark.filterwarnings("ignore")


@real
def test_lerobot_makes_it_and_runs_a_rollout() -> None:
    from lerobot.envs.configs import EnvConfig
    from lerobot.envs.factory import make_env
    from lerobot.envs.utils import env_to_policy_features, preprocess_observation

    from djepa.interop.lerobot_env import DJEPAEnv

    assert EnvConfig.get_choice_class("djepa") is DJEPAEnv
    config = DJEPAEnv(size=48, episode_length=6)
    features = env_to_policy_features(config)
    assert features["observation.images.goal"].shape == (3, 48, 48)
    assert features["observation.state"].shape == (4,)
    assert features["action"].shape == (2,)
    ((_, tasks),) = make_env(config, n_envs=2).items()
    env = tasks[0]
    seen, _ = env.reset(seed=[3, 4])
    again, _ = env.reset(seed=[3, 4])
    assert np.array_equal(seen["pixels"]["now"], again["pixels"]["now"])
    batch = preprocess_observation(seen)
    assert batch["observation.images.now"].shape == (2, 3, 48, 48)
    assert batch["observation.state"].shape == (2, 4)
    assert (batch["observation.images.now"] != batch["observation.images.goal"]).any()
    assert env.call("_max_episode_steps")[0] == 6
    for _ in range(6):
        _, _, ended, cut, info = env.step(np.full((2, 2), 3.0, np.float32))  # beyond the bounds
    assert (ended | cut).all()
    assert set(info["final_info"]["is_success"].tolist()) <= {True, False}
    env.close()


@real
def test_the_command_line_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `--env.discover_packages_path=lerobot_env_djepa` does: it takes packages alone."""
    import draccus
    from lerobot.configs.parser import load_plugin
    from lerobot.envs.configs import EnvConfig

    monkeypatch.syspath_prepend(ROOT / "plugins" / "lerobot_env_djepa")
    load_plugin("lerobot_env_djepa")
    whole = make_dataclass("Whole", [("env", EnvConfig)])
    given = ["--env.type=djepa", "--env.world=reacher", "--env.size=64"]
    config = draccus.parse(whole, args=given).env
    assert (config.world, config.size) == ("reacher", 64)


@real
def test_poses_and_what_is_felt_are_told_where_asked_for() -> None:
    from lerobot.envs.factory import make_env
    from lerobot.envs.utils import env_to_policy_features, preprocess_observation

    from djepa.interop.lerobot_env import DJEPAEnv

    config = DJEPAEnv(size=48, episode_length=6, poses=True)
    told = env_to_policy_features(config)["observation.environment_state"]
    assert told.shape == (10,)
    env = make_env(config, n_envs=2)["djepa"][0]
    seen, _ = env.reset(seed=[3, 4])
    batch = preprocess_observation(seen)
    worlds = [one.unwrapped._env for one in env.envs]
    for i, world in enumerate(worlds):
        state, goal = world.world.snapshot(), world._goal
        found = batch["observation.environment_state"][i].numpy()
        assert np.allclose(found[:2], state[2:4] / 256 - 1, atol=1e-6)
        assert np.allclose(np.arctan2(found[3], found[2]), np.angle(np.exp(1j * state[4])))
        assert np.allclose(found[4:8], goal[:4] / 256 - 1, atol=1e-6)
        felt = batch["observation.robot_state"]
        assert np.allclose(felt["now"][i], state[[0, 1, 5, 6]])
        assert np.allclose(felt["goal"][i], goal[[0, 1, 5, 6]])
    env.close()
    with pytest.raises(DjepaError, match="poses are those of push"):
        make_env(DJEPAEnv(world="granular", size=48, poses=True), n_envs=1)


@real
def test_its_own_evaluation_counts_successes() -> None:
    """LeRobot's `rollout` with a policy that pushes at random."""
    from lerobot.envs.factory import make_env
    from lerobot.scripts.lerobot_eval import rollout

    from djepa.interop.lerobot_env import DJEPAEnv

    class Random(torch.nn.Module):
        def reset(self) -> None:
            torch.manual_seed(0)

        def select_action(self, batch: dict) -> torch.Tensor:
            return torch.rand(len(batch["observation.state"]), 2) * 2 - 1

    def same(x):
        return x

    env = make_env(DJEPAEnv(size=48, episode_length=5), n_envs=2)["djepa"][0]
    found = rollout(env, Random(), same, same, same, same, seeds=[0, 1])
    assert found["action"].shape[:1] == (2,)
    assert found["success"].dtype == torch.bool
    env.close()


@real
@pytest.mark.parametrize("video", [False, True])
def test_data_sets_that_lerobot_writes_are_read(video: bool, tmp_path) -> None:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    from djepa.interop.recorded import Columns, get_reader

    pytest.importorskip("av")
    kind = "video" if video else "image"
    shape = {"dtype": kind, "shape": (64, 64, 3), "names": ["height", "width", "channels"]}
    features = {
        "observation.images.top": shape,
        "action": {"dtype": "float32", "shape": (2,), "names": ["x", "y"]},
    }
    data = LeRobotDataset.create(
        "me/push", fps=10, features=features, root=tmp_path / "set", use_videos=video
    )
    rng, written = np.random.default_rng(0), []
    for length in (6, 9):
        levels = rng.integers(40, 200, (length, 1, 1, 3))
        frames = np.broadcast_to(levels, (length, 64, 64, 3)).astype(np.uint8)
        controls = rng.normal(size=(length, 2)).astype(np.float32)
        for frame, control in zip(frames, controls, strict=True):
            data.add_frame({"observation.images.top": frame, "action": control, "task": "push"})
        data.save_episode()
        written.append((frames, controls))
    data.finalize()
    found = list(get_reader("lerobot")(tmp_path / "set", Columns()))
    assert len(found) == 2
    for got, (frames, controls) in zip(found, written, strict=True):
        assert np.array_equal(got.controls, controls)
        assert np.abs(got.frames.astype(int) - frames).mean() <= (12 if video else 0)
