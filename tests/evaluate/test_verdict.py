"""One rule for every study: differences, exact tests, Holm."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from djepa.errors import DjepaError
from djepa.evaluate.paired import paired, sign_flip
from djepa.evaluate.rows import Row
from djepa.evaluate.verdict import Comparison, compare, holm, judge

SWAPPED = {
    "better": "worse",
    "worse": "better",
    "no significant difference": "no significant difference",
}


def rows_of(case: str, first: int = 0, **wins: str) -> list[Row]:
    """Rows from strings such as a="1101"; underlines stand for spaces."""
    about = [
        (name.replace("_", " "), start, won)
        for name, text in wins.items()
        for start, won in enumerate(text)
    ]
    return [
        Row("s", case, name, i, f"{first + i:016x}", True, 1, won == "1", 0.5, False, "r", "b", "")
        for name, i, won in about
    ]


def test_holm_by_hand() -> None:
    # Sorted .01 .02 .03 .04, times 4 3 2 1: .04 .06 .06 .04, made monotone: .04 .06 .06 .06.
    assert holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.04]) == [0.04]
    assert holm([]) == []


def test_mcnemar_by_hand() -> None:
    # 5 gains, 1 loss: 2 (C(6,0) + C(6,1)) / 2^6 = 14 / 64.
    found = paired(np.array([1] * 5 + [0, 1, 0], bool), np.array([0] * 5 + [1, 1, 0], bool))
    assert (found.gains, found.losses) == (5, 1)
    assert found.p == pytest.approx(14 / 64)
    assert found.difference == 0.5


def test_sign_flips_by_hand() -> None:
    # Net gains 3, 1 and -1: sums of ±3 ±1 ±1 are ±5, ±3 (twice), ±1; |sum| >= 3 in 6 of 8.
    assert sign_flip(np.array([3.0, 1.0, -1.0, 0.0])) == pytest.approx(6 / 8)
    assert sign_flip(np.zeros(4)) == 1.0


@given(st.lists(st.integers(-7, 7), min_size=1, max_size=9))
def test_sign_flips_are_those_of_all_sign_changes(net: list[int]) -> None:
    sums = [abs(sum(s * x for s, x in zip(signs, net, strict=True)))
            for signs in product((-1, 1), repeat=len(net))]  # fmt: skip
    expected = np.mean([s >= abs(sum(net)) for s in sums])
    assert sign_flip(np.array(net, float)) == pytest.approx(expected)


@given(st.integers(0, 400), st.integers(0, 400))
def test_without_clusters_it_is_mcnemar(gains: int, losses: int) -> None:
    net = np.array([1.0] * gains + [-1.0] * losses + [0.0] * 5)
    expected = binomtest(gains, gains + losses).pvalue if gains + losses else 1.0
    assert sign_flip(net) == pytest.approx(expected, rel=1e-9)


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_raises_keeps_order_and_is_monotone(ps: list[float]) -> None:
    found = holm(ps)
    assert all(p <= q <= 1 for p, q in zip(ps, found, strict=True))
    for i, j in product(range(len(ps)), repeat=2):
        assert ps[i] > ps[j] or found[i] <= found[j]
    if ps:
        assert max(found) <= max(holm([*ps, 0.5])) + 1e-12


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_swapping_the_methods_swaps_the_words(pairs: list[tuple[bool, bool]]) -> None:
    a, b = ("".join("01"[win[i]] for win in pairs) for i in (0, 1))
    rows = {"x": rows_of("x", a=a, b=b)}
    (one,) = judge(rows, [Comparison.of("a", "b")])
    (other,) = judge(rows, [Comparison.of("b", "a")])
    assert one.word == SWAPPED[other.word]
    assert one.pair.difference == -other.pair.difference
    assert one.adjusted == pytest.approx(other.adjusted)


@given(st.permutations(range(12)))
def test_the_order_of_rows_and_starts_changes_nothing(order: list[int]) -> None:
    a, b = "111111110010", "000000010110"
    moved = ("".join(text[i] for i in order) for text in (a, b))
    rows = rows_of("x", a=a, b=b)
    primary = [Comparison.of("a", "b")]
    expected = judge({"x": rows}, primary)
    assert judge({"x": rows[::-1]}, primary) == expected
    assert judge({"x": rows_of("x", **dict(zip("ab", moved, strict=True)))}, primary) == expected


def test_words() -> None:
    # 12 gains of 12: p = 2 / 2^12. Holm over three: .0015, then two of 1.
    rows = {
        "x": rows_of("x", a="1" * 12, b="0" * 12, c="1" * 11 + "0"),
        "y": rows_of("y", a="10" * 6, b="10" * 6, d="1" * 12),
    }
    found = judge(rows, [Comparison.of("a", "b"), Comparison.of("a", "c")])
    assert [(v.where, v.theirs, v.word) for v in found] == [
        ("x", "b", "better"),
        ("x", "c", "no significant difference"),
        ("y", "b", "no significant difference"),  # c was not run there
    ]
    assert found[0].adjusted == pytest.approx(3 * 2 / 2**12)
    assert (
        found[0].sentence
        == "a is better than b: +100.0 points (+100.0 to +100.0), adjusted p = 0.0015"
    )
    assert "is not significantly different from c" in found[1].sentence


def test_holm_can_take_a_word_away() -> None:
    # 6 gains, no loss: p = .031 alone, above .05 beside a second comparison.
    rows = {"x": rows_of("x", a="1" * 6 + "0", b="0" * 7, c="1" * 6 + "0")}
    assert judge(rows, [Comparison.of("a", "b")])[0].word == "better"
    both = [Comparison.of("a", "b"), Comparison.of("a", "c")]
    assert judge(rows, both)[0].word == "no significant difference"


def test_the_strongest_of_several_counts() -> None:
    rows = {"x": rows_of("x", a="1111", weak="0001", strong="0111")}
    found = compare(rows, Comparison.of("a", "weak", "strong"))
    assert found is not None
    assert found[0] == "strong"


def test_looks_of_one_start_are_no_starts() -> None:
    # Two looks of the same 6 starts: 12 gains, but 6 net gains of 2: p = 2 / 2^6, not 2 / 2^12.
    rows = {look: rows_of(look, a="1" * 6, b="0" * 6) for look in ("blur", "dark")}
    units = {"all": ["blur", "dark"]}
    (found,) = judge(rows, [Comparison.of("a", "b")], units, clustered=True)
    assert found.pair.p == pytest.approx(2 / 2**6)
    (alone,) = judge(rows, [Comparison.of("a", "b")], units)
    assert alone.pair.p == pytest.approx(2 / 2**12)


def test_nothing_is_compared_with_itself() -> None:
    for others in ((), ("a",), ("b", "a")):
        with pytest.raises(DjepaError, match="other methods"):
            Comparison.of("a", *others)
