"""Fit, calibrate, decide: in this order, on starts apart, and outcomes never reach a decision."""

import copy
import inspect
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
import torch

from djepa.align.fit import AlignConfig, Alignment
from djepa.align.outcomes import Outcomes
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence

Problem = tuple[Evidence, Outcomes]
MakeProblem = Callable[..., Problem]


def test_deciding_has_no_way_in_for_an_outcome() -> None:
    for function in (Alignment.decide, Alignment.scores):
        assert list(inspect.signature(function).parameters) == ["self", "evidence"]
    outcomes = {field.name for field in fields(Outcomes)} - {"identities", "cost"}
    assert not outcomes & {field.name for field in fields(Evidence)}


def test_outcomes_scrambled_after_calibration_change_nothing(
    problem: MakeProblem, quick: AlignConfig
) -> None:
    test, _ = problem("test")
    fit, cal = problem("fit"), problem("cal")
    alignment = Alignment(quick).fit(*fit).calibrate(*cal)
    before = alignment.decide(test)
    for _, outcomes in (fit, cal, problem("test")):
        outcomes.success.bitwise_not_()
        outcomes.observed.bitwise_not_()
        assert outcomes.cost is not None
        outcomes.cost.fill_(torch.nan)
    assert all(torch.equal(a, b) for a, b in zip(before, alignment.decide(test), strict=True))


def test_fitting_does_not_depend_on_outcomes_of_other_starts(
    problem: MakeProblem, quick: AlignConfig
) -> None:
    """Calibration may choose among the checkpoints of the fit, whatever its outcomes say."""
    alignment = Alignment(quick).fit(*problem("fit"))
    before = [copy.deepcopy(snapshot) for snapshot in alignment._snapshots]
    report, (evidence, outcomes) = alignment.report, problem("cal")
    chosen = set()
    for success in (outcomes.success, ~outcomes.success, torch.zeros_like(outcomes.success)):
        alignment.calibrate(evidence, replace(outcomes, success=success))
        assert alignment.report == report
        for then, now in zip(before, alignment._snapshots, strict=True):
            assert (then.update, then.trust) == (now.update, now.trust)
            assert all(torch.equal(w, now.weights[name]) for name, w in then.weights.items())
        assert alignment.operator is not None
        state = alignment.operator.state_dict()
        same = [all(torch.equal(state[n], w) for n, w in s.weights.items()) for s in before]
        assert any(same)
        chosen.add(same.index(True))
    assert len(chosen) > 1  # so outcomes do choose: but nothing that was not there before


def test_out_of_order(problem: MakeProblem, quick: AlignConfig) -> None:
    evidence, outcomes = problem("fit")
    alignment = Alignment(quick)
    with pytest.raises(DjepaError, match="Fit before you calibrate"):
        alignment.calibrate(evidence, outcomes)
    with pytest.raises(DjepaError, match="Fit before you score"):
        alignment.scores(evidence)
    with pytest.raises(DjepaError, match="Calibrate before you decide"):
        alignment.decide(evidence)
    alignment.fit(evidence, outcomes)
    with pytest.raises(DjepaError, match="Calibrate before you decide"):
        alignment.decide(evidence)
    alignment.calibrate(*problem("cal")).decide(evidence)
    alignment.fit(evidence, outcomes)  # fitted anew: the old gate is void
    with pytest.raises(DjepaError, match="Calibrate before you decide"):
        alignment.decide(evidence)


