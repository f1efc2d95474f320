import dataclasses

import numpy as np
import pytest

from djepa.errors import DjepaError
from djepa.evaluate import paper
from djepa.evaluate.intervals import Rate
from djepa.evaluate.rows import Row
from djepa.report.results import (
    Deployment,
    ablation_table,
    across_table,
    budget_table,
    deployment_table,
    gap_closed,
    gather,
    paired_table,
    success_table,
)


def make(pools="reference", eligible=None, **wins):
    """Rows from strings such as native_lewm="1101"."""
    rows = []
    for name, text in wins.items():
        method = {"djepa": "D-JEPA", "fusion": "fusion, four"}.get(name, name.replace("_", " "))
        for start, won in enumerate(text):
            chosen = eligible is None or eligible[start] == "1"
            about = ("pusht", pools, method, start, f"{start:016x}", chosen)
            made = (1, won == "1", 0.5, False, "push.v1", "0123456789ab", "")
            rows.append(Row(*about, *made))
    return rows


def counts(only_a, only_b, both, neither):
    """Two strings with so many starts of every kind."""
    a = "1" * only_a + "0" * only_b + "1" * both + "0" * neither
    b = "0" * only_a + "1" * only_b + "1" * both + "0" * neither
    return a, b


def test_success_on_all_and_on_eligible_starts():
    # Wilson of 3/4 is 30.1-95.4, of 1/2 9.5-90.5, of 4/4 51.0-100.0.
    rows = make(eligible="1010", native_lewm="1101", random="1111")
    table = success_table(rows, ["random", "native lewm"])
    assert table.name == "success-reference"
    assert table.rows == (
        ("random", "4/4", "100.0", "51.0-100.0", "2/2", "100.0", "34.2-100.0", ""),
        ("native lewm", "3/4", "75.0", "30.1-95.4", "1/2", "50.0", "9.5-90.5", "83.59"),
    )
    assert len(table.columns) == 8


def test_without_eligible_starts_nothing_is_said_of_them():
    rows = make(eligible="00", native_lewm="10", D_none="11")
    assert success_table(rows, ["native lewm"]).rows[0][4:7] == ("0/0", "", "")
    assert len(paired_table(rows, "native lewm", ["D none"]).rows) == 1
    with pytest.raises(DjepaError, match="eligible"):
        ablation_table(rows, [("x", "D none", [])], eligible=True)


def test_paired_by_hand():
    # Gains 3, losses 1 of 5: +40 points. p = 2 (C(4,0) + C(4,1)) / 2^4 = 0.625.
    # Eligible: both of 2 are gains: every resample is +100; p = 2 / 2^2.
    rows = make(eligible="01100", djepa="11101", random="10010")
    all_, some = paired_table(rows, "D-JEPA", ["random"]).rows
    assert all_[:3] == ("random", "5 starts", "+40.0")
    assert all_[4:] == ("3", "1", "0.62", "")
    assert some == (
        "random",
        "2 eligible starts",
        "+100.0",
        "+100.0 to +100.0",
        "2",
        "0",
        "0.5",
        "",
    )


@pytest.mark.parametrize(
    ("reference", "both", "neither"), [("native lewm", 206, 23), ("native tdjepa", 188, 22)]
)
def test_the_papers_counts_give_the_papers_intervals(reference, both, neither):
    printed = paper.PAIRED["composition", reference]
    a, b = counts(printed.gains, printed.losses, both, neither)
    assert len(a) == 256
    rows = make(composition=a, **{reference.replace(" ", "_"): b})
    cells = paired_table(rows, "composition", [reference]).rows[0]
    assert float(cells[2]) == pytest.approx(printed.difference, abs=0.05)
    low, high = map(float, cells[3].split(" to "))
    assert (low, high) == pytest.approx(printed.interval, abs=0.45)  # a start is 0.39 points
    assert cells[7] == f"{printed.difference:+.2f}"


def test_ablation_blocks():
    rows = make(native_tdjepa="1000", plasticity="1110", relational="1111")
    blocks = [
        ("parts", "native tdjepa", ["plasticity", "native tdjepa"]),
        ("rest", "native tdjepa", ["relational"]),
    ]
    table = ablation_table(rows, blocks)
    assert [row[:2] for row in table.rows] == [
        ("parts", "plasticity"),
        ("parts", "native tdjepa"),
        ("rest", "native tdjepa"),
        ("rest", "relational"),
    ]
    assert [row[5] for row in table.rows] == ["+50.0", "0", "0", "+75.0"]
    assert [row[7] for row in table.rows] == ["79.69", "76.95", "76.95", "87.11"]
    assert "4 starts" in table.title


def test_the_papers_other_population_is_named():
    rows = make(native_jepawm="10", fusion="11")
    table = ablation_table(rows, [("geometries", "native jepawm", ["fusion, four"])])
    assert [row[7] for row in table.rows] == ["98.44 (128 starts)", "99.22 (128 starts)"]
    assert [row[7] for row in success_table(rows, ["fusion, four"]).rows] == ["85.94"]
    assert success_table(make(multi_geometry="1"), ["multi geometry"]).rows[0][7] == ""


