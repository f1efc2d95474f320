"""Tables of a study of cases: a kind of pools, a shape, a look, each with starts of its own.

Legend: N starts.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from djepa.evaluate.intervals import rate_of
from djepa.evaluate.paired import RESAMPLES, Paired, paired
from djepa.evaluate.rows import Row, successes
from djepa.report.tables import Table

Rows = Mapping[str, Sequence[Row]]  # case -> rows
ALL = "all"
Paper = Mapping[tuple[str, str], float]  # (case, method) -> percent


def success_by_case(
    rows: Rows,
    methods: Sequence[str],
    paper: Paper,
    units: Mapping[str, Sequence[str]] | None = None,
) -> Table:
    """Success of every method in every case, the paper's figure beside it where there is one.

    `units`: name -> cases that are counted together as well, in columns after theirs.
    """
    solved = {case: successes(of) for case, of in rows.items()}
    printed = {case for case, _ in paper}
    together = {unit: [c for c in cases if c in rows] for unit, cases in (units or {}).items()}
    columns = ["method"]
    for case, of in solved.items():
        columns += [f"{case}, {len(next(iter(of.values())))} starts"]
        columns += [f"{case}, paper"] if case in printed else []
    for unit in together:
        columns += [unit, *([f"{unit}, paper"] if unit in printed else [])]
    lines = []
    for method in methods:
        cells = []
        for case, of in solved.items():
            cells.append(rate_of(of[method]).percent(interval=True) if method in of else "")
            if case in printed:
                cells.append(_figure(paper.get((case, method))))
        for unit, cases in together.items():
            hits = [solved[case][method] for case in cases if method in solved[case]]
            cells.append(f"{100 * np.concatenate(hits).mean():.1f} %" if hits else "")
            if unit in printed:
                cells.append(_figure(paper.get((unit, method))))
        if any(cells):
            lines.append((method, *cells))
    note = "95 % intervals are Wilson's. The paper's figures are of its own starts and weights."
    return Table(
        "success", "Success by case, % (95 % interval)", tuple(columns), tuple(lines), note
    )


def cost_by_case(
    rows: Rows, methods: Sequence[str], note: str, factor: float = 1.0, paper: Paper | None = None
) -> Table:
    """Mean task cost of what every method chose, times a factor that brings it into a unit."""
    known, lines, digits = paper or {}, [], 3 if factor == 1 else 4
    printed = {case for case, _ in known}
    columns = ["method"]
    for case in rows:
        columns += [case, *([f"{case}, paper"] if case in printed else [])]
    for method in methods:
        cells = []
        for case, of in rows.items():
            paid = [factor * row.cost for row in of if row.method == method]
            mean, middle = (f"{of(paid):.{digits}f}" if paid else "" for of in (np.mean, np.median))
            cells.append(f"{mean} (median {middle})" if paid else "")
            if case in printed:
                cells.append(_figure(known.get((case, method)), digits))
        if any(cells):
            lines.append((method, *cells))
    title = "Mean task cost of what is chosen"
    return Table("cost", title, tuple(columns), tuple(lines), note)


def paired_by_case(
    rows: Rows,
    ours: str,
    references: Sequence[str],
    clustered: bool,
    units: Mapping[str, Sequence[str]] | None = None,
) -> Table:
    """Ours against every reference, start by start: by case, and over cases counted together.

    `units`: name -> cases; all of them unless said.
    """
    lines = []
    wanted = {ALL: list(rows)} if units is None and len(rows) > 1 else dict(units or {})
    parts = {case: {case: of} for case, of in rows.items()}
    parts |= {unit: {c: rows[c] for c in cases if c in rows} for unit, cases in wanted.items()}
    for reference in references:
        for case, of in parts.items():
            p = pair_of(of, ours, reference, ALL if case in wanted else case, clustered)
            if p is not None:
                low, high = (100 * end for end in p.difference_interval)
                counts = (str(p.gains), str(p.losses), f"{p.p:.2g}")
                lines.append(
                    (
                        reference,
                        case,
                        str(p.starts),
                        f"{100 * p.difference:+.1f}",
                        f"{low:+.1f} to {high:+.1f}",
                        *counts,
                    )
                )
    how = "whole starts, each with all its cases" if clustered else "whole starts"
    note = f"Intervals: {RESAMPLES:,} resamples of {how}. p is exact and two-sided"
    note += "; over all cases a sign test of the starts' net gains." if clustered else "."
    columns = ("against", "case", "starts", "difference, points", "95 % interval")
    return Table(
        f"paired-{_slug(ours)}",
        f"{ours} against others",
        (*columns, "gains", "losses", "p"),
        tuple(lines),
        note,
    )


def pair_of(
    rows: Rows, ours: str, theirs: str, case: str = ALL, clustered: bool = False
) -> Paired | None:
    """One method against another in a case, or in all of them; None where one was not run."""
    chosen = rows if case == ALL else {case: rows[case]}
    if not chosen:
        return None
    a, b, names = list[bool](), list[bool](), list[str]()
    for of in chosen.values():
        solved = successes(of)
        if ours not in solved or theirs not in solved:
            return None
        a += solved[ours].tolist()
        b += solved[theirs].tolist()
        names += _identities(of)
    together: npt.NDArray[np.str_] | None = np.array(names) if clustered and case == ALL else None
    return paired(np.array(a), np.array(b), together)


def _identities(rows: Sequence[Row]) -> list[str]:
    known = {row.start: row.identity for row in rows}
    return [known[start] for start in sorted(known)]


def _figure(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _slug(method: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in method.lower()).split())