def test_a_fit_that_breaks_leaves_nothing_to_decide_with(
    problem: MakeProblem, quick: AlignConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New weights under an old gate would be a decision nobody calibrated."""
    alignment = Alignment(quick).fit(*problem("fit")).calibrate(*problem("cal"))

    def breaks(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(alignment, "_descend", breaks)
    with pytest.raises(KeyboardInterrupt):
        alignment.fit(*problem("fit"))
    with pytest.raises(DjepaError, match="Calibrate before you decide"):
        alignment.decide(problem("test")[0])


def test_overlapping_starts(problem: MakeProblem, quick: AlignConfig) -> None:
    evidence, outcomes = problem("fit")
    alignment = Alignment(quick).fit(evidence.rows(range(40)), outcomes.rows(torch.arange(40)))
    with pytest.raises(DjepaError, match="fit-39 is in the fitting and in the calibration set"):
        alignment.calibrate(evidence.rows(range(39, 64)), outcomes.rows(torch.arange(39, 64)))


@pytest.mark.parametrize("value", [True, False])
def test_one_class_everywhere(value: bool, problem: MakeProblem, quick: AlignConfig) -> None:
    evidence, outcomes = problem("fit")
    flat = replace(outcomes, success=torch.full_like(outcomes.success, value))
    with pytest.raises(DjepaError, match="one class only"):
        Alignment(quick).fit(evidence, flat)


def test_outcomes_of_something_else(problem: MakeProblem, quick: AlignConfig) -> None:
    evidence, outcomes = problem("fit")
    cost = outcomes.cost
    assert cost is not None
    changes: list[tuple[dict[str, Any], str]] = [
        ({"identities": outcomes.identities[::-1]}, "same starts in the same order"),
        ({"success": outcomes.success[:, :5]}, "success must be true or false"),
        ({"success": outcomes.success.float()}, "success must be true or false"),
        ({"observed": outcomes.observed.int()}, "observed must be true or false"),
        ({"observed": outcomes.observed[:5]}, "observed must be true or false"),
        ({"observed": torch.zeros_like(outcomes.observed)}, "without a single executed"),
        ({"cost": cost[:, :5]}, "cost must be"),
        ({"cost": cost.masked_fill(outcomes.success, torch.nan)}, "cost must be"),
    ]
    fitted = Alignment(quick).fit(evidence, outcomes)
    other, given = problem("cal")
    for change, match in changes:
        with pytest.raises(DjepaError, match=match):
            Alignment(quick).fit(evidence, replace(outcomes, **change))
        if "identities" in change:
            change["identities"] = given.identities[::-1]
        with pytest.raises(DjepaError, match=match):
            fitted.calibrate(other, replace(given, **change))
    replace(outcomes, cost=None).check(evidence)


def test_no_calibration_start(problem: MakeProblem, quick: AlignConfig) -> None:
    alignment = Alignment(quick).fit(*problem("fit"))
    evidence, outcomes = problem("cal")
    with pytest.raises(DjepaError, match="no start"):
        alignment.calibrate(evidence.rows([]), outcomes.rows(torch.arange(0)))


def test_evidence_without_what_was_fitted(problem: MakeProblem, quick: AlignConfig) -> None:
    alignment = Alignment(quick).fit(*problem("fit")).calibrate(*problem("cal"))
    e, _ = problem("test")
    bare = Evidence(e.identities, e.ids, e.names, e.costs, {}, {})
    with pytest.raises(DjepaError, match="last latents"):
        alignment.decide(bare)
    fewer = Evidence(e.identities, e.ids, ("a",), e.costs[..., :1], e.latents, e.goals)
    with pytest.raises(DjepaError, match="Unknown geometry 'b'"):
        alignment.decide(fewer)
    with pytest.raises(DjepaError, match="reads tokens of 5 numbers, not 6"):
        alignment.decide(problem("test", D=4)[0])


def test_weights_that_overflow_are_an_error(problem: MakeProblem, quick: AlignConfig) -> None:
    alignment = Alignment(quick).fit(*problem("fit")).calibrate(*problem("cal"))
    with torch.no_grad():
        for parameter in alignment.operator.parameters():
            parameter.fill_(torch.nan)
    with pytest.raises(DjepaError, match="not finite"):
        alignment.decide(problem("test")[0])


@pytest.mark.parametrize(
    "bad",
    [{"batch": 0}, {"every": 0}, {"updates": -1}],
)
def test_configurations_that_cannot_be(bad: dict[str, int]) -> None:
    with pytest.raises(DjepaError, match="at least"):
        AlignConfig(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "bad", [{"policy": "carefull"}, {"mode": "refined"}, {"mixture": "logs"}, {"density": ("a",)}]
)
def test_misspelt_options_are_refused_before_anything_is_fitted(bad: dict[str, Any]) -> None:
    with pytest.raises(DjepaError, match=r"Unknown|is an input of a log mixture"):
        AlignConfig(**bad)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"base": ()}, "at least one geometry"),
        ({"base": ("z",)}, "Unknown geometry 'z'"),
        ({"ranked": ("z",)}, "Unknown geometry 'z'"),
        ({"dense": ("b",)}, "last latents"),
        ({"dense": (), "ranked": ()}, "at least one coordinate"),
        ({"extras": ("speed",)}, "extra coordinate 'speed'"),
    ],
)
def test_unknown_names(
    change: dict[str, Any], match: str, problem: MakeProblem, quick: AlignConfig
) -> None:
    with pytest.raises(DjepaError, match=match):
        Alignment(replace(quick, **change)).fit(*problem("fit"))
