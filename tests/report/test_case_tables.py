"""Tables of cases by hand: what is counted, what is paired with what, what is one start."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from djepa.errors import DjepaError
from djepa.evaluate.paired import cluster_sums, paired
from djepa.evaluate.rows import Row, write_rows
from djepa.report.cases import ALL, cost_by_case, pair_of, paired_by_case, success_by_case
from djepa.rollout.execute import CollectConfig
from djepa.studies.case_pages import case_tables, rows_in, verdict
from djepa.studies.cases import Case, Design
from djepa.studies.shifts import APPEARANCE

OURS, FUSION, NATIVE = "D-JEPA", "fusion", "native"
METHODS = (NATIVE, FUSION, "nobody ran this", OURS)


def rows(
    case: str,
    won: Mapping[str, str],
    names: Sequence[str] = "",
    costs: Mapping[str, Sequence[float]] | None = None,
) -> list[Row]:
    """Rows from strings such as "1101", one digit per start; `names` are the starts' identities."""
    found = []
    for method, text in won.items():
        for start, digit in enumerate(text):
            name = names[start] if names else f"{case}-{start}"
            cost = (costs or {}).get(method, [0.5] * len(text))[start]
            about = ("shapes", case, method, start, name, True, 1, digit == "1", cost)
            found.append(Row(*about, False, "push.v1", "0123456789ab", ""))
    return found


# Four starts each. I: over native ours gains two, over fusion it gains two and loses one.
# square: over native it gains one, over fusion nothing changes.
TWO = {
    "I": rows("I", {NATIVE: "1000", FUSION: "0011", OURS: "1110"}),
    "square": rows("square", {NATIVE: "0000", OURS: "0100", FUSION: "0100"}),
}


# --------------------------------------------------------------------------- successes and costs


def test_success_by_hand() -> None:
    """Wilson's intervals of 0, 1, 2 and 3 of 4."""
    table = success_by_case(TWO, METHODS, {("I", NATIVE): 22, ("I", OURS): 52.256})
    assert table.name == "success"
    assert table.columns == ("method", "I, 4 starts", "I, paper", "square, 4 starts")
    assert table.rows == (
        (NATIVE, "25.0 % (4.6-69.9)", "22.00", "0.0 % (0.0-49.0)"),
        (FUSION, "50.0 % (15.0-85.0)", "", "25.0 % (4.6-69.9)"),
        (OURS, "75.0 % (30.1-95.4)", "52.26", "25.0 % (4.6-69.9)"),
    )


def test_a_method_of_one_case_leaves_a_blank_in_the_other() -> None:
    held = {"a": rows("a", {NATIVE: "11", OURS: "11"}), "b": rows("b", {NATIVE: "00"})}
    table = success_by_case(held, (OURS, NATIVE), {})
    assert table.columns == ("method", "a, 2 starts", "b, 2 starts")
    assert table.rows == (
        (OURS, "100.0 % (34.2-100.0)", ""),
        (NATIVE, "100.0 % (34.2-100.0)", "0.0 % (0.0-65.8)"),
    )


def test_the_papers_figure_stands_where_nobody_ran_the_method_too() -> None:
    held = {"a": rows("a", {NATIVE: "11"})}
    table = success_by_case(held, METHODS, {("a", "nobody ran this"): 7.0, ("b", OURS): 9.0})
    assert table.columns == ("method", "a, 2 starts", "a, paper")
    assert table.rows == (
        (NATIVE, "100.0 % (34.2-100.0)", ""),
        ("nobody ran this", "", "7.00"),
    )


def test_costs_by_hand() -> None:
    paid = {NATIVE: [0.25, 0.5, 6], OURS: [0, 0, 1]}
    held = {
        "a": rows("a", {NATIVE: "110", OURS: "111"}, costs=paid),
        "b": rows("b", {NATIVE: "10"}, costs={NATIVE: [0.5, 2.0]}),
    }
    table = cost_by_case(held, METHODS, "the threshold of push.v1")
    assert table.columns == ("method", "a", "b")
    assert table.rows == (
        (NATIVE, "2.250 (median 0.500)", "1.250 (median 1.250)"),
        (OURS, "0.333 (median 0.000)", ""),
    )
    assert table.note == "the threshold of push.v1"
    paper = {("b", NATIVE): 0.5, ("b", "somebody"): 1.0}
    table = cost_by_case(held, METHODS, "in rad", 0.05, paper)
    assert table.columns == ("method", "a", "b", "b, paper")
    assert table.rows == (
        (NATIVE, "0.1125 (median 0.0250)", "0.0625 (median 0.0625)", "0.5000"),
        (OURS, "0.0167 (median 0.0000)", "", ""),
    )


