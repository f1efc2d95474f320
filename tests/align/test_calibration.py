"""Thresholds worked out by hand on small tables."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from djepa.align.gates import GRID, NEVER, Gate, Mode, Policy, calibrate, calibrate_on_grid
from djepa.errors import DjepaError

Rows = list[tuple[float, int, int]]


def table(rows: Rows) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(advantage, does the base winner succeed, does the aligned one): candidate 0 and 1 of two."""
    N = len(rows)
    base = torch.tensor([[0.0, 0.5]], dtype=torch.float64).expand(N, 2)
    refined = torch.tensor([[0.0, -gain] for gain, _, _ in rows], dtype=torch.float64)
    success = torch.tensor([[bool(b), bool(a)] for _, b, a in rows])
    return base, refined, torch.tensor([[1, 2]]).expand(N, 2), success


ONE_BEST: Rows = [(0.1, 1, 0), (0.2, 0, 1), (0.3, 0, 0), (0.4, 1, 1)]
# opened above: never 2, 0.35: 2, 0.25: 2, 0.15: 3, below 0.1: 2
TIED: Rows = [(0.1, 1, 0), (0.2, 0, 0), (0.3, 0, 0)]
# never 1, 0.25: 1, 0.15: 1, below 0.1: 0


@pytest.mark.parametrize("policy", ["permissive", "careful"])
def test_a_single_best_threshold(policy: Policy) -> None:
    base, refined, ids, success = table(6 * ONE_BEST[1:] + ONE_BEST[:1])
    gate = calibrate(Gate(), base, refined, ids, success, policy)
    assert gate.threshold == pytest.approx(0.15)


def test_permissive_uses_as_many_as_it_may() -> None:
    gate = calibrate(Gate(), *table(TIED))
    assert gate.threshold == pytest.approx(0.15)
    helpful: Rows = [(0.1, 0, 1), (0.2, 0, 0)]
    assert calibrate(Gate(), *table(helpful)).threshold == math.nextafter(0.1, -math.inf)
    harmful: Rows = [(0.1, 1, 0), (0.2, 1, 0)]
    assert calibrate(Gate(), *table(harmful)).threshold == NEVER


def test_careful_uses_as_few_as_it_may() -> None:
    base, refined, ids, success = table(TIED)
    assert calibrate(Gate(), base, refined, ids, success, "careful").threshold == NEVER
    helpful: Rows = 3 * [(0.1, 0, 0), (0.2, 0, 1), (0.3, 0, 1)]
    base, refined, ids, success = table(helpful)
    gate = calibrate(Gate(), base, refined, ids, success, "careful")
    assert gate.threshold == pytest.approx(0.15)


@pytest.mark.parametrize(
    ("aligned_costs", "threshold"),
    [
        ((1.0, 0.5, 0.9), 0.1),  # opening the last two pays: the largest that opens both
        ((1.0, 0.5, 2.0), 0.3 + 2e-7),  # the third costs more than the second saves
        ((1.0, 2.0, 0.5), 0.2),
        ((1.0, 1.0, 1.0), 0.3 + 2e-7),  # no difference: the largest threshold, which never opens
    ],
)
def test_conservative_asks_for_the_cost(aligned_costs: tuple[float, ...], threshold: float) -> None:
    base, refined, ids, success = table(TIED)
    cost = torch.tensor([[1.0, after] for after in aligned_costs], dtype=torch.float64)
    gate = calibrate(Gate(), base, refined, ids, success, "conservative", cost)
    assert gate.threshold == pytest.approx(threshold, abs=1e-12)


def test_conservative_with_one_advantage() -> None:
    base, refined, ids, success = table([(0.25, 0, 1)])
    cost = torch.ones(1, 2, dtype=torch.float64)
    gate = calibrate(Gate(), base, refined, ids, success, "conservative", cost)
    assert gate.threshold == 0.25 - 1e-9


def test_mode_and_rounding_are_kept() -> None:
    base, refined, ids, success = table([(0.10004, 0, 1), (0.10006, 1, 0)])
    # rounded to 4 decimals: 0.1 and 0.1001; two starts, one success either way
    gate = calibrate(Gate(mode="refined_gap", decimals=4), base, refined, ids, success)
    assert (gate.mode, gate.decimals) == ("refined_gap", 4)
    assert gate.threshold == math.nextafter(0.1, -math.inf)


