"""Outcomes: which arrays they are made of, and which are refused."""

from typing import Any

import numpy as np
import pytest
import torch

import djepa
from djepa.align.outcomes import Outcomes
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence

WON = [[True, False], [False, False], [True, True]]


@pytest.fixture
def evidence() -> Evidence:
    """Three starts of two candidates."""
    costs = {"a": np.arange(1.0, 7).reshape(3, 2)}
    return Evidence.from_arrays(start_ids=["x", "y", "z"], candidate_ids=[[1, 2]] * 3, costs=costs)


@pytest.mark.parametrize(
    "given",
    [WON, np.array(WON), torch.tensor(WON), np.array(WON, dtype=np.uint8), torch.tensor(WON).int()],
)
def test_truth_in_many_forms(given: Any, evidence: Evidence) -> None:
    assert Outcomes.from_arrays(evidence, given).success.tolist() == WON
    assert Outcomes.of(evidence, given).observed.all()


def test_arrays_are_copied(evidence: Evidence) -> None:
    success, cost = np.array(WON), np.ones((3, 2))
    outcomes = Outcomes.from_arrays(evidence, success, success | ~success, cost)
    success[:], cost[:] = False, np.nan
    assert outcomes.success.tolist() == WON
    assert outcomes.cost is not None
    assert outcomes.cost.isfinite().all()


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (np.array(WON, dtype=object), "array of numbers"),
        ([["yes", "no"]] * 3, "array of numbers"),
        ([[True], [True, False], [False]], "array of numbers"),
        (torch.tensor(WON).bfloat16(), "true or false"),
        (np.array(WON, dtype=float), "true or false"),
        (np.full((3, 2), np.nan), "true or false"),
        (2 * np.array(WON, dtype=int), "true or false"),
        (np.array(WON)[:2], "success must be true or false of shape"),
        (None, "array of numbers"),
    ],
)
def test_what_is_no_outcome(given: Any, match: str, evidence: Evidence) -> None:
    with pytest.raises(DjepaError, match=match):
        Outcomes.from_arrays(evidence, given)
    with pytest.raises(DjepaError, match=match):
        djepa.fit(evidence, given)
