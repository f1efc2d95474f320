"""Likelihood mixtures of graded outcomes: a candidate counts by its quality."""

import math
from dataclasses import replace

import pytest
import torch

from djepa.align import fit
from djepa.align.fit import Alignment
from djepa.align.gates import CAREFUL, Gate
from djepa.align.mixture import fit_logs, likeliest
from djepa.align.objectives import RelationalLoss, expected_quality, success_mass
from djepa.align.outcomes import Outcomes
from djepa.align.presets import described
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


def test_the_expected_quality_by_hand() -> None:
    scores = torch.tensor([[0.0, 0.05 * math.log(3)]], dtype=torch.float64)  # shares 3/4 and 1/4
    quality, seen = torch.tensor([[0.2, 1.0]]), torch.ones(1, 2, dtype=torch.bool)
    found = expected_quality(scores, quality, seen, 0.05)
    assert found.item() == pytest.approx(-math.log(0.75 * 0.2 + 0.25 * 1.0))
    first = torch.tensor([[True, False]])  # of what was not executed nothing is expected
    assert expected_quality(scores, quality, first, 0.05).item() == pytest.approx(-math.log(0.2))


def test_qualities_of_0_and_1_give_the_success_term() -> None:
    scores = 0.1 * inputs()[..., 0]
    won = inputs()[..., 1] < 0.3
    seen = torch.ones_like(won)
    some = won.any(1)
    graded = expected_quality(scores[some], won[some].double(), seen[some], 0.05)
    mass = success_mass(scores[some], won[some], seen[some], 0.05)
    assert torch.allclose(graded, mass, atol=1e-4)  # a quality of 0 counts as 1e-6
    loss, trust = RelationalLoss(graded=True, trust=2.0)(
        scores, 0.1 * scores, won.double(), seen, torch.arange(K).expand(N, K)
    )
    assert trust.item() == pytest.approx(float((0.1 * scores).square().mean()))
    whole = expected_quality(scores, won.double(), seen, 0.05).mean() + 2 * trust
    assert loss.item() == pytest.approx(whole.item())


def population(seed: int, starts: int = 400) -> tuple[Evidence, Outcomes]:
    """Costs that say nothing, and a description whose second number is the quality."""
    random = torch.Generator().manual_seed(seed)
    quality = torch.rand(starts, K, generator=random, dtype=torch.float64)
    known = torch.stack([torch.rand(starts, K, generator=random), quality.float()], -1)
    names = [f"{seed}-{i}" for i in range(starts)]
    evidence = Evidence.from_arrays(
        start_ids=names,
        candidate_ids=torch.arange(K).expand(starts, K),
        costs={"a": torch.rand(starts, K, generator=random) + 0.1},
        latents={"a": known},
    )
    near = quality >= quality.amax(1, keepdim=True) - 0.05
    return evidence, Outcomes(tuple(names), near, torch.ones_like(near), 1 - quality)


def test_an_operator_learns_from_what_describes_a_candidate() -> None:
    config = described(("a",), (), ("a",), updates=150)
    alignment = Alignment(config).fit(*population(0)).calibrate(*population(1))
    evidence, outcomes = population(2)
    decision = alignment.decide(evidence)
    chosen = outcomes.quality.gather(1, decision.position[:, None]).mean()
    by_cost = outcomes.quality.gather(1, decision.base.argmin(1)[:, None]).mean()
    assert decision.opened.float().mean() > 0.5
    assert chosen > by_cost + 0.15
    assert (decision.refined.double() - decision.base).abs().max() <= 0.2 + 1e-6


def test_the_unchanged_operator_is_no_try_of_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates 1 and 4 may open; update 0 is the base itself: the level is halved."""
    levels = []

    def noted(gate: Gate, *given: object, level: float = 0.0, **more: object) -> Gate:
        levels.append(level)
        return gate

    monkeypatch.setattr(fit, "calibrate", noted)
    config = described(("a",), (), ("a",), updates=4)
    Alignment(config).fit(*population(0, 40)).calibrate(*population(1, 40))
    assert levels == [CAREFUL / 2] * 3


def test_the_rate_ends_at_0() -> None:
    config = replace(described(("a",), (), ("a",), updates=4), every=1)
    alignment = Alignment(config).fit(*population(0, 40))
    *_, before, last = alignment._snapshots
    assert all(torch.equal(x, last.weights[name]) for name, x in before.weights.items())
