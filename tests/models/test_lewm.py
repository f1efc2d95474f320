"""LeWM: the public class's numbers, and the rules of a geometry."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from djepa.errors import DjepaError
from djepa.models.lewm import PAPER, SMALL, LeWM, LeWMConfig
from djepa.models.nets import attend_few
from djepa.models.public import load_public_lewm, rename_public
from djepa.models.tdjepa import TDJEPA, PlanningCost, Quasimetric
from djepa.testing import BrokenPromiseError, check_geometry

GOLDEN = load_file(Path(__file__).parents[1] / "goldens/lewm_public.safetensors")
STATE = {k.removeprefix("state."): v for k, v in GOLDEN.items() if k.startswith("state.")}
MEAN, STD = (-0.0078, 0.0069), (0.2085, 0.2067)
NARROW = LeWMConfig(
    image=28,
    patch=14,
    width=24,
    depth=2,
    heads=3,
    hidden=48,
    latent=20,
    projector=32,
    predictor_depth=2,
    predictor_heads=2,
    predictor_head=8,
    predictor_hidden=40,
)


def narrow(kind: type[LeWM] = LeWM, **options: Any) -> LeWM:
    torch.manual_seed(0)
    model = kind(NARROW, **options).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model.requires_grad_(False)


def in_the_old_spelling(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Names that transformers 4 gives the ViT."""
    pairs = (
        ("encoder.layers.", "encoder.encoder.layer."),
        ("attention.q_proj", "attention.attention.query"),
        ("attention.k_proj", "attention.attention.key"),
        ("attention.v_proj", "attention.attention.value"),
        ("attention.o_proj", "attention.output.dense"),
        ("mlp.fc1", "intermediate.dense"),
        ("mlp.fc2", "output.dense"),
    )
    old = {}
    for key, value in state.items():
        if key.startswith("encoder."):
            for new, former in pairs:
                key = key.replace(new, former)
        old[key] = value
    return old


@pytest.mark.parametrize("spelling", [dict, in_the_old_spelling])
def test_public_weights_give_the_public_rollouts(spelling: Any) -> None:
    model = load_public_lewm(spelling(STATE), MEAN, STD, NARROW)
    z = model.encode(GOLDEN["frames"], torch.zeros(2, 4, 4))
    assert torch.allclose(z[:, 3], GOLDEN["goal"], atol=1e-5)
    futures = model.rollout(z[:, :3], GOLDEN["history"], GOLDEN["candidates"])
    assert torch.allclose(futures, GOLDEN["futures"], atol=1e-5)


@pytest.mark.parametrize("causal", [True, False])
def test_attention_over_few_tokens_is_attention(causal: bool) -> None:
    random = torch.Generator().manual_seed(0)
    q, k, v = torch.empty(3, 5, 2, 3, 8).normal_(generator=random)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    assert torch.allclose(attend_few(q, k, v, causal), expected, atol=1e-6)


def test_foreign_and_missing_tensors_are_named() -> None:
    with pytest.raises(DjepaError, match=r"'encoder\.pooler\.dense\.weight' is not"):
        rename_public({**STATE, "encoder.pooler.dense.weight": torch.zeros(1)})
    without = {k: v for k, v in STATE.items() if not k.endswith("layers.0.attention.q_proj.bias")}
    with pytest.raises(DjepaError, match="Query, key or value is missing"):
        rename_public(without)
    with pytest.raises(DjepaError, match="do not fit"):
        load_public_lewm(STATE, MEAN, STD, dataclasses.replace(NARROW, latent=16))


def test_the_paper_size_is_the_published_one() -> None:
    with torch.device("meta"):
        sizes = [sum(p.numel() for p in LeWM(c).parameters()) for c in (PAPER, SMALL)]
    assert sizes[0] == 18_034_478
    assert sizes[1] < 8_000_000


@pytest.mark.parametrize("kind", [LeWM, TDJEPA])
def test_our_geometries_keep_the_promises(kind: type[LeWM]) -> None:
    assert len(check_geometry(narrow(kind))) == 10


