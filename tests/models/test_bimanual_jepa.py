"""The patch JEPA of two arms: shapes, order and batch of candidates, training by seed alone."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("mujoco")

from djepa.bank.bimanual import BimanualBank
from djepa.models import native
from djepa.models.bimanual import HEIGHT, WIDTH_OF_IMAGE
from djepa.models.bimanual_jepa import (
    DIRECTIONS,
    ENDS,
    FELT,
    STEPS,
    WIDTH,
    BimanualJEPA,
    Trained,
    asked,
    camera,
    cost_of,
    felt,
    load_jepa,
    save_jepa,
    twenty,
)
from djepa.models.bimanual_jepa_data import Data, Draw, measured, shifts
from djepa.models.bimanual_jepa_predict import predict
from djepa.models.bimanual_jepa_train import JEPATraining, train
from djepa.models.nets import initialise
from djepa.seeds import generator
from djepa.worlds.bimanual.scene import TASKS
from djepa.worlds.bimanual.world import COMMAND, BimanualWorld

TINY = JEPATraining(episodes=4, held=1, steps=2, batch=2)


def branches(N: int = 36, B: int = 3) -> Data:
    """Made up: every task has as many episodes."""
    rng = np.random.default_rng(0)
    tools = rng.normal(size=(N, B, 6, FELT)).astype(np.float32)
    tools[..., [0, 1, 2, 10, 11, 12]] = 0.1 * tools[..., [0, 1, 2, 10, 11, 12]] + [0, 0, 0.8] * 2
    told = np.repeat(tools[:, :, 1:], 2, 3).reshape(N, B, STEPS, 2 * FELT)
    arrays = (
        rng.integers(0, 256, (N, HEIGHT, WIDTH_OF_IMAGE, 3), np.uint8),
        rng.integers(0, 256, (N, B, STEPS, HEIGHT, WIDTH_OF_IMAGE, 3), np.uint8),
        *(tools, told, np.ones((N, B), bool), np.arange(N) % len(TASKS)),
    )
    return Data(*map(torch.from_numpy, arrays))


@pytest.fixture(scope="module")
def model() -> BimanualJEPA:
    found = BimanualJEPA(8)
    initialise(found, torch.Generator().manual_seed(0))
    for name, of in found.named_buffers():
        of.zero_() if name.endswith("_mean") else of
    found.camera.copy_(torch.from_numpy(camera()))
    found.directions.normal_(std=0.02, generator=torch.Generator().manual_seed(1))
    found.goals.normal_(generator=torch.Generator().manual_seed(2))
    return found.eval().requires_grad_(False)


def test_tokens_glances_ends_and_goals_have_their_shapes(model: BimanualJEPA) -> None:
    data = branches(2)
    tokens = model.tokens(data.first)
    assert tokens.shape == (2, 80, WIDTH)
    glance = model.glance(data.first, tokens, data.tools[:, 0, 0])
    seen, told = model.path(tokens, data.tools[:, 0, 0], data.told[:, 0], glance)
    assert seen.shape == (2, STEPS, 80, WIDTH)
    assert told.shape == (2, STEPS, FELT)
    ends = model.ends(tokens[0], data.tools[0, 0, 0], data.told[0], glance[0])
    assert ends.shape == (3, ENDS) == (3, DIRECTIONS + FELT)
    goal = model.goal(glance, 0)
    assert goal.shape == (2, ENDS)
    assert cost_of(ends, goal[0]).shape == (3,)
    assert cost_of(goal, goal[0])[0] == 0


def test_the_head_camera_looks_at_the_middle_and_commands_become_poses() -> None:
    column, row, depth = camera() @ [0, 0, 0.74, 1]
    assert np.allclose([column / depth, row / depth], [5, 4])
    world = BimanualWorld()
    joints = world.snapshot()[-COMMAND:]
    told = asked(world, np.tile(joints, (3, 40, 1)))
    assert told.shape == (3, STEPS, 2 * FELT)
    assert np.allclose(told, np.tile(felt(world, joints), 2))
    assert np.allclose(measured(world.snapshot()), joints)
    turned = np.tile([0.1, 0.2, 0.3, 0.5, 0.5, 0.5, 0.5, 1.0], 2)
    assert np.allclose(twenty(turned)[:10], [0.1, 0.2, 0.3, 0, 1, 0, 0, 0, 1, 1])
    assert np.allclose(twenty(turned), twenty(turned * np.tile([1, 1, 1, -1, -1, -1, -1, 1], 2)))


def test_neither_order_nor_company_of_candidates_changes_a_cost(model: BimanualJEPA) -> None:
    world, rng = BimanualWorld("handover block"), np.random.default_rng(3)
    jepa, joints = Trained(model, {}, ""), world.snapshot()[-COMMAND:]
    image = rng.integers(0, 256, (HEIGHT, WIDTH_OF_IMAGE, 3), np.uint8)
    commands = joints + 0.1 * rng.normal(size=(6, 40, COMMAND))

    def costs(some: np.ndarray) -> torch.Tensor:
        return cost_of(*jepa.read(world, image, joints, some))

    every, order = costs(commands), rng.permutation(6)
    assert torch.allclose(costs(commands[order]), every[order], rtol=1e-5)
    assert torch.allclose(costs(commands[:2]), every[:2], rtol=1e-5)
    assert torch.equal(costs(commands), every)


def test_training_follows_from_the_seed_and_its_weights_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "PATCHES", 200)
    data = branches()
    for name in ("one", "two"):
        found, left = train(TINY, data, lambda line: None)
        save_jepa(tmp_path / name, found, {"left": left})
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two")]
    assert files[0] == files[1]
    read = load_jepa(tmp_path / "one")
    assert read.card["left"].keys() == TASKS.keys()
    assert all(
        torch.equal(a, b) for a, b in zip(read.model.buffers(), found.buffers(), strict=True)
    )


def test_a_cost_is_made_without_opening_an_outcome(
    model: BimanualJEPA, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(bank: BimanualBank) -> None:
        raise AssertionError

    monkeypatch.setattr(BimanualBank, "outcome", property(opened))
    world, rng = BimanualWorld("grab roller"), np.random.default_rng(4)
    state = np.tile(world.snapshot(), (2, 1))
    known = SimpleNamespace(
        image=rng.integers(0, 256, (2, HEIGHT, WIDTH_OF_IMAGE, 3), np.uint8),
        state=state,
        commands=np.tile(state[0, -COMMAND:], (2, 17, 40, 1)).astype(np.float32),
    )
    said = predict(known, "grab roller", Trained(model, {}, ""))
    assert {name: of.shape for name, of in said.items()} == {
        "cost": (2, 17), "ends": (2, 17, ENDS), "goals": (2, ENDS),
    }  # fmt: skip
    assert (said["cost"] > 0).all()
    assert np.allclose(np.square(said["ends"] - said["goals"][:, None]).sum(-1), said["cost"])


def test_variants_for_training_are_offsets_of_all_targets_and_the_first_is_nearer() -> None:
    targets = np.tile([0.1, 0.2, 0.8], 4) + np.repeat([0, 0, 0.3, 0.3], 3)
    near, far = [], []
    for number in range(50):
        moved = shifts(Draw("grab roller", "training", 0, 2), targets, generator("x", number))
        near.append(np.linalg.norm(moved[0]))
        far.append(np.linalg.norm(moved[1]))
    assert moved.shape == (2, 12)
    assert np.mean(near) < 0.5 * np.mean(far)
    held = shifts(Draw("grab roller", "validation", 0, 8), targets, generator("x"))
    assert held.shape == (8, 12)
