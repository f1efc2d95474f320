"""The promise of a risk-controlled gate is kept, and refused where it cannot be."""

import numpy as np
import pytest
import torch
from scipy.stats import binom

from djepa.align.gates import NEVER, Gate
from djepa.align.risk import GRID, risk_controlled, starts_needed
from djepa.errors import DjepaError


def decisions(
    N: int, harm: float, rng: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two candidates; the aligned choice is the second one, and with `harm` it fails."""
    base = torch.tensor([[0.0, 0.1]]).repeat(N, 1)
    gain = torch.from_numpy(rng.uniform(-0.1, 0.2, N))
    refined = torch.stack([torch.full((N,), 0.9), -gain], dim=1)
    ids = torch.arange(2).repeat(N, 1)
    success = torch.ones(N, 2, dtype=torch.bool)
    success[:, 1] = torch.from_numpy(rng.random(N) >= harm)
    return base, refined, ids, success


def test_the_promise_is_kept_in_most_repetitions() -> None:
    """At a harm of 5 % per opened start and a limit of 2 %, few thresholds break the promise."""
    rng, broken = np.random.default_rng(0), 0
    for _ in range(200):
        found = risk_controlled(Gate(), *decisions(400, 0.05, rng), limit=0.02)
        opens = min(1.0, max(0.0, (0.2 - found.gate.threshold) / 0.3))
        broken += 0.05 * opens > 0.02
    assert broken <= 200 * 0.05 + 8


def test_by_hand() -> None:
    rng = np.random.default_rng(1)
    base, refined, ids, success = decisions(200, 0.0, rng)
    found = risk_controlled(Gate(), base, refined, ids, success, limit=0.02)
    assert found.valid
    assert (found.harmed, found.changed, found.gate.threshold) == (0, 200, GRID[-1])
    small = risk_controlled(Gate(), base[:100], refined[:100], ids[:100], success[:100], limit=0.02)
    assert not small.valid
    assert small.gate.threshold == NEVER
    assert "No valid threshold" in str(small)
    assert starts_needed(0.02, 0.95) == 149
    assert binom.cdf(0, 149, 0.02) <= 0.05 < binom.cdf(0, 148, 0.02)


def test_harm_is_what_was_solved_before() -> None:
    """A failure of both is no harm."""
    base, refined, ids, success = decisions(400, 0.5, np.random.default_rng(2))
    success[:, 0] = False
    assert risk_controlled(Gate(), base, refined, ids, success).harmed == 0
    with pytest.raises(DjepaError, match="between 0 and 1"):
        risk_controlled(Gate(), base, refined, ids, success, limit=2.0)


def test_looks_of_one_start_are_one_start() -> None:
    """30 starts in 7 looks are 30 starts: too few for 2 %, however many rows there are."""
    rows = decisions(210, 0.0, np.random.default_rng(3))
    assert risk_controlled(Gate(), *rows).valid
    same = torch.arange(30).repeat(7)
    found = risk_controlled(Gate(), *rows, same=same)
    assert (found.valid, found.starts) == (False, 30)
    base, refined, ids, success = (
        x.repeat(7, 1) for x in decisions(200, 0.0, np.random.default_rng(4))
    )
    success[0, 1] = success[200, 1] = success[401, 1] = (
        False  # start 0 in two looks, start 1 in one
    )
    loose = risk_controlled(
        Gate(), base, refined, ids, success, 0.05, same=torch.arange(200).repeat(7)
    )
    assert (loose.valid, loose.starts, loose.harmed) == (True, 200, 2)
