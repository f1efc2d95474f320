"""Tables, figures and the page of a push study, from the files its stages left and nothing else."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from djepa.errors import DjepaError
from djepa.evaluate.intervals import Rate, rate_of
from djepa.evaluate.rows import Row, read_rows, successes
from djepa.files import write_atomically
from djepa.report.results import (
    Deployment,
    ablation_table,
    across_table,
    budget_table,
    deployment_table,
    paired_table,
    success_table,
)
from djepa.report.tables import Table, write_table

METHODS = (
    "random",
    "consensus lewm",
    "consensus tdjepa",
    "native lewm",
    "native tdjepa",
    "native jepawm",
    "native dinowm",
    "fine-tuned",
    "plasticity",
    "fusion, two",
    "fusion, four",
    "consensus + fusion, two",
    "consensus + fusion, four",
    "pointwise",
    "relational",
    "relational, fitted here",
    "composition",
    "multi-geometry",
    "four-fused",
    "log costs",
    "log mixture",
    "D-JEPA",
    "realised lewm",
    "oracle",
)
SHORT = (
    "random",
    "consensus tdjepa",
    "native lewm",
    "native tdjepa",
    "native jepawm",
    "native dinowm",
    "fusion, two",
    "relational",
    "composition",
    "fusion, four",
    "consensus + fusion, four",
    "log costs",
    "log mixture",
    "D-JEPA",
    "oracle",
)
REFERENCES = (
    "native lewm",
    "native tdjepa",
    "native jepawm",
    "fusion, two",
    "fusion, four",
    "consensus + fusion, four",
    "log costs",
    "log mixture",
)
BLOCKS = (
    (
        "Alignment mechanisms",
        "native tdjepa",
        ("native tdjepa", "fine-tuned", "plasticity", "pointwise", "relational", "composition"),
    ),
    (
        "Predictive sources",
        "lewm descriptors",
        ("lewm descriptors", "temporal descriptors", "relational"),
    ),
    (
        "More geometries",
        "native jepawm",
        (
            "native dinowm",
            "native jepawm",
            "fusion, four",
            "multi-geometry",
            "log mixture",
            "D-JEPA",
        ),
    ),
)


@dataclass(frozen=True)
class Results:
    """What the stages of a study left in its folder."""

    out: Path

    @cached_property
    def rows(self) -> dict[str, list[Row]]:
        """Kind of pools -> rows."""
        kinds = ("reference", "decoy", "planner")
        files = {kind: self.out / "rows" / f"{kind}.csv.gz" for kind in kinds}
        found = {kind: read_rows(file) for kind, file in files.items() if file.exists()}
        if not found:
            raise DjepaError(f"{self.out} holds no rows yet: no kind of pools was decided.")
        return found

    @cached_property
    def study(self) -> dict[str, Any]:
        """Preset, seed and sizes."""
        found: dict[str, Any] | None = self.held("study")
        if found is None:
            raise DjepaError(f"{self.out} belongs to no study: it has no study.json.")
        return found

    def held(self, name: str) -> Any:
        """A JSON file of the folder, or None."""
        path = self.out / f"{name}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def present(self, kind: str, methods: Sequence[str]) -> list[str]:
        """Those of the methods that were run on these pools."""
        run = {row.method for row in self.rows[kind]}
        return [method for method in methods if method in run]

    def budget(self, kind: str) -> dict[str, dict[int, list[float]]]:
        """Method -> candidates -> success by seed."""
        held = self.held(f"budget/{kind}") or {}
        return {m: {int(k): v for k, v in sorted(of.items())} for m, of in held.items()}


def make_tables(results: Results) -> list[Table]:
    """Every table of the study."""
    found = [_across(results)]
    for kind, rows in results.rows.items():
        found.append(success_table(rows, results.present(kind, METHODS)))
        found.append(paired_table(rows, "D-JEPA", results.present(kind, REFERENCES)))
        found.append(paired_table(rows, "relational", results.present(kind, REFERENCES[:5])))
        blocks = [(t, r, results.present(kind, m)) for t, r, m in BLOCKS]
        found.append(ablation_table(rows, [b for b in blocks if b[1] in b[2]]))
        if budget := results.budget(kind):
            found.append(budget_table(budget, kind))
    if entries := _deployments(results):
        found.append(deployment_table(entries, "reference"))
    if audits := results.held("audit"):
        found += [_gap_table(audits), _inversion_table(audits), _correlation_table(audits)]
    return found


def short_table(results: Results) -> Table:
    """The methods that matter most, on all starts of every kind of pools."""
    kinds = {kind: successes(rows) for kind, rows in results.rows.items()}
    rows = []
    for method in SHORT:
        cells = [
            rate_of(solved[method]).percent(interval=True) if method in solved else ""
            for solved in kinds.values()
        ]
        rows.append((method, *cells))
    heads = [f"{kind}, {len(solved['oracle'])} starts" for kind, solved in kinds.items()]
    title = "Success by kind of pools (95 % interval)"
    return Table("short", title, ("method", *heads), tuple(rows))


def write_tables(results: Results) -> None:
    """As CSV, Markdown and LaTeX; the last file is the list of them."""
    folder = results.out / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    tables = make_tables(results)
    for table in tables:
        write_table(folder, table)
    listed = "\n".join(f"- [{table.title}]({table.name}.md)" for table in tables) + "\n"
    write_atomically(folder / "README.md", listed.encode())


def _across(results: Results) -> Table:
    run = {row.method for rows in results.rows.values() for row in rows}
    return across_table(results.rows, [m for m in METHODS if m in run])


def _deployments(results: Results) -> list[Deployment]:
    held, lifts = results.held("deployment"), results.held("lifting/reference") or {}
    if not held or "reference" not in results.rows:
        return []
    solved = successes(results.rows["reference"])
    found = []
    for label, entry in held.items():
        hits, lift = solved[entry["method"]], lifts.get(entry["method"])
        back = lift is not None and label.endswith("lifted")
        found.append(
            Deployment(
                label,
                Rate(int(hits.sum()), len(hits)),
                float(np.median(entry["milliseconds"])),
                entry["files"],
                Rate(lift["ranks_recovered"], lift["ranks"]) if back and lift else None,
                Rate(lift["choices_recovered"], lift["starts"]) if back and lift else None,
            )
        )
    return found


def _gap_table(audits: Sequence[Mapping[str, Any]]) -> Table:
    rows = []
    for audit in audits:
        gap = audit["gap"]
        if gap is None or gap["median"] is None:  # no distances, or no start with both outcomes
            rows.append((audit["name"], "0", "", "", ""))
            continue
        low, high = gap["quartiles"]
        positive = gap["positive"]
        rows.append(
            (
                audit["name"],
                str(positive["of"]),
                f"{gap['median']:+.3f}",
                f"{low:+.3f} to {high:+.3f}",
                f"{positive['hits']} ({100 * positive['share']:.1f} %)",
            )
        )
    columns = ("model", "starts", "median gap", "quartiles", "starts that prefer a failure")
    note = "(d_s - d_f) / (d_s + d_f) of the nearest success and the nearest failure."
    return Table("audit-gap", "Normalised distance gaps", columns, tuple(rows), note)


def _inversion_table(audits: Sequence[Mapping[str, Any]]) -> Table:
    sizes = [entry["shortlist"] for entry in audits[0]["inversions"]]
    rows = tuple(
        (
            audit["name"],
            *(
                "" if e["mean"] is None else f"{100 * e['mean']:.1f} ({e['starts']})"
                for e in audit["inversions"]
            ),
        )
        for audit in audits
    )
    columns = ("model", *(f"best {k}" for k in sizes))
    note = "Mean share of success-failure pairs in the wrong order, % (starts with both)."
    return Table("audit-inversions", "Pair inversions in shortlists", columns, rows, note)


def _correlation_table(audits: Sequence[Mapping[str, Any]]) -> Table:
    sizes = [entry["shortlist"] for entry in audits[0]["correlations"]]
    rows = tuple(
        (
            audit["name"],
            how,
            *("" if e[how] is None else f"{e[how]:.3f}" for e in audit["correlations"]),
        )
        for audit in audits
        for how in ("within", "pooled")
    )
    columns = ("model", "Spearman", *(f"best {k}" for k in sizes))
    note = "Predicted against realised latent cost, within starts or over all of them."
    return Table("audit-correlations", "Decision-local ranking", columns, rows, note)
