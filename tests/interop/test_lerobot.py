"""LeRobot's own diffusion policy, wrapped: small, untrained, real."""

import json
import sys
from dataclasses import make_dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from interop_kit import Kit
from scratch import needs
from test_interop_page import block

from djepa.errors import DjepaError, MissingExtraError
from djepa.interop.record import read_decisions

real = needs("lerobot")
N, STEPS = 2, 8
BATCH = {"observation.state": torch.zeros(N, 4), "observation.environment_state": torch.ones(N, 6)}
pytestmark = pytest.mark.filterwarnings("ignore")


def diffusion() -> Any:
    from lerobot.configs.types import FeatureType, PolicyFeature
    from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig
    from lerobot.policies.diffusion.modeling_diffusion import DiffusionPolicy

    seen = {
        "observation.state": PolicyFeature(FeatureType.STATE, (4,)),
        "observation.environment_state": PolicyFeature(FeatureType.ENV, (6,)),
    }
    config = DiffusionConfig(
        input_features=seen,
        output_features={"action": PolicyFeature(FeatureType.ACTION, (2,))},
        down_dims=(16, 32),
        n_groups=4,
        num_inference_steps=2,
        diffusion_step_embed_dim=16,
        n_action_steps=STEPS,
        device="cpu",
    )
    torch.manual_seed(0)
    return DiffusionPolicy(config)


@real
def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    diffusion().save_pretrained("my/diffusion")
    names: dict[str, Any] = {"batch": BATCH}
    exec(block("LeRobot"), names)
    assert names["action"].shape == (N, 2)
    assert len(names["chooser"].records) == N


@real
def test_the_policy_type_loads_what_it_wraps(tmp_path: Path) -> None:
    from lerobot.configs.policies import PreTrainedConfig

    from djepa.interop.lerobot import DJEPAConfig, DJEPAPolicy

    assert PreTrainedConfig.get_choice_class("djepa") is DJEPAConfig
    diffusion().save_pretrained(tmp_path / "base")
    about = {"base": str(tmp_path / "base"), "samples": 4, "device": "cpu"}
    policy = DJEPAPolicy(DJEPAConfig(**about, record=str(tmp_path / "d.json")))
    policy.reset()
    for _ in range(STEPS + 1):
        action = policy.select_action(dict(BATCH))
    assert action.shape == (N, 2)
    policy.reset()
    stored = read_decisions(tmp_path / "d.json").decisions
    assert len(stored) == 2 * N  # two chunks of two environments
    assert all(len(one.candidates) == 4 for one in stored)
    first = DJEPAPolicy(DJEPAConfig(**about, how="first"))
    only = DJEPAPolicy(DJEPAConfig(**about, record_only=True))
    for one in (first, only):
        one.reset()
    same = [one.select_action(dict(BATCH)) for one in (first, only)]
    assert torch.equal(*same)  # recording changes nothing


@real
def test_the_command_line_reads_the_settings() -> None:
    """LeRobot's own parser; it has no decoder for some kinds of fields."""
    import draccus
    from lerobot.configs.policies import PreTrainedConfig

    from djepa.interop.lerobot import DJEPAConfig

    whole = make_dataclass("Whole", [("policy", PreTrainedConfig)])
    words = {"type": "djepa", "base": "here", "how": "planner", "planner": "p", "samples": 4}
    words |= {"record_only": "true"}
    given = [f"--policy.{name}={word}" for name, word in words.items()]
    config = draccus.parse(whole, args=given).policy
    assert isinstance(config, DJEPAConfig)
    assert (config.how, config.planner, config.samples) == ("planner", "p", 4)
    assert config.record_only


@real
def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    from lerobot.configs.types import FeatureType, PolicyFeature
    from lerobot.policies.act.configuration_act import ACTConfig
    from lerobot.policies.act.modeling_act import ACTPolicy

    from djepa.interop.lerobot import DJEPAConfig, DJEPAPolicy

    with pytest.raises(DjepaError, match="Name the policy to wrap"):
        DJEPAPolicy(DJEPAConfig(device="cpu"))
    with pytest.raises(DjepaError, match="Did you mean 'planner'"):
        DJEPAPolicy(DJEPAConfig(device="cpu", how="planer"), diffusion())
    with pytest.raises(DjepaError, match="is no package"):
        DJEPAPolicy(DJEPAConfig(device="cpu", how="score", score="nowhere:none"), diffusion())
    seen = {
        "observation.state": PolicyFeature(FeatureType.STATE, (4,)),
        "observation.environment_state": PolicyFeature(FeatureType.ENV, (6,)),
    }
    config = ACTConfig(
        input_features=seen,
        output_features={"action": PolicyFeature(FeatureType.ACTION, (2,))},
        dim_model=16,
        n_heads=2,
        dim_feedforward=16,
        n_encoder_layers=1,
        n_vae_encoder_layers=1,
        chunk_size=4,
        n_action_steps=4,
        device="cpu",
    )
    policy = DJEPAPolicy(DJEPAConfig(device="cpu"), ACTPolicy(config))
    policy.reset()
    with pytest.raises(DjepaError, match="gives one chunk"):
        policy.select_action(dict(BATCH))
    with pytest.raises(DjepaError, match="not trained"):
        policy.get_optim_params()


@real
def test_a_policy_is_trained_and_rolled_out_with_every_way_to_choose(
    kit: Kit, tmp_path: Path
) -> None:
    from tools import lerobot_trial
    from tools.lerobot_train import Training, demonstrations

    small = {"episodes": 8, "steps": 3, "batch": 4, "width": 8}
    policy = Training(tmp_path, **small).run()
    info = json.loads((tmp_path / "episodes/meta/info.json").read_text())
    assert (info["codebase_version"], info["total_episodes"]) == ("v3.0", 8)
    for path, controls in demonstrations(4, 0):
        assert path.shape == (26, 10)
        assert controls.shape == (25, 2)
    given = {"policy": policy, "planner": kit.folder, "samples": 10, "budget": 26, "together": 2}
    file = tmp_path / "t.json"
    trial = lerobot_trial.LeRobotTrial(**given, out=file, episodes=2).run()
    assert trial.episodes == [0, 1]
    assert set(trial.methods) == {method for _, method in trial.rows}
    assert all(0 < row["controls"] <= 26 for row in trial.rows.values())
    before = file.read_bytes()
    lerobot_trial.LeRobotTrial(**given, out=file, episodes=2).run()
    assert file.read_bytes() == before
    from djepa.interop.lerobot import DJEPAConfig, DJEPAPolicy

    about = {"base": str(policy), "how": "planner", "planner": str(kit.folder), "device": "cpu"}
    assert DJEPAPolicy(DJEPAConfig(**about)).chooser.planner is not None


@pytest.mark.skipif(not real.args[0], reason="it is installed")
def test_the_missing_extra_is_named() -> None:
    sys.modules.pop("djepa.interop.lerobot", None)
    with pytest.raises(MissingExtraError, match=r"djepa\[lerobot\]"):
        __import__("djepa.interop.lerobot")
