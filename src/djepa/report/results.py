"""Tables of a study, from its result rows. Labels and order of methods come from the registry.

A view is a set of starts that a table counts: a case, its eligible starts, or cases of one group
together. The paper's figures are for its own starts, pools and weights: they are shown, not used in
tests.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from djepa.align.registry import label, slug
from djepa.errors import DjepaError
from djepa.evaluate.intervals import rate_of
from djepa.evaluate.paired import RESAMPLES, Paired
from djepa.evaluate.rows import Row, successes
from djepa.evaluate.verdict import Comparison, Verdict, compare
from djepa.report.tables import Table

Rows = Mapping[str, Sequence[Row]]  # case -> rows
Views = Mapping[str, Rows]  # name -> the cases whose starts are counted together
Figures = Mapping[tuple[str, str], float]  # (view, method) -> the paper's figure
ELIGIBLE = "{}, eligible"
WILSON = "95 % intervals of shares are Wilson's"
PRINTED = "The paper's figures are of its own starts and weights."


def views(rows: Rows, units: Mapping[str, Sequence[str]], eligible: bool) -> dict[str, Rows]:
    """Every case, its eligible starts if wanted, and units of several cases counted together."""
    found: dict[str, Rows] = {}
    for case, of in rows.items():
        _check(case, of)
        found[case] = {case: of}
        if eligible:
            found[ELIGIBLE.format(case)] = {case: [row for row in of if row.eligible]}
    together = {unit: {c: rows[c] for c in of if c in rows} for unit, of in units.items()}
    return found | {unit: of for unit, of in together.items() if len(of) > 1}


def success_table(
    seen: Views,
    methods: Sequence[str],
    paper: Figures,
    name: str = "success",
    on: str = "all starts",
) -> Table:
    """Success of every method in every view, with the paper's figure if there is one."""
    solved = {view: [successes(of) for of in rows.values()] for view, rows in seen.items()}
    printed, columns, lines = {view for view, _ in paper if view in seen}, ["method"], []
    for view, parts in solved.items():
        starts = sum(len(next(iter(of.values()), ())) for of in parts)
        columns += [f"{view}, {starts} starts", *([f"{view}, paper"] if view in printed else [])]
    for method in methods:
        cells = []
        for view, parts in solved.items():
            cells.append(_share([of[method] for of in parts if method in of]))
            if view in printed:
                cells.append(_printed(paper.get((view, method))))
        if any(cells):
            lines.append((label(method), *cells))
    note = f"{WILSON}; cases counted together have none." if _pooled(seen) else f"{WILSON}."
    if printed:
        note += f" {PRINTED}"
    title = f"Success on {on}, % (95 % interval)"
    return Table(name, title, tuple(columns), tuple(lines), note)


def cost_table(
    rows: Rows, methods: Sequence[str], note: str, factor: float, paper: Figures
) -> Table:
    """Mean task cost of every method's choices, times a factor that sets the unit."""
    digits, printed = 3 if factor == 1 else 4, {view for view, _ in paper}
    columns, lines = ["method"], []
    for case in rows:
        columns += [case, *([f"{case}, paper"] if case in printed else [])]
    for method in methods:
        cells = []
        for case, of in rows.items():
            paid = [factor * row.cost for row in of if row.method == method]
            mean, middle = (f"{of(paid):.{digits}f}" if paid else "" for of in (np.mean, np.median))
            cells.append(f"{mean} (median {middle})" if paid else "")
            if case in printed:
                cells.append(_printed(paper.get((case, method)), digits))
        if any(cells):
            lines.append((label(method), *cells))
    title = "Mean task cost of the chosen candidate"
    return Table("cost", title, tuple(columns), tuple(lines), note)