def test_cases_that_count_together_have_a_column() -> None:
    paper = {("a", NATIVE): 40.0, ("both", NATIVE): 45.0}
    held = {"a": rows("a", {NATIVE: "1000", OURS: "1110"}), "b": rows("b", {NATIVE: "11"})}
    table = success_by_case(held, METHODS, paper, {"both": ("a", "b", "never run")})
    assert table.columns == (
        "method",
        "a, 4 starts",
        "a, paper",
        "b, 2 starts",
        "both",
        "both, paper",
    )
    assert [(row[0], row[2], *row[4:]) for row in table.rows] == [
        (NATIVE, "40.00", "50.0 %", "45.00"),
        (OURS, "", "75.0 %", ""),
    ]


# --------------------------------------------------------------------------- pairs


def test_pairs_by_hand() -> None:
    """Intervals are those of four draws, with room to the 2.5 % that are left on either side.

    I, native, changes 0 1 1 0: no gain and four gains are drawn in 6 % of resamples each. Fusion,
    changes 1 1 0 -1: a net of -3 or less in 2.0 %, of -2 or less in 7 %, of 4 in 6 %. square,
    native, changes 0 1 0 0: three gains or more in 5 %, four in 0.4 %.
    """
    table = paired_by_case(TWO, OURS, (NATIVE, FUSION, "nobody ran this"), clustered=False)
    assert table.name == "paired-d-jepa"
    assert table.title == "D-JEPA against others"
    assert table.columns == (
        *("against", "case", "starts", "difference, points", "95 % interval"),
        *("gains", "losses", "p"),
    )
    assert [row for row in table.rows if row[1] != ALL] == [
        (NATIVE, "I", "4", "+50.0", "+0.0 to +100.0", "2", "0", "0.5"),
        (NATIVE, "square", "4", "+25.0", "+0.0 to +75.0", "1", "0", "1"),
        (FUSION, "I", "4", "+25.0", "-50.0 to +100.0", "2", "1", "1"),
        (FUSION, "square", "4", "+0.0", "+0.0 to +0.0", "0", "0", "1"),
    ]
    together = [row for row in table.rows if row[1] == ALL]
    assert [(*row[:4], *row[5:]) for row in together] == [
        (NATIVE, ALL, "8", "+37.5", "3", "0", "0.25"),
        (FUSION, ALL, "8", "+12.5", "2", "1", "1"),
    ]
    assert [row[:2] for row in table.rows] == [
        (of, case) for of in (NATIVE, FUSION) for case in ("I", "square", ALL)
    ]
    assert table.note == ("Intervals: 10,000 resamples of whole starts. p is exact and two-sided.")


def test_cases_are_counted_together_as_asked() -> None:
    one = {"I": TWO["I"]}
    assert [row[1] for row in paired_by_case(one, OURS, (NATIVE,), False).rows] == ["I"]
    three = {**TWO, "small-T": rows("small-T", {NATIVE: "0000", OURS: "1111"})}
    for units, wanted in (
        (None, {ALL: ("12", "+58.3", "7")}),
        ({}, {}),
        ({"both": ["I", "small-T"]}, {"both": ("8", "+75.0", "6")}),
        (
            {"x": ["small-T"], "y": ["square"]},
            {"x": ("4", "+100.0", "4"), "y": ("4", "+25.0", "1")},
        ),
    ):
        table = paired_by_case(three, OURS, (NATIVE,), False, units)
        assert [row[1] for row in table.rows] == [*three, *wanted]
        found = {row[1]: (row[2], row[3], row[5]) for row in table.rows if row[1] not in three}
        assert found == wanted


