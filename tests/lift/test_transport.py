"""Temporal transport: nothing moves at first, never far, and the loss term by term."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from djepa.errors import DjepaError
from djepa.lift.transport import TemporalTransport, transport_loss


def given_futures(seed: int = 0, K: int = 6, B: int = 5, D: int = 8) -> dict[str, Tensor]:
    rng = np.random.default_rng(seed)
    return {
        "moved": torch.from_numpy(rng.normal(size=(3, K, B, D))).float(),
        "towards": torch.from_numpy(rng.normal(size=(3, K, B, D))).float(),
        "ranks": torch.from_numpy(rng.random((3, 3, K)).argsort(-1).transpose(0, 2, 1) / (K - 1)),
        "gate": torch.tensor([True, False, True]),
    }


def lively(std: float = 1.0, **config: Any) -> TemporalTransport:
    torch.manual_seed(0)
    head = TemporalTransport(**config)
    torch.nn.init.normal_(head.down.weight, std=std)
    return head


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_fresh_head_moves_nothing(dtype: torch.dtype) -> None:
    futures = given_futures()
    futures["moved"], futures["towards"] = (futures[x].to(dtype) for x in ("moved", "towards"))
    moved, beta = TemporalTransport()(**futures)
    assert moved.dtype == dtype
    assert torch.equal(moved, futures["moved"])
    assert not beta.any()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 999), st.sampled_from([0.1, 1.0, 1e4, 1e30]), st.sampled_from([0.1, 0.3]))
def test_no_step_moves_further_than_the_radius(seed: int, std: float, radius: float) -> None:
    futures = given_futures(seed)
    moved, beta = lively(std, radius=radius)(**futures)
    assert beta.double().abs().max() <= radius
    assert (moved - futures["moved"]).norm(dim=-1).max() <= radius + 1e-6


def test_the_five_inputs_in_order() -> None:
    """Ranks of L, of T, of the final score, the gate, the time: one weight at a time."""
    futures = given_futures()
    head = TemporalTransport(hidden=1)
    torch.nn.init.ones_(head.down.weight)
    torch.nn.init.zeros_(head.up.bias)
    time = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0]).expand(3, 6, 5)
    ranks = futures["ranks"].float()[:, :, None].expand(3, 6, 5, 3)
    gate = futures["gate"].float()[:, None, None].expand(3, 6, 5)
    for place, value in enumerate([*ranks.unbind(-1), gate, time]):
        torch.nn.init.zeros_(head.up.weight)
        head.up.weight.data[0, place] = 1.0
        beta = head.coefficients(futures["ranks"], futures["gate"], 5)
        expected = 0.1 * torch.tanh(torch.nn.functional.gelu(value))
        torch.testing.assert_close(beta, expected)
    assert head.coefficients(futures["ranks"], futures["gate"], 1).shape == (3, 6, 1)


def test_the_movement_is_along_the_difference_of_the_same_step() -> None:
    futures = given_futures()
    moved, beta = lively()(**futures)
    way = futures["towards"] - futures["moved"]
    expected = futures["moved"] + beta[..., None] * way / way.norm(dim=-1, keepdim=True)
    torch.testing.assert_close(moved, expected)
    still = {**futures, "towards": futures["moved"]}
    assert torch.equal(lively()(**still)[0], futures["moved"])


def test_differences_shorter_than_eta_are_divided_by_eta() -> None:
    futures = given_futures(D=1)
    head = lively()
    beta = head.coefficients(futures["ranks"], futures["gate"], 5)
    zero = torch.zeros_like(futures["moved"])
    for gap, share in ((1e-13, 0.1), (1e-11, 1.0)):
        moved, _ = head(zero, zero + gap, futures["ranks"], futures["gate"])
        torch.testing.assert_close(moved[..., 0], share * beta)


def test_candidate_order_permutes_the_futures() -> None:
    futures, p = given_futures(), torch.tensor([5, 0, 3, 1, 4, 2])
    mixed = {name: x if name == "gate" else x[:, p] for name, x in futures.items()}
    for ours, theirs in zip(lively()(**mixed), lively()(**futures), strict=True):
        torch.testing.assert_close(ours, theirs[:, p])


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"ranks": torch.full((3, 6, 3), 1.5)}, "three ranks"),
        ({"ranks": torch.full((3, 6, 3), -0.1)}, "three ranks"),
        ({"ranks": torch.full((3, 6, 3), torch.nan)}, "three ranks"),
        ({"ranks": torch.zeros(3, 6, 2)}, "three ranks"),
        ({"ranks": torch.zeros(3, 1, 3)}, "Ranks are"),
        ({"gate": torch.ones(3)}, "one gate state"),
        ({"gate": torch.ones(2, dtype=torch.bool)}, "one gate state"),
        ({"towards": torch.zeros(3, 6, 5, 7)}, "twice"),
        ({"towards": torch.full((3, 6, 5, 8), torch.nan)}, "NaN"),
    ],
)
def test_refused(change: dict[str, Tensor], match: str) -> None:
    with pytest.raises(DjepaError, match=match):
        lively()(**{**given_futures(), **change})


def softplus(x: float) -> float:
    return math.log1p(math.exp(x))


def cross_entropy(scores: list[float], oracle: int, T: float = 0.1) -> float:
    return scores[oracle] / T + math.log(sum(math.exp(-s / T) for s in scores))


def loss_of(**change: Any) -> float:
    """Two candidates fail, one succeeds at a higher cost: wanted order 2, 1, 0."""
    given = {
        "refined": torch.tensor([[0.0, 0.1, 0.3]]),
        "transported": torch.tensor([[0.25, 0.1, 0.0]]),
        "futures": torch.zeros(1, 3, 5, 2),
        "before": torch.zeros(1, 3, 5, 2),
        "success": torch.tensor([[False, False, True]]),
        "cost": torch.tensor([[3.0, 2.0, 9.0]]),
        "ids": torch.tensor([[1, 2, 3]]),
    }
    return float(transport_loss(**{**given, **change}))


def by_hand(wanted: tuple[int, int, int]) -> float:
    total = 0.0
    for s in ([0.0, 0.1, 0.3], [0.25, 0.1, 0.0]):
        a, b, c = (s[i] for i in wanted)
        pairs = [softplus((a - b) / 0.1), softplus((a - c) / 0.1), softplus((b - c) / 0.1)]
        total += cross_entropy(s, wanted[0]) + 0.25 * sum(pairs) / 3
    return total


def test_loss_by_hand() -> None:
    assert loss_of() == pytest.approx(by_hand((2, 1, 0)), rel=1e-6)
    moved = torch.zeros(1, 3, 5, 2)
    moved[0, 0, 0, 0] = 3.0  # 9 / 30 mean squared movement
    assert loss_of(futures=moved) - loss_of() == pytest.approx(0.02 * 0.3, rel=1e-3)
    assert loss_of(futures=moved, before=moved) == loss_of()


@pytest.mark.parametrize(
    ("success", "cost", "wanted"),
    [
        ([False, False, False], [3.0, 2.0, 9.0], (1, 0, 2)),  # works without a success
        ([True, True, True], [3.0, 2.0, 9.0], (1, 0, 2)),
        ([False, True, True], [0.0, 2.0, 1.0], (2, 1, 0)),
        ([False, False, True], [5.0, 5.0, 5.0], (2, 0, 1)),  # then IDs
        ([False, False, True], [5.0 + 1e-12, 5.0, 9.0], (2, 1, 0)),  # the least difference counts
        ([False, False, True], [1.0, 2.0, 5e7], (2, 0, 1)),  # success first, whatever it costs
    ],
)
def test_wanted_orders(
    success: list[bool], cost: list[float], wanted: tuple[int, int, int]
) -> None:
    costs = torch.tensor([cost], dtype=torch.float64)
    found = loss_of(success=torch.tensor([success]), cost=costs)
    assert found == pytest.approx(by_hand(wanted), rel=1e-6)


def test_rows_and_pairs_are_averaged() -> None:
    """Twice the same start is the same loss."""
    one = {"refined": torch.tensor([[0.0, 0.1, 0.3]] * 2), "ids": torch.tensor([[1, 2, 3]] * 2)}
    one |= {"transported": torch.tensor([[0.25, 0.1, 0.0]] * 2)}
    one |= {"success": torch.tensor([[False, False, True]] * 2)}
    one |= {"cost": torch.tensor([[3.0, 2.0, 9.0]] * 2)}
    still = torch.zeros(2, 3, 5, 2)
    assert loss_of(**one, futures=still, before=still) == pytest.approx(loss_of())


def test_labels_that_are_none() -> None:
    with pytest.raises(DjepaError, match="true or false"):
        loss_of(success=torch.tensor([[0, 0, 1]]))
    with pytest.raises(DjepaError, match="cost of start 0"):
        loss_of(cost=torch.tensor([[0.0, torch.nan, 1.0]]))
    with pytest.raises(DjepaError, match="twice"):
        loss_of(ids=torch.tensor([[1, 1, 2]]))
