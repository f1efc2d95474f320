"""Tables by hand: what is counted, what is paired with what, what is one start."""

from dataclasses import replace

import numpy as np
import pytest

from djepa.errors import DjepaError
from djepa.evaluate.gap import gap_closed
from djepa.evaluate.rows import Row
from djepa.evaluate.verdict import Comparison, judge
from djepa.report.results import (
    ablation_table,
    cost_table,
    pair_of,
    paired_table,
    success_table,
    views,
)

OURS, FUSION, NATIVE = "D-JEPA", "fusion", "native"
METHODS = (NATIVE, FUSION, "nobody ran this", OURS)
SHOWN = {NATIVE: "model's own cost", FUSION: "fusion", OURS: "D-JEPA"}


def rows(case, won, names="", costs=None, eligible=""):
    """Rows from strings such as "1101", one digit per start; `names` are the starts' identities."""
    found = []
    for method, text in won.items():
        for start, digit in enumerate(text):
            name = names[start] if names else f"{case}-{start}"
            cost = (costs or {}).get(method, [0.5] * len(text))[start]
            matters = not eligible or eligible[start] == "1"
            about = ("shapes", case, method, start, name, matters, 1, digit == "1", cost)
            found.append(Row(*about, False, "push.v1", "0123456789ab", ""))
    return found


# Four starts each. I: over native ours gains two, over fusion it gains two and loses one.
# square: over native it gains one, over fusion nothing changes.
TWO = {
    "I": rows("I", {NATIVE: "1000", FUSION: "0011", OURS: "1110"}, eligible="1010"),
    "square": rows("square", {NATIVE: "0000", OURS: "0100", FUSION: "0100"}),
}
# Two starts, A and B, seen in three looks, in which they stand in different order: ours gains A in
# every look, and B in none.
LOOKS = {
    "clean": rows("clean", {NATIVE: "00", OURS: "10"}, "AB"),
    "dark": rows("dark", {NATIVE: "00", OURS: "01"}, "BA"),
    "blur": rows("blur", {NATIVE: "01", OURS: "11"}, "AB"),
}


def test_success_by_hand():
    """Wilson's intervals of 0 to 3 of 4; of cases counted together only the share."""
    seen = views(TWO, {"both": ["I", "square", "never run"]}, eligible=False)
    assert list(seen) == ["I", "square", "both"]
    paper = {("I", NATIVE): 22, ("I", OURS): 52.256, ("elsewhere", OURS): 1.0}
    table = success_table(seen, METHODS, paper)
    assert (table.name, table.columns) == (
        "success",
        ("method", "I, 4 starts", "I, paper", "square, 4 starts", "both, 8 starts"),
    )
    assert table.rows == (
        (SHOWN[NATIVE], "25.0 % (4.6-69.9)", "22.00", "0.0 % (0.0-49.0)", "12.5 %"),
        (SHOWN[FUSION], "50.0 % (15.0-85.0)", "", "25.0 % (4.6-69.9)", "37.5 %"),
        (SHOWN[OURS], "75.0 % (30.1-95.4)", "52.26", "25.0 % (4.6-69.9)", "50.0 %"),
    )
    assert "The paper's figures" in table.note
    assert "paper" not in success_table(seen, METHODS, {}).note


def test_eligible_starts_stand_beside_all():
    table = success_table(views({"I": TWO["I"]}, {}, eligible=True), (OURS,), {})
    assert table.columns == ("method", "I, 4 starts", "I, eligible, 2 starts")
    assert table.rows == ((OURS, "75.0 % (30.1-95.4)", "100.0 % (34.2-100.0)"),)
    none = {"a": rows("a", {OURS: "10"}, eligible="00")}
    assert success_table(views(none, {}, True), (OURS,), {}).rows[0][2] == ""


def test_a_method_of_one_case_leaves_a_blank_in_the_other():
    seen = views(
        {"a": rows("a", {NATIVE: "11", OURS: "11"}), "b": rows("b", {NATIVE: "00"})}, {}, False
    )
    table = success_table(seen, (OURS, NATIVE), {})
    assert [row[2] for row in table.rows] == ["", "0.0 % (0.0-65.8)"]
    assert len(paired_table(seen, OURS, (NATIVE,), [], False).rows) == 1


def test_costs_by_hand():
    paid = {NATIVE: [0.25, 0.5, 6], OURS: [0, 0, 1]}
    of = {
        "a": rows("a", {NATIVE: "110", OURS: "111"}, costs=paid),
        "b": rows("b", {NATIVE: "10"}, costs={NATIVE: [0.5, 2.0]}),
    }
    table = cost_table(of, METHODS, "a note", 1.0, {})
    assert (table.columns, table.note) == (("method", "a", "b"), "a note")
    assert table.rows == (
        (SHOWN[NATIVE], "2.250 (median 0.500)", "1.250 (median 1.250)"),
        (OURS, "0.333 (median 0.000)", ""),
    )
    table = cost_table(of, METHODS, "in rad", 0.05, {("b", NATIVE): 0.5})
    assert table.columns == ("method", "a", "b", "b, paper")
    assert table.rows[0][1:] == ("0.1125 (median 0.0250)", "0.0625 (median 0.0625)", "0.5000")