# Two starts, A and B, seen in three looks, in which they stand in different order: ours gains A in
# every look, and B in none.
LOOKS = {
    "clean": rows("clean", {NATIVE: "00", OURS: "10"}, "AB"),
    "dark": rows("dark", {NATIVE: "00", OURS: "01"}, "BA"),
    "blur": rows("blur", {NATIVE: "01", OURS: "11"}, "AB"),
}


def test_looks_of_a_start_are_one_start() -> None:
    """Two clusters of three: changes 1 1 1 | 0 0 0 over native. Both, one or none of the two that
    gain are drawn in a quarter, a half, a quarter of resamples, so 0 to 100 is all there is; six
    starts of their own would say 17 to 83 and p = 0.25.
    """
    whole = paired_by_case(LOOKS, OURS, (NATIVE,), clustered=True)
    assert whole.rows[-1] == (NATIVE, ALL, "6", "+50.0", "+0.0 to +100.0", "3", "0", "1")
    assert whole.note == (
        "Intervals: 10,000 resamples of whole starts, each with all its cases. p is exact and "
        "two-sided; over all cases a sign test of the starts' net gains."
    )
    apart = paired_by_case(LOOKS, OURS, (NATIVE,), clustered=False)
    assert apart.rows[-1] == (NATIVE, ALL, "6", "+50.0", "+16.7 to +83.3", "3", "0", "0.25")
    assert whole.rows[:-1] == apart.rows[:-1]  # within a case every start is its own


def test_starts_are_told_apart_by_identity_and_not_by_place() -> None:
    """By place, the first and the second start would each gain once or twice."""
    found = pair_of(LOOKS, OURS, NATIVE, clustered=True)
    assert found is not None
    assert found.difference_interval == (0.0, 1.0)
    moved = {**LOOKS, "dark": [replace(r, identity="AB"[r.start]) for r in LOOKS["dark"]]}
    other = pair_of(moved, OURS, NATIVE, clustered=True)
    assert other is not None
    assert other.difference_interval == pytest.approx((1 / 3, 2 / 3))


def test_looks_of_different_starts_cannot_be_counted_as_one() -> None:
    moved = {**LOOKS, "dark": [replace(r, identity="CA"[r.start]) for r in LOOKS["dark"]]}
    with pytest.raises(DjepaError, match="all the same size"):
        pair_of(moved, OURS, NATIVE, clustered=True)
    assert pair_of(moved, OURS, NATIVE, "dark", clustered=True) is not None
    assert pair_of(moved, OURS, NATIVE) is not None


def test_a_pair_needs_both_methods_in_every_case() -> None:
    held = {**TWO, "more": rows("more", {NATIVE: "01"})}
    assert pair_of(held, OURS, NATIVE) is None
    assert pair_of(held, NATIVE, OURS) is None
    assert pair_of(held, OURS, NATIVE, "more") is None
    found = pair_of(held, OURS, NATIVE, "square")
    assert found is not None
    assert (found.gains, found.losses, found.starts) == (1, 0, 4)
    back = pair_of(held, NATIVE, OURS, "square")
    assert back is not None
    assert (back.gains, back.losses, back.difference) == (0, 1, -0.25)
    table = paired_by_case(held, OURS, (NATIVE,), clustered=False)
    assert [row[1] for row in table.rows] == ["I", "square"]


def test_starts_are_paired_by_number_in_whatever_order_rows_come() -> None:
    rng = np.random.default_rng(0)

    def stirred(of: list[Row]) -> list[Row]:
        return [of[i] for i in rng.permutation(len(of))]

    for _ in range(4):
        held = {"I": stirred(TWO["I"])}
        assert pair_of(held, OURS, FUSION, "I") == pair_of(TWO, OURS, FUSION, "I")
        looks = {look: stirred(of) for look, of in LOOKS.items()}
        whole = pair_of(LOOKS, OURS, NATIVE, clustered=True)
        assert pair_of(looks, OURS, NATIVE, clustered=True) == whole


# --------------------------------------------------------------------------- paired(), clustered


