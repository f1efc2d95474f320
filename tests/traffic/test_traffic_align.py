"""Driving readouts: exact properties, and a problem that they can learn."""

import pytest
import torch
from readouts import K, problem
from torch import Tensor

from djepa.align.driving import (
    EPSILON,
    AnchorRelative,
    DrivingOutcomes,
    ScoreCorrection,
    switch,
    tied_ranks,
    utility,
)
from djepa.align.driving_fit import (
    Recipe,
    Setting,
    fit_anchor,
    fit_correction,
    leave_out,
)
from djepa.align.driving_fusion import fit_fusion
from djepa.align.gates import Gate
from djepa.align.risk import risk_controlled
from djepa.errors import DjepaError
from djepa.evidence.score import Score


def mean(outcomes: DrivingOutcomes, chosen: Tensor) -> float:
    return float(outcomes.pdms.gather(1, chosen[:, None]).mean())


def test_direction_belongs_to_the_score() -> None:
    values, ids = torch.tensor([[0.1, 0.7, 0.7, 0.1]]), torch.tensor([[3, 2, 1, 0]])
    assert Score(values).winners(ids).tolist() == [3]
    assert Score(values, higher_is_better=True).winners(ids).tolist() == [2]


def test_tied_ranks_are_the_published_ones() -> None:
    got = tied_ranks(torch.tensor([[3.0, 1.0, 3.0, 2.0]]))
    # (beaten + half of those equal, itself among them) / 4
    assert got.tolist() == [[0.75, 0.125, 0.75, 0.375]]


def test_tokens_have_the_published_widths() -> None:
    evidence, _ = problem(3, 0, "a")
    assert evidence.tokens(auxiliary=True).shape == (3, K, 288)
    assert evidence.tokens(auxiliary=False).shape == (3, K, 282)


def test_fresh_networks_change_nothing_and_order_changes_nothing() -> None:
    tokens, turn = torch.randn(2, K, 288), torch.randperm(K)
    network = ScoreCorrection(288, torch.Generator())
    assert not network(tokens).any()
    torch.nn.init.normal_(network.head.weight, std=9)
    delta = network(tokens)
    assert delta.abs().max() <= EPSILON
    torch.testing.assert_close(network(tokens[:, turn]), delta[:, turn], atol=1e-5, rtol=0)
    alone = ScoreCorrection(288, torch.Generator(), relations=False)
    torch.nn.init.normal_(alone.head.weight, std=9)
    torch.testing.assert_close(alone(tokens[:, :1]), alone(tokens)[:, :1], atol=1e-5, rtol=0)


def test_the_native_winner_is_the_exact_zero_of_the_relative_head() -> None:
    network = AnchorRelative(282, torch.Generator())
    torch.nn.init.normal_(network.head.weight)
    native = torch.tensor([3, 0])
    delta, _ = network(torch.randn(2, K, 282), native)
    assert delta.gather(1, native[:, None]).tolist() == [[0.0], [0.0]]
    assert delta.abs().sum() > 0


def test_the_switch_needs_more_than_the_margin() -> None:
    score = torch.tensor([[0.5, 0.4]], dtype=torch.float64)
    delta, native = torch.tensor([[0.0, 0.125]], dtype=torch.float64), torch.tensor([0])
    safe, ids = torch.zeros(1, 2, 2), torch.tensor([[0, 1]])
    U = utility(score, delta, safe, native, 1.0, 0.3)
    assert switch(U, ids, native, 0.02).tolist() == [1]
    assert switch(U, ids, native, 0.03).tolist() == [0]
    risky = safe.clone()
    risky[0, 1, 0] = 10.0  # a likely collision: λ (≈1 - ½) = 0.15 outweighs the benefit
    U = utility(score, delta, risky, native, 1.0, 0.3)
    assert switch(U, ids, native, 0.0).tolist() == [0]
    assert switch(utility(score, delta, risky, native, 1.0, 0.0), ids, native, 0.0).tolist() == [1]


def test_a_readout_learns_what_the_native_score_misses() -> None:
    fit, calibration, test = (problem(64, i, name) for i, name in enumerate("abc"))
    native = mean(test[1], test[0].native)
    fast = Recipe(rate=1e-3, decay=1e-4, batch=16, epochs=8)
    corrected = fit_correction(fit, calibration, recipe=fast)
    assert mean(test[1], corrected.decide(test[0])) > native + 0.03
    anchored = fit_anchor(*fit, folds=2)
    assert anchored.setting.alpha > 0
    assert mean(test[1], anchored.decide(test[0])) > native + 0.02
    fused = fit_fusion(*fit)
    assert mean(test[1], fused.decide(test[0])) == pytest.approx(native, abs=0.03)


def test_a_fit_is_repeatable() -> None:
    fit, calibration = problem(16, 0, "a"), problem(16, 1, "b")
    short = Recipe(rate=1e-3, decay=1e-4, batch=8, epochs=2)
    a, b = (fit_correction(fit, calibration, recipe=short).score(fit[0]) for _ in range(2))
    assert torch.equal(a, b)


def test_nothing_to_learn_keeps_the_native_choice() -> None:
    evidence, outcomes = problem(32, 5, "a", useful=False)
    same = DrivingOutcomes(evidence.score.clamp(0, 1), outcomes.collision, outcomes.ttc)
    anchored = fit_anchor(evidence, same, folds=2)
    assert anchored.setting == Setting()
    assert anchored.decide(evidence).tolist() == evidence.native.tolist()


def test_harm_to_safety_is_certified_by_the_shared_gate() -> None:
    evidence, outcomes = problem(400, 7, "a")
    better = Score(outcomes.pdms.float(), higher_is_better=True).cost
    native = Score(evidence.score, higher_is_better=True).cost
    free = ~outcomes.collision
    certified = risk_controlled(Gate(), native, better, evidence.ids, free, limit=0.01)
    assert certified.valid
    assert certified.harmed == 0
    worse = risk_controlled(Gate(), native, -better, evidence.ids, free, limit=0.01)
    assert worse.changed == 0 or worse.harmed < 0.01 * 400


def test_logs_stay_together_and_apart() -> None:
    folds = leave_out(["b", "a", "b", "c"])
    assert [fold.tolist() for fold in folds] == [[1], [0, 2], [3]]
    assert [fold.tolist() for fold in leave_out(["b", "a", "b", "c"], 2)] == [[1, 3], [0, 2]]
    with pytest.raises(DjepaError, match="two logs"):
        leave_out(["a", "a"])
    one = problem(8, 0, "a")
    with pytest.raises(DjepaError, match="both"):
        fit_correction(one, one)
