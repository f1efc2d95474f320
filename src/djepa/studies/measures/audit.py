"""The decision-local audit of every geometry, on starts of its own."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from djepa.align.registry import GEOMETRIES
from djepa.audit.bank import audit_bank
from djepa.report.curves import correlation_curves
from djepa.report.figures import gap_strip, inversion_bars
from djepa.report.tables import Table
from djepa.studies.design import Case, Measure
from djepa.studies.results import Results
from djepa.studies.stages import Say
from djepa.studies.study import Study

Audits = Sequence[Mapping[str, Any]]


def audit(case: str) -> Measure:
    """On the audit starts of one case."""

    def run(study: Study, case: Case, say: Say) -> list[dict[str, Any]]:
        (own,) = study.cases("audit", case.group)
        bank, device = study.bank(own), study.place.device
        return [audit_bank(bank, n, device).as_dict(each=True) for n in study.design.weights]

    return Measure(
        name="audit",
        title="The gap between prediction and outcome",
        text=("How the order of predicted futures compares with what execution showed.",),
        run=run,
        tables=_tables,
        figures=_figures,
        only=(case,),
    )


def _tables(results: Results) -> Iterator[Table]:
    for audits in results.measured("audit").values():
        yield _gaps(audits)
        yield _by_shortlist(
            audits,
            "inversions",
            "Success-failure pairs in the wrong order, %",
            "Mean share of pairs in the wrong order among the candidates with the lowest cost; in "
            "brackets the starts that have both outcomes there.",
        )
        yield _by_shortlist(
            audits,
            "correlations",
            "Rank correlation of predicted and realised cost",
            "Spearman, mean over starts; in brackets over all candidates of all starts.",
        )


def _shown(audit: Mapping[str, Any]) -> str:
    name = str(audit["name"])
    return GEOMETRIES.get(name, name)


def _gaps(audits: Audits) -> Table:
    rows = []
    for audit in audits:
        gap, name = audit["gap"], _shown(audit)
        if gap is None or gap["median"] is None:  # no distances, or no start with both outcomes
            rows.append((name, "0", "", "", ""))
            continue
        (low, high), positive = gap["quartiles"], gap["positive"]
        share = f"{positive['hits']} ({100 * positive['share']:.1f} %)"
        middle = (f"{gap['median']:+.3f}", f"{low:+.3f} to {high:+.3f}")
        rows.append((name, str(positive["of"]), *middle, share))
    columns = ("model", "starts", "median gap", "quartiles", "starts that prefer a failure")
    note = "(d_s - d_f) / (d_s + d_f) of the nearest success and the nearest failure."
    return Table("audit-gap", "Normalised distance gaps", columns, tuple(rows), note)


def _by_shortlist(audits: Audits, part: str, title: str, note: str) -> Table:
    def cell(e: Mapping[str, Any]) -> str:
        if part == "inversions":
            return "" if e["mean"] is None else f"{100 * e['mean']:.1f} ({e['starts']})"
        return "" if e["within"] is None else f"{e['within']:.3f} ({e['pooled']:.3f})"

    rows = tuple((_shown(a), *(cell(entry) for entry in a[part])) for a in audits)
    columns = ("model", *(f"best {entry['shortlist']}" for entry in audits[0][part]))
    return Table(f"audit-{part}", title, columns, rows, note)


def _figures(results: Results, folder: Path) -> Iterator[tuple[str, str]]:
    for stored in results.measured("audit").values():
        audits = [{**a, "name": _shown(a)} for a in stored]
        gaps = {a["name"]: _numbers(a["gap"]["each"]) for a in audits if a["gap"]}
        if some := {name: each for name, each in gaps.items() if np.isfinite(each).any()}:
            gap_strip(folder / "audit-gap", some)
            yield "audit-gap", "Every audit start; right of zero a failure is predicted nearest."
        if inversions := _each(audits, "inversions"):
            inversion_bars(folder / "audit-inversions", inversions)
            yield "audit-inversions", "Success-failure pairs in the wrong order, by shortlist."
        if within := _each(audits, "correlations"):
            pooled = {
                a["name"]: {e["shortlist"]: e["pooled"] for e in a["correlations"]
                            if e["pooled"] is not None}
                for a in audits
            }  # fmt: skip
            correlation_curves(folder / "audit-correlations", within, pooled)
            yield "audit-correlations", "Predicted against realised latent cost, by shortlist."


def _each(audits: Audits, part: str) -> dict[str, dict[int, Any]]:
    """Model -> shortlist -> values of the starts that count, where every model has some."""
    found = {
        a["name"]: {e["shortlist"]: [x for x in e["each"] if x is not None] for e in a[part]}
        for a in audits
    }
    known = set.intersection(*({k for k, each in of.items() if each} for of in found.values()))
    if not known:
        return {}
    return {n: {k: _numbers(x) for k, x in of.items() if k in known} for n, of in found.items()}


def _numbers(values: Sequence[float | None]) -> Any:
    return np.array([np.nan if x is None else x for x in values], float)