def test_two_clusters_of_three_by_hand() -> None:
    """One gains three, the other one gains one and loses two: +3 and -1 of three."""
    ours = np.array([1, 1, 1, 1, 0, 0], bool)
    theirs = np.array([0, 0, 0, 0, 1, 1], bool)
    found = paired(ours, theirs, list("xxxyyy"))
    assert (found.starts, found.gains, found.losses) == (6, 4, 2)
    assert (found.ours, found.theirs) == pytest.approx((4 / 6, 2 / 6))
    assert found.difference == pytest.approx(2 / 6)
    assert found.difference_interval == pytest.approx((-1 / 3, 1))  # twice y, twice x
    assert found.p == 1.0  # one up, one down


def test_p_is_of_clusters_and_not_of_their_members() -> None:
    """Six clusters of two, five of which gain: one win in one member each, 2 / 2^5."""
    theirs = np.zeros(12, bool)
    ours = np.array([1, 0] * 5 + [0, 0], bool)
    names = np.repeat(np.arange(6), 2)
    assert paired(ours, theirs, names).p == pytest.approx(2 / 2**5)
    both = np.array([1, 1] * 5 + [0, 0], bool)
    assert paired(both, theirs, names).p == pytest.approx(2 / 2**5)
    assert paired(both, theirs).p == pytest.approx(2 / 2**10)
    # What is gained and lost again within a cluster is no change of it.
    ours[1], theirs[0], theirs[1] = False, False, True
    found = paired(ours, theirs, names)
    assert (found.gains, found.losses) == (5, 1)
    assert found.p == pytest.approx(2 / 2**4)


pairs = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=12)


@settings(max_examples=30, deadline=None)
@given(pairs=pairs, seed=st.integers(0, 99))
def test_clusters_of_one_are_starts(pairs: list[tuple[bool, bool]], seed: int) -> None:
    ours, theirs = np.array(pairs, bool).T
    names = np.random.default_rng(seed).permutation(len(ours))
    assert paired(ours, theirs, names) == paired(ours, theirs)


@settings(max_examples=30, deadline=None)
@given(pairs=pairs, times=st.integers(2, 5))
def test_what_is_said_thrice_is_no_surer(pairs: list[tuple[bool, bool]], times: int) -> None:
    """Looks that all agree say as much as one of them."""
    ours, theirs = np.array(pairs, bool).T
    once = paired(ours, theirs)
    often = paired(np.tile(ours, times), np.tile(theirs, times), list(range(len(ours))) * times)
    assert often.starts == times * once.starts
    assert often.p == once.p
    assert often.difference == pytest.approx(once.difference)
    assert often.difference_interval == pytest.approx(once.difference_interval)


@pytest.mark.parametrize("names", ["xxy", "xyzz", "xxxy", "xx", "xxyyzz", ""])
def test_clusters_are_of_one_size_and_name_every_start(names: str) -> None:
    four = np.array([1, 1, 0, 0], bool)
    with pytest.raises(DjepaError, match=r"a name for every start, and all the same size"):
        paired(four, ~four, list(names))
    assert cluster_sums(np.array([1.0, 2.0, 4.0, 8.0]), list("xyyx")).tolist() == [9.0, 6.0]


# --------------------------------------------------------------------------- what a design says


def design(*cases: str, **others: object) -> Design:
    """One of these cases; "name@group" puts a case into a group."""

    def made(role: str, starts: int, seed: int) -> list[Case]:
        parts = [case.partition("@") for case in cases]
        bank = CollectConfig(split=role, starts=starts, seed=seed)
        return [Case(name, bank, group=group or "all") for name, _, group in parts]

    given = {"clustered": False, "together": False, "against": (NATIVE, FUSION), **others}
    return replace(APPEARANCE, cases=made, methods=METHODS, paper={}, **given)  # type: ignore[arg-type]


def test_units_are_cases_or_groups() -> None:
    assert design("a", "b").units() == {"a": ["a"], "b": ["b"]}
    assert design("a", "b", together=True).units() == {"all": ["a", "b"]}
    groups = design("a@x", "b@y", "c@x", together=True)
    assert groups.units() == {"all x": ["a", "c"], "all y": ["b"]}