def test_pairs_by_hand():
    """Intervals are those of four draws, with room to the 2.5 % that are left on either side.

    I, native, changes 0 1 1 0: no gain and four gains are drawn in 6 % of resamples each. Fusion,
    changes 1 1 0 -1: a net of -3 or less in 2.0 %, of -2 or less in 7 %, of 4 in 6 %. square,
    native, changes 0 1 0 0: three gains or more in 5 %, four in 0.4 %.
    """
    seen = views(TWO, {"both": ["I", "square"]}, eligible=False)
    table = paired_table(seen, OURS, (NATIVE, FUSION, "nobody ran this"), [], False)
    assert table.name == "paired-d-jepa"
    assert table.columns[-3:] == ("p", "adjusted p", "verdict")
    assert [row[:-2] for row in table.rows if row[1] != "both"] == [
        (SHOWN[NATIVE], "I", "4", "+50.0", "+0.0 to +100.0", "2", "0", "0.5"),
        (SHOWN[NATIVE], "square", "4", "+25.0", "+0.0 to +75.0", "1", "0", "1"),
        (SHOWN[FUSION], "I", "4", "+25.0", "-50.0 to +100.0", "2", "1", "1"),
        (SHOWN[FUSION], "square", "4", "+0.0", "+0.0 to +0.0", "0", "0", "1"),
    ]
    together = [row for row in table.rows if row[1] == "both"]
    assert [(*row[2:4], *row[5:8]) for row in together] == [
        ("8", "+37.5", "3", "0", "0.25"),
        ("8", "+12.5", "2", "1", "1"),
    ]
    assert {row[-2:] for row in table.rows} == {("", "")}


def test_only_primary_comparisons_get_a_verdict():
    """20 gains and no loss are significant after Holm over two; the other is not primary."""
    of = {"a": rows("a", {NATIVE: "0" * 20, FUSION: "0" * 20, OURS: "1" * 20})}
    verdicts = judge(of, [Comparison.of(OURS, NATIVE)])
    lines = paired_table(views(of, {}, False), OURS, (NATIVE, FUSION), verdicts, False).rows
    assert [line[-1] for line in lines] == ["better", ""]
    assert float(lines[0][-2]) == pytest.approx(verdicts[0].adjusted, rel=0.1)
    assert lines[1][-2] == ""


def test_looks_of_a_start_are_one_start():
    """Three gains in six rows, all of one start of two: resamples have 0, 3 or 6."""
    p = pair_of(LOOKS, OURS, NATIVE, clustered=True)
    assert (p.starts, p.gains, p.losses, p.p) == (6, 3, 0, 1.0)
    assert p.difference_interval == (0.0, 1.0)
    alone = pair_of({"clean": LOOKS["clean"]}, OURS, NATIVE, clustered=True)
    assert (alone.starts, alone.gains) == (2, 1)


def test_pairs_that_cannot_be_made():
    assert pair_of(TWO, OURS, "nobody ran this") is None
    assert pair_of(TWO, OURS, OURS) is None
    assert pair_of({"a": []}, OURS, NATIVE) is None
    assert pair_of({}, OURS, NATIVE) is None


def test_ablation_blocks():
    of = rows("a", {"native tdjepa": "1000", "plasticity": "1110", "relational": "1111"})
    blocks = {
        "parts": ("native tdjepa", "plasticity", "nobody ran this"),
        "rest": ("native tdjepa", "relational"),
        "nothing": ("nobody ran this", "relational"),
    }
    table = ablation_table("a", {"a": of}, blocks)
    assert [(row[0], row[1], row[3]) for row in table.rows] == [
        ("parts", "TD-JEPA", "reference"),
        ("parts", "predictive plasticity", "+50.0"),
        ("rest", "TD-JEPA", "reference"),
        ("rest", "D-JEPA, as published", "+75.0"),
    ]


def test_gap_closed_by_hand():
    # Of 8 starts the oracle solves 7, the base 3, ours 5: 2 of the 4 to be won.
    won = {"oracle": "11111110", "base": "11100000", "ours": "11011100", "twin": "11100000"}
    of = rows("a", won)
    found = gap_closed(of, "ours", "base")
    assert found.share == 0.5
    assert found.interval[0] < 0.5 < found.interval[1]
    assert gap_closed(of, "twin", "base").interval == (0.0, 0.0)
    assert gap_closed(of, "oracle", "base").interval == (1.0, 1.0)
    assert gap_closed(of[::-1], "ours", "base") == found
    # Two starts, both to be won, one won: resamples close 0, 1/2 or 1 with chances 1/4, 1/2, 1/4.
    few = gap_closed(rows("a", {"oracle": "11", "base": "00", "ours": "10"}), "ours", "base")
    assert (few.share, few.interval) == (0.5, (0.0, 1.0))


@pytest.mark.parametrize(
    ("won", "message"),
    [
        ({"oracle": "10", "base": "10", "ours": "00"}, "no gap"),
        ({"oracle": "10", "base": "00", "ours": "11"}, "oracle does not"),
    ],
)
def test_gaps_that_cannot_be(won, message):
    with pytest.raises(DjepaError, match=message):
        gap_closed(rows("a", won), "ours", "base")


def test_rows_that_do_not_belong_together():
    of = rows("a", {NATIVE: "10", OURS: "01"})
    for bad, message in [
        ([*of, replace(of[0], bank="other")], "one study"),
        ([replace(of[0], identity="ff"), *of[1:]], "Start 0"),
        ([replace(of[0], eligible=False), *of[1:]], "Start 0"),
    ]:
        with pytest.raises(DjepaError, match=message):
            views({"a": bad}, {}, False)
    seen = views({"a": of}, {}, False)
    assert np.array([row.success for row in seen["a"]["a"]]).sum() == 2
