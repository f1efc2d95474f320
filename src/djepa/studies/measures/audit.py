"""The decision-local audit of every geometry, on starts of its own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from djepa.align.registry import GEOMETRIES
from djepa.audit.bank import audit_bank
from djepa.evaluate import paper
from djepa.report.curves import correlation_curves
from djepa.report.figures import gap_strip, inversion_bars
from djepa.report.tables import Table
from djepa.studies.design import Case, Measure
from djepa.studies.results import Results
from djepa.studies.stages import Say
from djepa.studies.study import Study

Audits = Sequence[Mapping[str, Any]]
Printed = Callable[..., paper.Figure | None]  # method, quantity, candidates -> the paper's figure
WAYS = ("within", "pooled")


def audit(*cases: str) -> Measure:
    """The audit on the audit starts of these cases."""

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
        figures=lambda results, folder: audit_figures(results, cases, folder),
        only=cases,
    )


def _tables(results: Results) -> Iterator[Table]:
    for case, audits in results.measured("audit").items():
        printed = partial(results.printed, case, population="audit")
        yield _gaps(case, audits, printed)
        yield _by_shortlist(
            case,
            audits,
            printed,
            "inversions",
            "Success-failure pairs in the wrong order, {} pools, %",
            "Mean share of pairs in the wrong order among the candidates with the lowest cost; in "
            "brackets the starts that have both outcomes there.",
        )
        yield _by_shortlist(
            case,
            audits,
            printed,
            "correlations",
            "Rank correlation of predicted and realised cost, {} pools",
            "Spearman, mean over starts; in brackets over all candidates of all starts.",
        )


def _shown(audit: Mapping[str, Any]) -> str:
    name = str(audit["name"])
    return GEOMETRIES.get(name, name)


def _gaps(case: str, audits: Audits, printed: Printed) -> Table:
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
        if theirs := printed(f"native {audit['name']}", quantity="starts with a positive gap"):
            share = f"{theirs.value:.0f} ({100 * theirs.value / theirs.starts:.1f} %)"
            rows.append((f"{name}, paper", str(theirs.starts), "", "", share))
    columns = ("model", "starts", "median gap", "quartiles", "starts that prefer a failure")
    note = "(d_s - d_f) / (d_s + d_f) of the nearest success and the nearest failure."
    title = f"Normalised distance gaps, {case} pools"
    return Table(f"audit-gap-{case}", title, columns, tuple(rows), note)


def _by_shortlist(
    case: str, audits: Audits, printed: Printed, part: str, title: str, note: str
) -> Table:
    def cell(e: Mapping[str, Any]) -> str:
        if part == "inversions":
            return "" if e["mean"] is None else f"{100 * e['mean']:.1f} ({e['starts']})"
        return "" if e["within"] is None else f"{e['within']:.3f} ({e['pooled']:.3f})"

    def theirs(method: str, k: int) -> str:
        if part == "inversions":
            found = printed(method, quantity="inverted pairs", candidates=k)
            return "" if found is None else f"{found.value:.1f} ({found.starts})"
        of = [printed(method, quantity=f"Spearman, {x}", candidates=k) for x in WAYS]
        within, pooled = ("" if x is None else f"{x.value:.3f}" for x in of)
        return f"{within} ({pooled})" if within else ""

    sizes, rows = [entry["shortlist"] for entry in audits[0][part]], []
    for a in audits:
        rows.append((_shown(a), *(cell(entry) for entry in a[part])))
        if any(cells := [theirs(f"native {a['name']}", k) for k in sizes]):
            rows.append((f"{_shown(a)}, paper", *cells))
    columns = ("model", *(f"best {k}" for k in sizes))
    return Table(f"audit-{part}-{case}", title.format(case), columns, tuple(rows), note)


def audit_figures(
    results: Results, cases: Sequence[str], folder: Path
) -> Iterator[tuple[str, str]]:
    """Draw the figures for which the stored audits have numbers; stem and caption of each."""
    for case, stored in results.measured("audit").items():
        if case not in cases:
            continue
        audits = [{**a, "name": _shown(a)} for a in stored]
        gaps = {a["name"]: _numbers(a["gap"]["each"]) for a in audits if a["gap"]}
        if some := {name: each for name, each in gaps.items() if np.isfinite(each).any()}:
            gap_strip(folder / f"audit-gap-{case}", some)
            text = "Every audit start; right of zero a failure is predicted nearest."
            yield f"audit-gap-{case}", text
        if inversions := _each(audits, "inversions"):
            inversion_bars(folder / f"audit-inversions-{case}", inversions)
            text = "Success-failure pairs in the wrong order, by shortlist."
            yield f"audit-inversions-{case}", text
        if within := _each(audits, "correlations"):
            pooled = {
                a["name"]: {e["shortlist"]: e["pooled"] for e in a["correlations"]
                            if e["pooled"] is not None}
                for a in audits
            }  # fmt: skip
            correlation_curves(folder / f"audit-correlations-{case}", within, pooled)
            text = "Predicted against realised latent cost, by shortlist."
            yield f"audit-correlations-{case}", text


def _each(audits: Audits, part: str) -> dict[str, dict[int, Any]]:
    """Model -> shortlist -> values of starts with both outcomes, if every model has some."""
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
