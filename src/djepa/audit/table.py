"""Audits beside each other, as a table."""

from collections.abc import Sequence

from djepa.audit.result import Audit, Correlation, Gap
from djepa.evaluate.intervals import markdown_table


def audit_markdown(audits: Sequence[Audit]) -> str:
    """One column per model; every share with what it is a share of."""
    return markdown_table("audit", [one.name for one in audits], [_column(one) for one in audits])


def _column(one: Audit) -> dict[str, str]:
    column = {"starts × candidates": f"{one.starts} × {one.candidates}"}
    column |= _gap(one.gap) if one.gap else {}
    for i in one.inversions:
        share = "none" if i.mean is None else f"{100 * i.mean:.1f} %"
        column[f"pair inversions, best {i.shortlist}"] = f"{share} ({i.starts} starts)"
    for c in one.correlations:
        column[f"Spearman within starts, best {c.shortlist}"] = _within(c)
    for c in one.correlations:
        column[f"Spearman pooled, best {c.shortlist}"] = _number(c.pooled)
    return column


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
