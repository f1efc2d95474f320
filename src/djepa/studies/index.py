"""A page about all studies that were run."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from djepa.align.registry import label
from djepa.evaluate.rows import successes
from djepa.report.page import Page, Section, write_page
from djepa.report.results import pair_of
from djepa.report.tables import Table
from djepa.studies.findings import findings
from djepa.studies.names import APART, STUDIES
from djepa.studies.results import Results, load_results


def write_index(out: Path) -> Path:
    """Write a page with the findings of every study in the folder and links to their pages."""
    names = (*STUDIES, *APART)
    found = {n: load_results(out / n) for n in names if (out / n / "report.html").exists()}
    sections = [Section("At a glance", (), (across_studies(found),))] if found else []
    for name, results in found.items():
        where = f"Preset {results.about['preset']}: [tables and figures]({name}/report.html)."
        sections.append(Section(f"{name}: {results.design.title}", (*findings(results), where)))
    page = Page(
        title="All studies",
        subtitle="What alignment gains in each world, with its 95 % interval.",
        sections=tuple(sections),
        footer="djepa study all",
    )
    return write_page(out / "index.html", page)


def across_studies(found: Mapping[str, Results]) -> Table:
    """Success of the main methods in every study, cases of one group counted together."""
    lines = []
    for name, results in found.items():
        d, rows = results.design, results.rows
        if d.decide is not None or d.graded:
            continue  # neither episodes nor a mean quality are shares of starts
        for unit, cases in d.units().items():
            some = {case: rows[case] for case in cases if case in rows}
            solved = [successes(of) for of in some.values()]
            if not solved:
                continue
            shown = (*d.primary, d.published, d.ours, "oracle")
            hits = {m: np.concatenate([of[m] for of in solved]) for m in shown}
            cells = [f"{100 * hits[m].mean():.1f}" for m in shown]
            for other in d.primary[1:]:
                p = pair_of(some, d.ours, other, d.clustered)
                assert p is not None  # every study runs both
                cells.append(p.points)
            lines.append((name, unit, str(len(hits["oracle"])), *cells))
    mixed = ("fusion", "fusion + pool density")
    methods = ("best geometry", *mixed, label("relational"), label("D-JEPA"), label("oracle"))
    columns = ("study", "case", "starts", *methods, *(f"gain over {name}" for name in mixed))
    note = (
        "Success, %. Each study declares its best geometry beforehand. The gains are those of "
        "D-JEPA: points, with 95 % intervals from resampling whole starts."
    )
    return Table("studies", "Success in every study", columns, tuple(lines), note)