def test_words_follow_both_ends_of_the_interval() -> None:
    held = {"I": rows("I", {OURS: "1111", NATIVE: "0000", FUSION: "1110"})}
    assert verdict(design("I"), held) == [
        "**I**: D-JEPA beats native (+100.0 points, +100.0 to +100.0), "
        "cannot be told from fusion (+25.0 points, +0.0 to +75.0)."
    ]
    held = {"I": rows("I", {OURS: "0000", NATIVE: "1111", FUSION: "0000"})}
    assert verdict(design("I"), held) == [
        "**I**: D-JEPA loses to native (-100.0 points, -100.0 to -100.0), "
        "cannot be told from fusion (+0.0 points, +0.0 to +0.0)."
    ]


def test_a_verdict_of_every_unit() -> None:
    """Of cases apart, of all together, of groups; the published operator where it was run."""
    held = {
        "I": rows("I", {OURS: "1111", NATIVE: "0000", "relational": "0000"}),
        "square": rows("square", {OURS: "0000", NATIVE: "1111"}),
    }
    apart = verdict(design("I", "square"), held)
    assert apart == [
        "**I**: D-JEPA beats native (+100.0 points, +100.0 to +100.0).",
        "**I**: the published relational operator cannot be told from native "
        "(+0.0 points, +0.0 to +0.0).",
        "**square**: D-JEPA loses to native (-100.0 points, -100.0 to -100.0).",
    ]
    (whole,) = verdict(design("I", "square", together=True), held)
    assert whole.startswith("**all**: D-JEPA cannot be told from native (+0.0 points, -")
    groups = design("I@published", "square@decoy", together=True)
    said = " ".join(verdict(groups, held)).replace("all published", "I")
    assert said.replace("all decoy", "square") == " ".join(apart)


def test_of_what_was_not_decided_nothing_is_said() -> None:
    """Groups of cases may be decided one after the other."""
    groups = design("I@published", "square@decoy", together=True, against=(NATIVE,))
    (line,) = verdict(groups, {"I": TWO["I"]})
    assert line.startswith("**all published**: ")
    *_, table = case_tables(groups, {"I": TWO["I"]})
    assert [row[1] for row in table.rows] == ["I", "all published"]
    assert pair_of({}, OURS, NATIVE) is None


def test_a_verdict_over_looks_is_one_of_whole_starts() -> None:
    loose = design(*LOOKS, together=True, against=(NATIVE,))
    assert verdict(loose, LOOKS) == ["**all**: D-JEPA beats native (+50.0 points, +16.7 to +83.3)."]
    assert verdict(replace(loose, clustered=True), LOOKS) == [
        "**all**: D-JEPA cannot be told from native (+50.0 points, +0.0 to +100.0)."
    ]


def test_tables_of_a_design() -> None:
    names = [table.name for table in case_tables(design("I", "square"), TWO)]
    assert names == ["success", "cost", "paired-d-jepa"]
    more = {"I": TWO["I"] + rows("I", {"relational": "1111", "mixture": "0000"})}
    against = (NATIVE, FUSION, "mixture")
    success, cost, ours, published = case_tables(design("I", against=against), more)
    assert cost.note.startswith("In units of the threshold of push.v1;")
    assert [row[0] for row in ours.rows] == [*against]
    assert published.name == "paired-relational"
    assert [(row[0], row[3]) for row in published.rows] == [(NATIVE, "+75.0"), (FUSION, "+50.0")]
    # Methods stand in the design's order, and those it does not name do not stand at all.
    assert [row[0] for row in success.rows] == [NATIVE, FUSION, OURS]


@pytest.mark.parametrize("clustered", [True, False])
def test_tables_count_together_what_the_design_does(clustered: bool) -> None:
    for together, wanted in ((False, [*LOOKS]), (True, [*LOOKS, "all"])):
        of = design(*LOOKS, together=together, clustered=clustered, against=(NATIVE,))
        *_, table = case_tables(of, LOOKS)
        assert [row[1] for row in table.rows] == wanted
        if together:
            ends = "+0.0 to +100.0" if clustered else "+16.7 to +83.3"
            assert table.rows[-1][4] == ends


def test_only_decided_cases_are_read(tmp_path: Path) -> None:
    with pytest.raises(DjepaError, match="holds no rows yet: no case was decided"):
        rows_in(tmp_path, ["I", "square"])
    (tmp_path / "rows").mkdir()
    write_rows(tmp_path / "rows" / "square.csv.gz", TWO["square"])
    assert rows_in(tmp_path, ["I", "square"]) == {"square": TWO["square"]}
