import json
import math

import numpy as np
import pytest

from djepa.errors import DjepaError
from djepa.evaluate.intervals import Rate, markdown_table, plain, rate_of, rates_by, wilson


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [
        (225, 256, 83.33, 91.34),
        # p = 0.74, z²/n = 0.07683: (0.77841 ± 1.95996 · 0.06506) / 1.07683
        (37, 50, 60.45, 84.13),
        (0, 10, 0.0, 27.75),
        (10, 10, 72.25, 100.0),
    ],
)
def test_hand_worked(hits, of, low, high):
    assert [100 * edge for edge in wilson(hits, of)] == pytest.approx([low, high], abs=0.01)


@pytest.mark.parametrize("of", [1, 2, 7, 500])
def test_it_holds_the_share_and_mirrors(of):
    for hits in range(of + 1):
        low, high = wilson(hits, of)
        assert 0.0 <= low <= hits / of <= high <= 1.0
        assert wilson(of - hits, of) == pytest.approx((1 - high, 1 - low))


def test_the_ends_solve_the_score_equation():
    # Wilson: the p at which the normal test of p just rejects, (share - p)² = z² p (1 - p) / n.
    for p in wilson(3, 17):
        assert (3 / 17 - p) ** 2 == pytest.approx(1.959963984540054**2 * p * (1 - p) / 17)


def test_of_nothing_nothing_is_known():
    assert wilson(0, 0) == (0.0, 1.0)
    assert math.isnan(Rate(0, 0).share)
    assert Rate(0, 0).percent(interval=True) == "none"
    assert plain(Rate(0, 0))["share"] is None  # NaN is not JSON


@pytest.mark.parametrize(("hits", "of"), [(-1, 5), (6, 5)])
def test_impossible_counts(hits, of):
    with pytest.raises(DjepaError, match="0 <= hits <= of"):
        wilson(hits, of)


def test_rates_in_words_and_in_json():
    assert Rate(3, 8).percent() == "37.5 %"
    assert Rate(225, 256).percent(interval=True) == "87.9 % (83.3-91.3)"
    held = json.loads(json.dumps(plain({"a": Rate(1, 2)})))
    assert held == {"a": {"hits": 1, "of": 2, "share": 0.5, "wilson95": list(wilson(1, 2))}}


def test_rates_of_labels():
    hits = np.array([[True, False], [True, True]])
    outcomes = np.array([["a", "b"], ["a", "c"]])
    counted = np.array([[True, True], [True, False]])
    assert rate_of(hits) == Rate(3, 4)
    assert rates_by(hits, counted, outcomes) == {"a": Rate(2, 2), "b": Rate(0, 1)}


def test_markdown_table():
    table = markdown_table("x", ["p", "q"], [{"a": "1"}, {"b": "2"}])
    assert table == "| x | p | q |\n| --- | --: | --: |\n| a | 1 | - |\n| b | - | 2 |\n"
    assert markdown_table("x", ["p"], [{}]) == ""