def test_the_grid_prefers_the_larger_threshold() -> None:
    rows: Rows = [(0.03, 0, 1), (0.007, 1, 0)]
    flat = torch.ones(2, 2, dtype=torch.float64)
    gate = Gate(mode="refined_gap")
    assert calibrate_on_grid(gate, *table(rows), flat).threshold == 0.02
    # A third start that succeeds either way, but closer when opened: below 0.015.
    cost = torch.tensor([[1.0, 1.0], [1.0, 1.0], [1.0, 0.5]], dtype=torch.float64)
    assert calibrate_on_grid(gate, *table([*rows, (0.015, 1, 1)]), cost).threshold == 0.01
    assert calibrate_on_grid(gate, *table([(0.3, 0, 0)]), flat[:1]).threshold == max(GRID)


def sparse(seed: int, N: int = 12, K: int = 7) -> dict[str, Tensor]:
    rng = np.random.default_rng(seed)
    observed = rng.random((N, K)) < 0.5
    observed[:, 0] = True
    arrays = {
        "base": rng.integers(0, 6, (N, K)) / 10,
        "refined": rng.integers(0, 6, (N, K)) / 10,
        "ids": rng.random((N, K)).argsort(1),
        "success": rng.random((N, K)) < 0.5,
        "cost": rng.random((N, K)),
        "observed": observed,
    }
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


POLICIES: tuple[Policy, ...] = ("permissive", "conservative", "careful")
MODES: tuple[Mode, ...] = ("base_minus_refined", "refined_gap")


def both(case: dict[str, Tensor], mode: Mode, policy: Policy) -> tuple[Gate, Gate]:
    gate = Gate(mode=mode)
    return calibrate(gate, policy=policy, **case), calibrate_on_grid(gate, **case)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(MODES), st.sampled_from(POLICIES))
def test_unobserved_candidates_have_no_say(seed: int, mode: Mode, policy: Policy) -> None:
    """Neither their outcomes, nor their costs, nor their scores."""
    case = sparse(seed)
    hidden = ~case["observed"]
    other = {**case, "success": case["success"] ^ hidden}
    other["cost"] = case["cost"].masked_fill(hidden, torch.nan)
    other["base"] = case["base"].masked_fill(hidden, -5.0)
    other["refined"] = case["refined"].masked_fill(hidden, -7.0)
    assert both(case, mode, policy) == both(other, mode, policy)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(MODES), st.sampled_from(POLICIES))
def test_order_of_candidates_and_starts_changes_no_threshold(
    seed: int, mode: Mode, policy: Policy
) -> None:
    case = sparse(seed)
    rng = np.random.default_rng(seed)
    rows, columns = (torch.from_numpy(rng.permutation(n)) for n in case["ids"].shape)
    case["cost"] = (8 * case["cost"]).round() / 8  # whole eighths: their sums are exact
    mixed = {name: x[rows][:, columns] for name, x in case.items()}
    assert both(case, mode, policy) == both(mixed, mode, policy)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(MODES))
def test_no_threshold_does_better(seed: int, mode: Mode) -> None:
    case: dict[str, Any] = sparse(seed)
    case.pop("observed"), case.pop("cost")
    outcomes = case["success"]

    def hits(gate: Gate) -> int:
        chosen = gate.choose(case["base"], case["refined"], case["ids"])
        return int(outcomes.gather(1, chosen[:, None]).sum())

    best = hits(calibrate(Gate(mode=mode), **case))
    for tau in [*np.linspace(-0.6, 0.6, 25), NEVER]:
        assert hits(Gate(float(tau), mode)) <= best


def test_refused() -> None:
    base, refined, ids, success = table(TIED)
    with pytest.raises(DjepaError, match="Did you mean 'permissive'"):
        calibrate(Gate(), base, refined, ids, success, "permisive")  # type: ignore[arg-type]
    with pytest.raises(DjepaError, match="give the task costs"):
        calibrate(Gate(), base, refined, ids, success, "conservative")
    nothing = [x[:0] for x in (base, refined, ids, success)]
    with pytest.raises(DjepaError, match="no start"):
        calibrate(Gate(), *nothing)
    with pytest.raises(DjepaError, match="no start"):
        calibrate_on_grid(Gate(), *nothing, base[:0])
