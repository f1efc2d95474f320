"""Gates: the published examples, strictness, rounding, and that candidate order changes nothing."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from djepa.align.gates import NEVER, Gate, Mode
from djepa.errors import DjepaError
from djepa.evidence.ranks import best, order

BASE = torch.tensor([[0.0, 0.2]], dtype=torch.float64)
REFINED = torch.tensor([[0.1, 0.05]], dtype=torch.float64)
IDS = torch.tensor([[1, 2]])
MODES: tuple[Mode, ...] = ("base_minus_refined", "refined_gap")


@pytest.mark.parametrize(
    ("threshold", "mode", "position"),
    [
        (0.01, "refined_gap", 1),  # 0.1 - 0.05 = 0.05 > 0.01
        (0.01, "base_minus_refined", 0),  # 0 - 0.05 = -0.05
        (0.05, "refined_gap", 0),  # strictly
        (-0.06, "base_minus_refined", 1),
        (-0.05, "base_minus_refined", 0),  # strictly
        (NEVER, "refined_gap", 0),
        (-NEVER, "base_minus_refined", 1),
    ],
)
def test_published_examples(threshold: float, mode: Mode, position: int) -> None:
    gate = Gate(threshold, mode)
    assert gate.choose(BASE, REFINED, IDS).tolist() == [position]
    assert gate.opens(BASE, REFINED, IDS).tolist() == [position == 1]
    assert torch.equal(gate.final(BASE, REFINED, IDS), REFINED if position else BASE)


def test_ties_on_both_sides_go_to_the_smaller_id() -> None:
    base, refined = torch.zeros(1, 3), torch.zeros(1, 3)
    ids = torch.tensor([[5, 2, 9]])
    assert Gate(-1.0).choose(base, refined, ids).tolist() == [1]
    assert Gate().choose(base, refined, ids).tolist() == [1]


@pytest.mark.parametrize(
    ("gain", "decimals", "rounded"),
    [
        (0.125, 2, 0.12),  # 12.5 is a tie in binary too: to the even 12
        (0.375, 2, 0.38),
        (-0.125, 2, -0.12),
        (0.5, 0, 0.0),
        (1.5, 0, 2.0),
        (-0.03162, 4, -0.0316),
        (0.25, None, 0.25),
    ],
)
def test_rounding_half_to_even_before_the_strict_comparison(
    gain: float, decimals: int | None, rounded: float
) -> None:
    base, refined = torch.tensor([[0.0, 9.0]]), torch.tensor([[5.0, -gain]], dtype=torch.float64)
    gate = Gate(rounded, decimals=decimals)
    assert gate.advantage(base, refined, IDS).tolist() == [rounded]
    if decimals is not None:
        assert float(np.round(gain, decimals)) == rounded
    assert not gate.opens(base, refined, IDS).any()
    assert Gate(rounded - 1e-9, decimals=decimals).opens(base, refined, IDS).all()


def test_recorded_threshold_accepts_from_minus_316() -> None:
    """With four decimals the published threshold opens at a rounded advantage of -0.0316."""
    gate = Gate(-0.03162526342176623, decimals=4)
    for gain, opened in ((-0.03164, True), (-0.03166, False)):
        refined = torch.tensor([[5.0, -gain]], dtype=torch.float64)
        assert gate.opens(torch.tensor([[0.0, 9.0]]), refined, IDS).tolist() == [opened]


def test_never_is_finite_and_never_fires() -> None:
    assert json.loads(json.dumps(NEVER)) == NEVER
    huge = torch.tensor([[1e30, 1e30]]).double()
    for mode in MODES:
        assert not Gate(mode=mode).opens(huge, -huge, IDS).any()
        assert not Gate(mode=mode, decimals=4).opens(huge, -huge, IDS).any()


def test_refined_gap_is_never_negative() -> None:
    g = torch.Generator().manual_seed(0)
    base, refined = (torch.rand(200, 7, generator=g) for _ in range(2))
    ids = torch.arange(7).expand(200, 7)
    assert (Gate(mode="refined_gap").advantage(base, refined, ids) >= 0).all()


@pytest.mark.parametrize("threshold", [float("nan"), float("inf"), -float("inf")])
def test_thresholds_are_finite(threshold: float) -> None:
    with pytest.raises(DjepaError, match="finite"):
        Gate(threshold)


def test_unknown_mode() -> None:
    with pytest.raises(DjepaError, match="Did you mean 'refined_gap'"):
        Gate(0.0, "refined-gap")  # type: ignore[arg-type]


def scored(seed: int, K: int, N: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """Scores of few values: plenty of exact ties."""
    rng = np.random.default_rng(seed)
    base, refined = (torch.from_numpy(rng.integers(0, 5, (N, K)) / 10) for _ in range(2))
    return base, refined, torch.from_numpy(rng.random((N, K)).argsort(1))


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(2, 80),
    st.sampled_from(MODES),
    st.sampled_from([-0.2, -0.1, 0.0, 0.1, 0.15, NEVER]),
    st.sampled_from([None, 1, 4]),
)
def test_candidate_order_changes_no_choice(
    seed: int, K: int, mode: Mode, threshold: float, decimals: int | None
) -> None:
    base, refined, ids = scored(seed, K)
    p = torch.from_numpy(np.random.default_rng(seed).permutation(K))
    gate = Gate(threshold, mode, decimals)
    here, there = (base, refined, ids), (base[:, p], refined[:, p], ids[:, p])
    assert torch.equal(gate.opens(*here), gate.opens(*there))
    assert torch.equal(gate.final(*here)[:, p], gate.final(*there))
    first, second = (x[2].gather(1, gate.choose(*x)[:, None]) for x in (here, there))
    assert torch.equal(first, second)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 80), st.sampled_from(MODES))
def test_the_final_score_orders_the_choice_first(seed: int, K: int, mode: Mode) -> None:
    base, refined, ids = scored(seed, K)
    gate = Gate(0.05, mode)
    chosen = gate.choose(base, refined, ids)
    assert torch.equal(order(gate.final(base, refined, ids), ids)[:, 0], chosen)
    either = torch.stack([best(base, ids), best(refined, ids)])
    assert (chosen == either).any(0).all()


def test_a_careful_gate_stays_shut_until_gains_are_shown() -> None:
    """Four gains of four have p = 1/16; five have p = 1/32, below 5 %."""
    from djepa.align.gates import NEVER, Gate, calibrate

    def gate(starts: int, losses: int) -> Gate:
        ids = torch.arange(2).repeat(starts, 1)
        base, refined = torch.tensor([0.0, 0.1]), torch.tensor([0.1, 0.0])
        success = torch.tensor([False, True]).repeat(starts, 1)
        success[:losses] = torch.tensor([True, False])
        pools = base.repeat(starts, 1), refined.repeat(starts, 1)
        return calibrate(Gate(), *pools, ids, success, "careful")

    assert gate(4, 0).threshold == NEVER
    assert gate(5, 0).threshold < 0
    assert gate(9, 1).threshold < 0  # 8 of 9: p = 10/512
    assert gate(7, 1).threshold == NEVER  # 6 of 7: p = 8/128
