"""Fitting on a problem that only relations solve, and what must not matter to it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from djepa.align.fit import AlignConfig, Alignment, Decision, task_local
from djepa.align.outcomes import Outcomes
from djepa.evidence.evidence import Evidence
from djepa.evidence.ranks import best

Problem = tuple[Evidence, Outcomes]
MakeProblem = Callable[..., Problem]


def solved(outcomes: Outcomes, position: torch.Tensor) -> float:
    return float(outcomes.success.gather(1, position[:, None]).double().mean())


def aligned(config: AlignConfig, make: MakeProblem, **size: Any) -> Alignment:
    return Alignment(config).fit(*make("fit", **size)).calibrate(*make("cal", **size))


def same(one: Decision, other: Decision) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("relations", [True, False])
def test_it_learns_a_relation_that_candidates_alone_do_not_show(
    relations: bool, problem: MakeProblem, quick: AlignConfig
) -> None:
    evidence, outcomes = problem("test", N=256)
    network = replace(quick.operator, relations=relations)
    config = replace(quick, operator=network, updates=150, every=50, batch=32)
    decision = aligned(config, problem).decide(evidence)
    gain = solved(outcomes, decision.position) - solved(outcomes, best(decision.base, evidence.ids))
    assert gain > 0.15 if relations else gain < 0.1
    ids = evidence.ids.gather(1, decision.position[:, None])[:, 0]
    assert torch.equal(decision.choice, ids)
    assert torch.equal(decision.order[:, 0], ids)


def test_the_same_seed_gives_the_same_alignment(problem: MakeProblem, quick: AlignConfig) -> None:
    evidence, _ = problem("test")
    before = torch.get_rng_state()
    first = aligned(quick, problem)
    assert torch.equal(torch.get_rng_state(), before)  # nobody else's draws are touched
    torch.manual_seed(99)
    second, other = aligned(quick, problem), aligned(replace(quick, seed=1), problem)
    assert first.gate == second.gate
    assert first.report == second.report
    assert same(first.decide(evidence), second.decide(evidence))
    assert same(first.decide(evidence), first.decide(evidence))
    assert not torch.equal(first.scores(evidence)[1], other.scores(evidence)[1])


VARIANTS: list[dict[str, Any]] = [
    {"extras": ("log", "agreement")},
    {"extras": ("agreement",), "policy": "conservative", "decimals": 4},
    {"mode": "refined_gap", "grid": True},
    {"policy": "careful", "base": ("c",), "ranked": ("a", "b", "c")},
    {"dense": ()},
    {"ranked": ()},
]


@pytest.mark.parametrize("change", VARIANTS)
def test_variants_stay_within_epsilon_and_know_no_order(
    change: dict[str, Any], problem: MakeProblem, quick: AlignConfig
) -> None:
    alignment = aligned(replace(quick, **change), problem, D=6)
    evidence, _ = problem("test", D=6)
    decision = alignment.decide(evidence)
    moved = decision.refined.double() - decision.base.float().double()
    assert moved.abs().max() <= 0.5 + 1e-7
    p = torch.randperm(12, generator=torch.Generator().manual_seed(3))
    mixed = alignment.decide(evidence.columns(p.expand(64, 12)))
    assert torch.equal(mixed.choice, decision.choice)
    assert torch.equal(mixed.order, decision.order)
    assert torch.equal(mixed.refined, decision.refined[:, p])  # to the bit
    assert torch.equal(mixed.opened, decision.opened)
    alone = [alignment.decide(evidence.rows([n])) for n in range(64)]
    assert torch.equal(torch.cat([one.choice for one in alone]), decision.choice)
    together = torch.cat([one.refined for one in alone])
    torch.testing.assert_close(together, decision.refined, atol=1e-5, rtol=0)


def test_candidate_order_does_not_matter_to_fitting(
    problem: MakeProblem, quick: AlignConfig
) -> None:
    """Each start in an order of its own, tied costs and all: the same weights to the bit."""
    evidence, outcomes = problem("fit")
    tied = Evidence(
        evidence.identities,
        evidence.ids,
        evidence.names,
        evidence.costs.round(decimals=1),
        evidence.latents,
        evidence.goals,
    )
    p = torch.rand(64, 12, generator=torch.Generator().manual_seed(0)).argsort(1)
    first = Alignment(quick).fit(tied, outcomes)
    second = Alignment(quick).fit(tied.columns(p), outcomes.columns(p))
    assert first.report == second.report
    test, _ = problem("test")
    assert torch.equal(first.scores(test)[1], second.scores(test)[1])


def test_three_hundred_candidates(problem: MakeProblem, quick: AlignConfig) -> None:
    alignment = aligned(replace(quick, updates=2), problem, N=6, K=300)
    evidence, _ = problem("test", N=3, K=300)
    assert alignment.decide(evidence).order.shape == (3, 300)


def test_untrained_is_the_base_choice(problem: MakeProblem, quick: AlignConfig) -> None:
    evidence, _ = problem("test")
    decision = aligned(replace(quick, updates=0), problem).decide(evidence)
    assert torch.equal(decision.refined, decision.base.float())
    assert torch.equal(decision.position, best(decision.base, evidence.ids))
    assert torch.equal(decision.position, best(decision.refined, evidence.ids))


def test_without_calibrated_gain_the_untrained_checkpoint_stays(
    problem: MakeProblem, quick: AlignConfig
) -> None:
    """Everything succeeds on the calibration starts: less correction, then earlier, is better."""
    evidence, outcomes = problem("cal")
    easy = replace(outcomes, success=torch.ones_like(outcomes.success))
    alignment = Alignment(quick).fit(*problem("fit")).calibrate(evidence, easy)
    base, refined = alignment.scores(evidence)
    assert torch.equal(refined, base.float())


@pytest.mark.parametrize("grid", [False, True])
def test_unobserved_outcomes_change_neither_weights_nor_gate(
    grid: bool, problem: MakeProblem, quick: AlignConfig
) -> None:
    config = replace(quick, grid=grid, mode="refined_gap", policy="conservative")
    test, _ = problem("test")
    found = []
    for flip in (False, True):
        alignment = Alignment(config)
        for split, step in (("fit", alignment.fit), ("cal", alignment.calibrate)):
            evidence, outcomes = problem(split, observed=0.4)
            assert outcomes.cost is not None
            hidden = ~outcomes.observed & flip
            cost = outcomes.cost.masked_fill(hidden, torch.nan)
            step(evidence, replace(outcomes, success=outcomes.success ^ hidden, cost=cost))
        found.append((alignment.gate, alignment.report, alignment.decide(test)))
    assert found[0][:2] == found[1][:2]
    assert same(found[0][2], found[1][2])


def test_starts_of_one_class_are_skipped(problem: MakeProblem, quick: AlignConfig) -> None:
    evidence, outcomes = problem("fit")
    outcomes.success[:10] = True
    outcomes.success[10:15] = False
    report = Alignment(quick).fit(evidence, outcomes).report
    assert report is not None
    assert (report.starts, report.skipped) == (49, 15)
    assert len(report.losses) == 1 + 3  # the first update, then every fourth of twelve


def test_task_local_settings(problem: MakeProblem) -> None:
    config = replace(task_local(("a", "b", "c")), updates=4)
    assert (config.dense, config.base, config.loss.pooled) == ((), ("a", "b"), True)
    alignment = aligned(config, problem)
    assert alignment.operator is not None
    assert alignment.operator.config.inputs == 3
    assert alignment.gate is not None
    assert alignment.gate.mode == "refined_gap"
    alignment.decide(problem("test")[0])


def test_dropout_is_for_training_alone(problem: MakeProblem, quick: AlignConfig) -> None:
    config = replace(quick, operator=replace(quick.operator, dropout=0.3))
    first, second = aligned(config, problem), aligned(config, problem)
    test, _ = problem("test")
    assert same(first.decide(test), second.decide(test))
