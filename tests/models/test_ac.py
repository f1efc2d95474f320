"""The arm's action-conditioned model: V-JEPA 2-AC's interface, as a geometry, trained, loaded."""

from pathlib import Path

import numpy as np
import pytest
import torch

from cameras import needs_camera
from djepa.errors import DjepaError
from djepa.models.ac import ActionConditioned, next_pose
from djepa.models.ac import to_moves as torch_moves
from djepa.models.kinds import build
from djepa.models.recipes import TrainConfig
from djepa.models.vjepa2 import VJEPA2AC, load_vjepa2
from djepa.models.weights import load_geometry, save_geometry
from djepa.worlds.arms.kinematics import from_euler
from djepa.worlds.arms.table import to_moves
from vjepa2_clone import stand_in


@pytest.fixture
def model() -> ActionConditioned:
    made = build("ac", torch.Generator().manual_seed(0))
    assert isinstance(made, ActionConditioned)
    return made.eval().requires_grad_(False)


def test_the_two_functions_have_v_jepa_2_acs_shapes(model: ActionConditioned) -> None:
    frames = torch.randint(0, 256, (2, 64, 64, 3), dtype=torch.uint8)
    tokens = model.tokens(frames)
    assert tokens.shape == (2, 64, 32)
    after = model.predict(tokens, torch.zeros(2, 7), torch.zeros(2, 7))
    assert after.shape == tokens.shape
    other = model.predict(tokens, torch.ones(2, 7), torch.zeros(2, 7))
    assert (other != after).any()


def test_it_is_a_geometry(model: ActionConditioned) -> None:
    N, K, H = 2, 3, 5
    frames = torch.randint(0, 256, (N, 4, 64, 64, 3), dtype=torch.uint8)
    z = model.encode(frames, torch.rand(N, 4, 7))
    assert z.shape == (N, 4, model.latent)
    controls = torch.empty(N, K, H, 4).uniform_(-1, 1, generator=torch.Generator().manual_seed(0))
    futures = model.rollout(z[:, :3], controls[:, 0, :2], controls)
    cost = model.native_cost(futures, z[:, 3])
    assert (futures.shape, cost.shape) == ((N, K, H, model.latent), (N, K))
    alone = model.rollout(z[1:, :3], controls[1:, 0, :2], controls[1:, 2:])
    torch.testing.assert_close(alone[0, 0], futures[1, 2], rtol=1e-4, atol=1e-5)
    there = z[:, None, None, 3].expand(N, 1, 1, -1)
    assert (model.native_cost(there, z[:, 3]) == 0).all()
    tokens, pose = model.split(z[0, 2])  # by hand
    for h in range(H):
        move = torch_moves(controls[0, 1, h])[None]
        tokens = model.predict(tokens.view(1, 64, 32), move, pose.view(1, 7))[0]
        pose = next_pose(pose.view(1, 7), move)[0]
    torch.testing.assert_close(futures[0, 1, -1, :-7], tokens.flatten(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(futures[0, 1, -1, -7:], pose)
    assert model.summary(z).shape == (N, 4, 16 * 32)


def test_poses_compose_as_published() -> None:
    pose = torch.tensor([[0.3, 0.1, 0.2, 0.4, -0.2, 1.0, 0.8]])
    action = torch.tensor([[0.05, 0.0, -0.01, 0.1, 0.2, -0.3, 0.5]])
    after = next_pose(pose, action)[0].double().numpy()
    np.testing.assert_allclose(after[:3], [0.35, 0.1, 0.19], atol=1e-6)
    turned = from_euler(action[0, 3:6].double()) @ from_euler(pose[0, 3:6].double())
    np.testing.assert_allclose(from_euler(after[3:6]), turned, atol=1e-6)
    assert after[6] == 1.0  # no more than closed


def test_controls_are_the_worlds() -> None:
    controls = np.random.default_rng(0).uniform(-1, 1, (50, 4))
    ours = torch_moves(torch.from_numpy(controls)).numpy()
    np.testing.assert_allclose(ours, to_moves(controls), atol=1e-12)


def test_weights_are_stored_and_found_again(model: ActionConditioned, tmp_path: Path) -> None:
    save_geometry(model, tmp_path / "w", {"recipe": {"world": "arm"}})
    again = load_geometry(tmp_path / "w", world="arm")
    assert isinstance(again, ActionConditioned)
    assert torch.equal(again.head.weight, model.head.weight.half().float())
    with pytest.raises(DjepaError, match="trained in the world 'arm'"):
        load_geometry(tmp_path / "w", world="push")
    with pytest.raises(DjepaError, match="ac_train"):
        TrainConfig("ac")


def test_a_short_training_learns_something(tmp_path: Path) -> None:
    needs_camera()
    from djepa.models.ac_train import ACTraining, train
    from djepa.models.weights import read_card

    train(tmp_path / "arm", ACTraining("top", episodes=8, steps=12, batch=8, workers=1))
    metrics = read_card(tmp_path / "arm")["metrics"]
    assert metrics["episodes"] == 1
    assert 0 < metrics["l1_1"] < 2 * metrics["still_1"]
    trained = load_geometry(tmp_path / "arm")
    assert (trained.action_std > 0).all()
    with pytest.raises(DjepaError, match="camera"):
        train(tmp_path / "other", ACTraining("behind"))


def test_published_weights_are_loaded_by_path(tmp_path: Path) -> None:
    stand_in(tmp_path)
    model = load_vjepa2(tmp_path, tmp_path / "weights.pt")
    assert isinstance(model, VJEPA2AC)
    assert (model.image, model.grid, model.width) == (256, 16, 8)
    frames = torch.randint(0, 256, (1, 4, 256, 256, 3), dtype=torch.uint8)
    z = model.encode(frames, torch.rand(1, 4, 7))
    futures = model.rollout(z[:, :3], torch.zeros(1, 2, 4), torch.rand(1, 2, 3, 4))
    assert model.native_cost(futures, z[:, 3]).shape == (1, 2)
    torch.testing.assert_close(z[0, 0, :8].mean(), torch.tensor(0.0), atol=1e-5, rtol=0)
    torch.save({"encoder": {}}, tmp_path / "half.pt")
    with pytest.raises(DjepaError, match="does not fit"):
        load_vjepa2(tmp_path, tmp_path / "half.pt")
    with pytest.raises(DjepaError, match="no file of weights"):
        load_vjepa2(tmp_path, tmp_path / "nothing.pt")