def test_budget_by_hand():
    budget = {
        "relational": {63: [0.75] * 3, 8: [0.5, 0.75, 1.0]},
        "pointwise": {8: [0.25, 0.25], 63: [0.1, 0.2]},
    }
    table = budget_table(budget, "decoy")
    assert table.name == "budget-decoy"
    assert table.columns == ("method", "from", "K = 8", "K = 63")
    assert table.rows == (
        ("relational", "ours", "75.0 (50.0-100.0)", "75.0"),
        ("relational", "paper", "81.96", "87.11"),
        ("pointwise", "ours", "25.0", "15.0 (10.0-20.0)"),
    )
    assert "2, 3 of them" in table.note


@pytest.mark.parametrize(
    "budget",
    [
        {"a": {8: [0.5]}, "b": {16: [0.5]}},
        {"a": {8: []}},
        {"a": {8: [81.0]}},
        {"a": {8: [float("nan")]}},
    ],
)
def test_budgets_that_are_none(budget):
    with pytest.raises(DjepaError):
        budget_table(budget)


def test_deployment():
    table = deployment_table(
        [
            Deployment("relational", Rate(400, 512), 12.345, 3),
            Deployment("own", Rate(3, 4), 1.0, 1, Rate(252, 252), Rate(3, 4)),
        ]
    )
    assert table.rows == (
        ("relational", "400/512", "78.1", "12.35", "3", "", "", "87.11", "35.03", "3"),
        ("own", "3/4", "75.0", "1.00", "1", "100.0 % of 252", "75.0 % of 4", "", "", ""),
    )


def test_gap_closed_by_hand():
    # Of 8 starts the oracle solves 7, the base 3, ours 5: 2 of the 4 to be won.
    rows = make(oracle="11111110", base="11100000", ours="11011100", twin="11100000")
    found = gap_closed(rows, "ours", "base")
    assert (found.starts, found.ours, found.base, found.oracle) == (8, 5 / 8, 3 / 8, 7 / 8)
    assert found.share == 0.5
    assert found.interval[0] < 0.5 < found.interval[1]
    assert gap_closed(rows, "twin", "base").interval == (0.0, 0.0)
    assert gap_closed(rows, "oracle", "base").interval == (1.0, 1.0)
    assert gap_closed(rows[::-1], "ours", "base") == found


def test_gap_closed_resamples_whole_starts():
    # Two starts, both to be won, one won: resamples close 0, 1/2 or 1 with chances 1/4, 1/2, 1/4.
    found = gap_closed(make(oracle="11", base="00", ours="10"), "ours", "base")
    assert (found.share, found.interval) == (0.5, (0.0, 1.0))
    # Eligible starts alone: the one that was won.
    rows = make(eligible="10", oracle="11", base="00", ours="10")
    assert gap_closed(rows, "ours", "base", eligible=True).share == 1.0


def test_gaps_that_cannot_be():
    with pytest.raises(DjepaError, match="no gap"):
        gap_closed(make(oracle="10", base="10", ours="00"), "ours", "base")
    with pytest.raises(DjepaError, match="oracle does not"):
        gap_closed(make(oracle="10", base="00", ours="11"), "ours", "base")
    with pytest.raises(DjepaError, match="Unknown method 'oracle'"):
        gap_closed(make(base="00", ours="11"), "ours", "base")


def test_kinds_side_by_side():
    kinds = {
        "reference": make(native_lewm="1101", random="0000"),
        "decoy": make("decoy", eligible="10", native_lewm="10"),
    }
    table = across_table(kinds, ["native lewm", "random"])
    assert table.columns == (
        "method",
        "reference, 4 starts",
        "reference, 4 eligible starts",
        "decoy, 2 starts",
        "decoy, 1 eligible starts",
        "paper, %",
    )
    assert table.rows[0][1] == "75.0 (30.1-95.4)"
    assert table.rows[1][3:] == ("", "", "")
    with pytest.raises(DjepaError, match="Unknown method 'relationl'"):
        across_table(kinds, ["relationl"])


def test_rows_that_do_not_belong_together():
    rows = make(a="10", b="01")
    other = dataclasses.replace(rows[0], pools="decoy")
    for bad, message in [
        ([], "one study"),
        ([*rows, other], "one study"),
        ([*rows, rows[0]], "twice"),
        (rows[:-1], "same starts"),
        ([dataclasses.replace(rows[0], identity="ff"), *rows[1:]], "Start 0"),
        ([dataclasses.replace(rows[0], eligible=False), *rows[1:]], "Start 0"),
    ]:
        with pytest.raises(DjepaError, match=message):
            gather(bad)
    with pytest.raises(DjepaError, match="Unknown method 'c'"):
        success_table(rows, ["c"])
    np.testing.assert_array_equal(gather(rows).of("b"), [False, True])


def test_the_papers_figures_agree_with_each_other():
    for method, fact in paper.SUCCESS.items():
        hits = fact.value * fact.starts / 100
        assert abs(hits - round(hits)) < 0.02, method
        assert fact.successes in (None, round(hits))
    for (ours, reference), fact in paper.PAIRED.items():
        assert round(100 * (fact.gains - fact.losses) / fact.starts, 2) == fact.difference
        gap = paper.SUCCESS[ours].value - paper.SUCCESS[reference].value
        assert gap == pytest.approx(fact.difference, abs=0.011)
    for method, of in paper.BUDGET.items():
        assert of[63].value == paper.SUCCESS[method].value
    for of in (paper.ABLATION["native tdjepa"], paper.DEPLOYMENT):
        for method, fact in of.items():
            value = getattr(fact, "value", None) or fact.success
            assert value == paper.SUCCESS[method.removesuffix(", lifted")].value