def paired_table(
    seen: Views,
    ours: str,
    others: Sequence[str],
    verdicts: Sequence[Verdict],
    clustered: bool,
    graded: str = "",
    paper: Callable[[str, str], str] = lambda view, other: "",
) -> Table:
    """Ours against others, start by start; primary comparisons with their verdict.

    `graded` names the compared quality, if it is not success. `paper` gives the published gains and
    losses of ours over another method in a view.
    """
    judged = {(v.where, v.ours, v.theirs): v for v in verdicts}
    lines = []
    for other in others:
        for view, rows in seen.items():
            if (p := pair_of(rows, ours, other, clustered, bool(graded))) is not None:
                found = judged.get((view, ours, other))
                word = (f"{found.adjusted:.2g}", found.word) if found else ("", "")
                counts = (str(p.gains), str(p.losses), f"{p.p:.2g}", *word, paper(view, other))
                lines.append((label(other), view, str(p.starts), *_difference(p), *counts))
    how = "whole starts, each with all its cases" if clustered else "whole starts"
    gain = (
        "A gain is a start that only the method of the title solves, a loss one that only the "
        "other solves."
    )
    test = "p is exact and two-sided."
    if graded:
        gain = f"A gain is a start with more than one point of {graded} more, a loss with less."
        how, test = "whole logs", f"p: {RESAMPLES:,} random flips of the signs of whole logs."
    note = (
        f"{gain} Intervals: {RESAMPLES:,} resamples of {how}. {test} "
        "Primary comparisons were declared beforehand: their p is adjusted by Holm's method over "
        "all of the study, and they alone get a verdict."
    )
    title = f"{label(ours)} against other methods, on the same starts"
    about = ("against", "on", "starts", "difference, points", "95 % interval")
    columns = [*about, "gains", "losses", "p", "adjusted p", "verdict"]
    if any(line[-1] for line in lines):
        columns.append("gains and losses, paper")
        note += f" {PRINTED}"
    shown = tuple(line[: len(columns)] for line in lines)
    return Table(f"paired-{slug(ours)}", title, tuple(columns), shown, note)


def ablation_table(case: str, rows: Rows, blocks: Mapping[str, Sequence[str]]) -> Table:
    """Blocks of methods against the first method of the block."""
    (of,) = rows.values()
    solved, lines = successes(of), []
    for title, methods in blocks.items():
        known = [method for method in methods if method in solved]
        for method in known if methods[0] in known else []:
            p = pair_of(rows, method, methods[0])
            against = ("reference", "") if p is None else _difference(p)
            share = rate_of(solved[method]).percent(interval=True)
            lines.append((title, label(method), share, *against))
    columns = ("block", "method", "success", "difference, points", "its 95 % interval")
    note = f"Differences are to the first method of the block. {WILSON}."
    name = f"ablation-{slug(case)}"
    return Table(name, f"Ablations, {case} pools", columns, tuple(lines), note)


def pair_of(
    rows: Rows, ours: str, theirs: str, clustered: bool = False, graded: bool = False
) -> Paired | None:
    """One method against another over all cases together; None if that is not possible."""
    if ours == theirs or not any(rows.values()):
        return None
    found = compare(rows, Comparison.of(ours, theirs), clustered and len(rows) > 1, graded)
    return None if found is None else found[1]


def _check(case: str, rows: Sequence[Row]) -> None:
    """Refuse rows of several banks, or of starts that differ between methods."""
    kinds = sorted({(row.study, row.pools, row.rule, row.bank) for row in rows})
    if len(kinds) > 1:
        raise DjepaError(f"{case} needs rows of one study, pools, rule and bank, got {kinds}.")
    known: dict[int, tuple[str, bool]] = {}
    for row in rows:
        this = (row.identity, row.eligible)
        if known.setdefault(row.start, this) != this:
            raise DjepaError(f"Start {row.start} of {case} is another one for {row.method}.")


def _share(hits: Sequence[npt.NDArray[np.bool_]]) -> str:
    """Percent with its interval; without one for several cases together."""
    whole = np.concatenate(hits) if hits else np.zeros(0, bool)
    if not len(whole):
        return ""
    return (
        rate_of(whole).percent(interval=True) if len(hits) == 1 else f"{100 * whole.mean():.1f} %"
    )


def _difference(p: Paired) -> Iterator[str]:
    difference, _, ends = p.points.partition(" (")
    yield difference
    yield ends.removesuffix(")")


def _pooled(seen: Views) -> bool:
    return any(len(rows) > 1 for rows in seen.values())


def _printed(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"
