"""Likelihood mixtures of graded outcomes: a candidate counts by its quality."""

import pytest
import torch

from djepa.align.mixture import fit_logs, likeliest
from djepa.align.outcomes import Outcomes
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence

N, K = 40, 6


def inputs() -> torch.Tensor:
    return torch.rand(N, K, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_qualities_of_0_and_1_are_successes_and_failures() -> None:
    won = inputs()[..., 0] < 0.3
    seen = torch.ones_like(won)
    assert likeliest(inputs(), won, seen) == likeliest(inputs(), won.double(), seen)


def test_a_large_loss_weighs_more_than_a_small_one() -> None:
    """Input 0 says who loses everything, input 1 who loses a little: the first gets the weight."""
    x = (inputs() > 0.5).double()
    quality = (1 - x[..., 0]) * (1 - 0.05 * x[..., 1])
    seen = torch.ones(N, K, dtype=torch.bool)
    first, second = likeliest(x, quality, seen)
    assert first > 2 * second > 0
    first, second = likeliest(x, quality == 1, seen)  # successes and failures: all losses are alike
    assert first < 1.5 * second


def test_the_fit_reads_qualities() -> None:
    x = inputs() + 0.1
    ids = torch.arange(K).expand(N, K)
    costs = {"a": x[..., 0], "b": x[..., 1]}
    evidence = Evidence.from_arrays(start_ids=range(N), candidate_ids=ids, costs=costs)
    quality, seen = (1.2 - x[..., 1]).clamp(0, 1), torch.ones(N, K, dtype=torch.bool)
    found = fit_logs(evidence, quality, seen, ("a", "b"))
    assert found.weights[1] > 10 * found.weights[0]
    best = float(quality.amax(1).sum())
    assert found.successes == pytest.approx(1000 * best, abs=1)


def test_graded_outcomes_need_costs_between_0_and_1() -> None:
    good, seen = torch.zeros(1, 2, dtype=torch.bool), torch.ones(1, 2, dtype=torch.bool)
    cost = torch.tensor([[0.25, 1.0]], dtype=torch.float64)
    assert Outcomes(("a",), good, seen, cost).quality.tolist() == [[0.75, 0.0]]
    for bad in (None, cost + 1):
        with pytest.raises(DjepaError, match="between 0 and 1"):
            _ = Outcomes(("a",), good, seen, bad).quality