def test_chunking_changes_nothing() -> None:
    model = narrow()
    context, history = torch.randn(2, 3, 20), torch.rand(2, 10, 2)
    candidates = torch.rand(2, 7, 25, 2)
    whole = model.rollout(context, history, candidates)
    model.chunk = 3
    assert torch.allclose(model.rollout(context, history, candidates), whole, atol=1e-6)


def test_a_fresh_predictor_ignores_actions_and_is_caught() -> None:
    """AdaLN-zero starts with closed gates, so nothing an action says gets through."""
    model = LeWM(NARROW).eval().requires_grad_(False)
    with pytest.raises(BrokenPromiseError, match="actions matter"):
        check_geometry(model)


class Bent:
    """A geometry with one thing wrong."""

    name, image, latent = "bent", 28, 20

    def __init__(self, fault: str) -> None:
        self.fault, self.model, self.calls = fault, narrow(), 0

    def encode(self, frames: torch.Tensor, proprio: torch.Tensor) -> torch.Tensor:
        z = self.model.encode(frames, proprio)
        if self.fault == "batch":
            return z - z.mean(0)
        return z[..., :-1] if self.fault == "shape" else z

    def rollout(self, context: Any, history: Any, candidates: Any) -> torch.Tensor:
        futures = self.model.rollout(context, history, candidates)
        self.calls += 1
        if self.fault == "random":
            return futures + self.calls
        if self.fault == "order":
            special = torch.arange(futures.shape[1]) == 2  # the third place
            return futures + special[:, None, None]
        if self.fault == "deaf":
            return self.model.rollout(context, history, torch.zeros_like(candidates))
        return futures[:, :, :5] if self.fault != "blocks" else _padded(futures)

    def native_cost(self, futures: torch.Tensor, goal: torch.Tensor) -> torch.Tensor:
        cost = self.model.native_cost(futures, goal)
        if self.fault == "double":
            return cost.double()
        if self.fault == "nan":
            return cost / 0 - cost / 0
        return -cost if self.fault == "sign" else cost


def _padded(futures: torch.Tensor) -> torch.Tensor:
    short = 5 - futures.shape[2]
    return torch.cat([futures, futures[:, :, -1:].expand(-1, -1, short, -1)], dim=2)


@pytest.mark.parametrize(
    ("fault", "promise"),
    [
        ("shape", "latents have the promised shape"),
        ("batch", "a row does not depend"),
        ("random", "it repeats itself"),
        ("order", "changes nothing"),
        ("deaf", "actions matter"),
        ("double", "finite float32"),
        ("nan", "finite float32"),
        ("sign", "costs least"),
        ("blocks", "any number"),
    ],
)
def test_bent_geometries_are_caught(fault: str, promise: str) -> None:
    with pytest.raises(BrokenPromiseError, match=promise):
        check_geometry(Bent(fault))


def test_planning_costs_by_hand() -> None:
    model = narrow(TDJEPA)
    assert isinstance(model, TDJEPA)
    futures, goal = torch.randn(1, 2, 3, 20), torch.randn(1, 20)
    square = (futures - goal[:, None, None]).square().mean(-1)
    assert torch.allclose(model.native_cost(futures, goal), square[..., -1])
    model.planned_by(PlanningCost(blend=1.0, terminal=0.3))
    expected = 0.3 * square[..., -1] + 0.7 * square.mean(-1)
    assert torch.allclose(model.native_cost(futures, goal), expected)
    model.planned_by(PlanningCost(blend=0.0, terminal=1.0))
    learned = model.distance(futures[:, :, -1], goal[:, None])
    assert torch.allclose(model.native_cost(futures, goal), learned)


def test_the_quasimetric_is_one() -> None:
    torch.manual_seed(0)
    d, x, y, z = Quasimetric(8), *torch.randn(3, 50, 8)
    assert (d(x, x) < 1e-5).all()
    assert (d(x, y) >= 0).all()
    assert not torch.allclose(d(x, y), d(y, x))
    assert (d(x, z) <= d(x, y) + d(y, z) + 1e-5).all()
