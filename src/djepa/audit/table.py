"""Markdown tables of several audits, one column each."""

from collections.abc import Sequence

import numpy as np

from djepa.audit.choices import BEST, DENSEST, FIRST, RANDOM, Choices, Share
from djepa.audit.result import Audit, Correlation, Gap, Selective
from djepa.evaluate.intervals import markdown_table
from djepa.evaluate.paired import with_ends


def audit_markdown(audits: Sequence[Audit]) -> str:
    """One column per model; every share is given with its denominator."""
    names, columns = [one.name for one in audits], [audit_column(one) for one in audits]
    return markdown_table("audit", names, columns) + _both_fail(audits)


def _both_fail(audits: Sequence[Audit]) -> str:
    """Shares of starts on which two models both choose a failure; on the diagonal, one model's."""
    failed = {one.name: ~np.array(one.choices.picks) for one in audits if one.choices}
    if len(failed) < 2:
        return ""
    columns = [
        {b: f"{100 * (x & y).mean():.1f} %" for b, y in failed.items()} for x in failed.values()
    ]
    return "\n" + markdown_table("both fail", list(failed), columns)


def audit_column(one: Audit) -> dict[str, str]:
    """What the audit of one model found: row -> text."""
    column = {"starts × candidates": f"{one.starts} × {one.candidates}"}
    if one.choices:
        column |= _choices(one.name, one.choices)
    if one.verdict:
        column["part that fails"] = str(one.verdict)
    column |= _gap(one.gap) if one.gap else {}
    for i in one.inversions:
        share = "none" if i.mean is None else f"{100 * i.mean:.1f} %"
        column[f"pair inversions, best {i.shortlist}"] = f"{share} ({i.starts} starts)"
    for c in one.correlations:
        column[f"Spearman within starts, best {c.shortlist}"] = _within(c)
    for c in one.correlations:
        column[f"Spearman pooled, best {c.shortlist}"] = _number(c.pooled)
    return column


def gate_markdown(aligned: Choices, gate: Selective | None) -> str:
    """An alignment on the same starts, as a table."""
    name = next(iter(aligned.success))
    return markdown_table("audit", [name], [gate_column(aligned, gate)])


def gate_column(aligned: Choices, gate: Selective | None) -> dict[str, str]:
    """Row -> text: choices of an alignment, and how often they fail by the gate."""
    column = _choices(next(iter(aligned.success)), aligned)
    for other in aligned.over:
        if other not in (RANDOM, FIRST, DENSEST):
            column[f"choice minus {other}"] = _points(aligned.over[other])
            column |= _closed(aligned, other)
    if gate is None:
        return column
    column |= {
        "fails where the gate opens": f"{gate.opened.percent(True)} of {gate.opened.of}",
        "fails where it abstains (base choice)": f"{gate.shut.percent(True)} of {gate.shut.of}",
    }
    for coverage, rate in gate.by_coverage.items():
        column[f"aligned choice fails, {100 * coverage:.0f} % of largest advantage"] = rate.percent(
            True
        )
    return column


def _choices(name: str, choices: Choices) -> dict[str, str]:
    column = {"success of the choice": str(choices.success[name])}
    for other in (RANDOM, FIRST, DENSEST, BEST):
        if other in choices.success:
            column[f"success of the {other}"] = str(choices.success[other])
    for other in (RANDOM, FIRST, DENSEST):
        if other in choices.over:
            column[f"choice minus {other}"] = _points(choices.over[other])
    return column | _closed(choices, RANDOM)


def _closed(choices: Choices, other: str) -> dict[str, str]:
    share = choices.closed.get(other)
    return {f"gap closed, base {other}": str(share)} if share else {}


def _points(share: Share) -> str:
    return with_ends(share.value, share.low, share.high, " points")


def _gap(gap: Gap) -> dict[str, str]:
    column = {
        "starts with both outcomes": str(gap.positive.of),
        "starts that prefer a failure": f"{gap.positive.hits}: {gap.positive.percent(True)}",
    }
    if gap.median is not None and gap.quartiles is not None:
        low, high = gap.quartiles
        column["distance gap, median (quartiles)"] = (
            f"{gap.median:+.3f} ({low:+.3f} to {high:+.3f})"
        )
    return column


def _within(c: Correlation) -> str:
    undefined = f", {c.undefined} undefined" if c.undefined else ""
    return f"{_number(c.within)} ({c.starts} starts{undefined})"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"
