"""The patch geometries: attention over frames, latents, rollouts, losses, costs."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from djepa.models import dinowm, jepawm
from djepa.models.dinowm import DINOWM
from djepa.models.frames import Rope, band, turned
from djepa.models.jepawm import JEPAWM
from djepa.models.objectives import dinowm_loss, draw, jepawm_loss
from djepa.models.patches import PatchConfig, PatchGeometry
from djepa.models.weights import load_geometry, save_geometry
from djepa.testing import check_geometry

TINY = PatchConfig(
    image=56,
    width=6,
    depth=1,
    heads=3,
    hidden=12,
    predictor_width=24,
    predictor_depth=2,
    predictor_heads=2,
    predictor_head=12,
    predictor_hidden=24,
)
KINDS = [JEPAWM, DINOWM]


def lively(kind: type[PatchGeometry], config: PatchConfig = TINY) -> PatchGeometry:
    """Random weights large enough that everything matters."""
    random = torch.Generator().manual_seed(0)
    net = kind(config).eval()
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=random)
    net.proprio_std.fill_(100.0)
    return net.requires_grad_(False)


def window(net: PatchGeometry, rows: int, frames: int) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(1)
    latents = torch.empty(rows, frames, net.latent).normal_(generator=random)
    return latents, torch.empty(rows, frames, 10).normal_(generator=random)


@pytest.mark.parametrize("kind", KINDS)
def test_they_keep_the_rules_of_a_geometry(kind: type[PatchGeometry]) -> None:
    assert len(check_geometry(lively(kind))) == 10


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("residual", [True, False])
def test_a_rollout_is_the_plain_recomputation(kind: type[PatchGeometry], residual: bool) -> None:
    """Kept keys and values change nothing: every step again from all frames gives the same."""
    net = lively(kind, replace(TINY, residual=residual))
    latents, blocks = window(net, 2, 7)
    frames = latents[:, :3]
    for step in range(5):
        after = net.predict(frames, blocks[:, : 3 + step])[:, -1:]
        frames = torch.cat([frames, after], dim=1)
    assert torch.allclose(net.unroll(latents[:, :3], blocks), frames[:, 3:], atol=2e-4)
    controls = torch.empty(2, 3, 25, 2).normal_(generator=torch.Generator().manual_seed(2))
    futures = net.rollout(latents[:, :3], torch.zeros(2, 10, 2), controls)
    both = torch.cat([net.blocks(torch.zeros(2, 10, 2)), net.blocks(controls)[:, 1]], dim=1)
    assert torch.allclose(futures[:, 1], net.unroll(latents[:, :3], both), atol=2e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_sees_itself_and_the_two_before(kind: type[PatchGeometry]) -> None:
    """One layer: frames further back, and later ones, have no say."""
    net = lively(kind, replace(TINY, predictor_depth=1))
    latents, blocks = window(net, 1, 6)
    before = net.predict(latents, blocks)
    for changed in range(6):
        other = latents.clone()
        other[:, changed] += 1.0
        moved = (net.predict(other, blocks) - before).abs().amax(dim=(0, 2)) > 1e-5
        assert moved.tolist() == [changed <= frame < changed + 3 for frame in range(6)]


@pytest.mark.parametrize("kind", KINDS)
def test_time_enters_only_as_a_difference(kind: type[PatchGeometry]) -> None:
    """Three frames later the same frames mean the same, so no horizon is too long."""
    net = lively(kind)
    latents, blocks = window(net, 1, 2)
    early, _ = net.advance(latents, blocks, first=0)
    late, _ = net.advance(latents, blocks, first=3)
    assert torch.allclose(early, late, atol=1e-4)


def test_the_band_by_hand() -> None:
    assert band(4, 1, torch.device("cpu")).int().tolist() == [
        [1, 0, 0, 0],
        [1, 1, 0, 0],
        [1, 1, 1, 0],
        [0, 1, 1, 1],
    ]


@settings(max_examples=25, deadline=None)
@given(first=st.integers(0, 50), later=st.integers(0, 50), seed=st.integers(0, 1000))
def test_rotary_products_depend_on_the_lag_alone(first: int, later: int, seed: int) -> None:
    rope, random = Rope(head=14, grid=2, extra=1), torch.Generator().manual_seed(seed)
    q, k = torch.empty(2, 10, 14, dtype=torch.float64).normal_(generator=random)
    scores = [turned(q, rope(at, 2)) @ turned(k, rope(at, 2)).T for at in (first, later)]
    assert torch.allclose(scores[0], scores[1], atol=1e-3)
    assert torch.allclose(turned(q, rope(first, 2)).norm(dim=-1), q.norm(dim=-1), atol=1e-5)
    assert torch.equal(turned(q, rope(first, 2))[:, 12:], q[:, 12:])  # 14 = 3 axes x 2 x 2 + 2


def test_neighbouring_patches_make_one_token() -> None:
    net = JEPAWM(TINY)  # 4 x 4 patches, merged two by two
    marked = torch.arange(16.0)[None, :, None].expand(1, 16, 6)
    tokens = net.merged(marked)[0, :, ::6]
    assert tokens.tolist() == [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]


@pytest.mark.parametrize(("kind", "weight"), [(JEPAWM, 0.1), (DINOWM, 1.0)])
def test_native_cost_by_hand(kind: type[PatchGeometry], weight: float) -> None:
    net = kind(TINY)
    futures, goal = torch.zeros(1, 2, 5, net.latent), torch.zeros(1, net.latent)
    futures[0, :, :-1] = 9.0  # only the last block counts
    futures[0, 0, -1, 0] = 2.0  # a patch
    futures[0, 1, -1, -1] = 2.0  # proprioception
    expected = [4 / (net.latent - 4), weight * 4 / 4]
    assert net.native_cost(futures, goal)[0].tolist() == pytest.approx(expected)


def test_proprioception_enters_standardised() -> None:
    net = lively(DINOWM)
    net.proprio_mean.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    net.proprio_std.fill_(2.0)
    frames = torch.zeros(1, 56, 56, 3, dtype=torch.uint8)
    latent = net.encode(frames, torch.tensor([[3.0, 2.0, 3.0, 0.0]]))
    assert latent[0, -4:].tolist() == [1.0, 0.0, 0.0, -2.0]


def test_losses_by_hand() -> None:
    """A predictor of no change: each error is the distance to the frame it starts from."""
    draws = draw(2, 6, 4, torch.Generator().manual_seed(0))
    for kind in KINDS:
        net = lively(kind)
        net.read = lambda tokens: tokens.new_zeros(*tokens.shape[:2], net.latent)  # type: ignore[method-assign] # noqa: B023
        latents, blocks = window(net, 2, 6)

        def gap(a: Tensor, b: Tensor, net: PatchGeometry = net) -> Tensor:
            seen, felt = net.split((a - b).square())
            return seen.mean() + felt.mean()

        if kind is DINOWM:
            expected = gap(latents[:, :-1], latents[:, 1:])
            assert torch.isclose(dinowm_loss(net, latents, blocks[:, :5], draws, False), expected)
        else:
            terms = [gap(latents[:, :3], latents[:, 1:4])]
            terms += [gap(latents[:, 2], latents[:, frame]) for frame in (4, 5)]
            expected = torch.stack(terms).mean()
            assert torch.isclose(jepawm_loss(net, latents, blocks[:, :5], draws, False), expected)


def test_no_gradient_flows_from_one_rollout_step_into_the_prediction_before() -> None:
    net = lively(JEPAWM).requires_grad_(True)
    latents, blocks = window(net, 1, 5)
    seen: list[bool] = []
    advance = net.advance

    def watched(now: Tensor, *rest: object) -> object:
        seen.append(now.requires_grad)
        return advance(now, *rest)  # type: ignore[arg-type]

    net.advance = watched  # type: ignore[method-assign, assignment]
    jepawm_loss(net, latents, blocks[:, :4], draw(1, 5, 4, torch.Generator()), False).backward()
    assert seen == [False, False]
    assert net.patch_out.weight.grad is not None


@pytest.mark.parametrize("kind", KINDS)
def test_weights_round_trip(kind: type[PatchGeometry], tmp_path: Path) -> None:
    net = lively(kind)
    net.feature_mean.fill_(1 / 3)
    save_geometry(net, tmp_path, {})
    loaded = load_geometry(tmp_path)
    assert type(loaded) is kind
    assert loaded.config == TINY
    assert torch.equal(loaded.feature_mean, net.feature_mean)  # statistics stay in float32
    latents, blocks = window(net, 1, 7)
    expected = net.half().float().unroll(latents[:, :3], blocks)
    assert torch.allclose(loaded.unroll(latents[:, :3], blocks), expected, atol=1e-2)


def test_published_sizes() -> None:
    """Millions of parameters of the predictors: 20.1 for DINO-WM, 17.6 for JEPA-WM."""

    def millions(net: PatchGeometry) -> float:
        return sum(p.numel() for n, p in net.named_parameters() if "encoder." not in n) / 1e6

    assert millions(DINOWM(dinowm.PAPER)) == pytest.approx(20.3, abs=0.2)
    assert millions(JEPAWM(jepawm.PAPER)) == pytest.approx(17.6, abs=0.2)
