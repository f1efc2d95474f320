"""The studies there are, and one page over all that were run."""

import json
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from djepa.evaluate.rows import Row, successes
from djepa.report.cases import ALL, pair_of
from djepa.report.page import Page, Section, write_page
from djepa.report.page import Table as Shown
from djepa.report.tables import Table
from djepa.studies.case_pages import rows_in
from djepa.studies.case_pages import verdict as judged

if TYPE_CHECKING:
    from djepa.studies.cases import Design


def _design(module: str, name: str) -> Callable[[], "Design"]:
    """Imported when it is asked for."""

    def find() -> "Design":
        found: Design = getattr(import_module(f"djepa.studies.{module}"), name)
        return found

    return find


DESIGNS = {
    "reacher": _design("reacher", "REACHER"),
    "granular": _design("granular", "GRANULAR"),
    "shapes": _design("shifts", "SHAPES"),
    "appearance": _design("shifts", "APPEARANCE"),
}
MIXED = ("fusion", "consensus + fusion")  # in the order in which every recipe has them
COLUMNS = ("native", *MIXED, "relational", "D-JEPA", "oracle")


def write_index(out: Path) -> Path:
    """A page that says what every study in the folder found, and where its own page is."""
    sections = []
    for name in ("pusht", *DESIGNS):
        folder = out / name
        if not (folder / "report.html").exists():
            continue
        preset = json.loads((folder / "study.json").read_text())["preset"]
        title, lines = _found(name, folder)
        where = f"Preset {preset}: [tables, figures and all numbers]({name}/report.html)."
        sections.append(Section(f"{name}: {title}", (*lines, where)))
    others = {name: out / name for name in DESIGNS if (out / name / "report.html").exists()}
    if others:
        t = across_studies(others)
        shown = Shown(t.title, t.note, t.columns, t.rows)
        sections.insert(0, Section("At a glance", (), (shown,)))
    page = Page(
        title="All studies",
        subtitle="What alignment gains in each world, with its interval.",
        sections=tuple(sections),
        footer="djepa study all",
    )
    return write_page(out / "index.html", page)


def across_studies(folders: Mapping[str, Path]) -> Table:
    """What the methods reach in every study, cases that count together as one."""
    lines = []
    for name, folder in folders.items():
        design = DESIGNS[name]()
        rows = rows_in(folder, [case.name for case in design.cases("confirmation", 1000, 0)])
        roles = dict(zip(MIXED, design.recipe.mixtures, strict=True))
        roles |= {"native": next(iter(design.natives)), "relational": "relational"}
        roles |= {"D-JEPA": design.ours, "oracle": "oracle"}
        for unit, cases in design.units().items():
            if solved := [successes(rows[case]) for case in cases if case in rows]:
                hits = {role: np.concatenate([of[m] for of in solved]) for role, m in roles.items()}
                cells = [f"{100 * hits[role].mean():.1f}" for role in COLUMNS]
                some = {case: rows[case] for case in cases if case in rows}
                cells += [_gain(design, some, roles[role]) for role in MIXED]
                lines.append((name, unit, str(len(hits["oracle"])), *cells))
    columns = ("study", "case", "starts", *COLUMNS, *(f"over {role}" for role in MIXED))
    note = (
        "Success, %; native: the first geometry's own choice. Last, what D-JEPA gains: points, "
        "with 95 % intervals from resampling whole starts."
    )
    return Table("studies", "What methods reach", columns, tuple(lines), note)


def _gain(design: "Design", rows: Mapping[str, Sequence[Row]], other: str) -> str:
    """Ours over another method, of the cases together."""
    p = pair_of(rows, design.ours, other, ALL, design.clustered)
    assert p is not None  # every study runs both
    low, high = (100 * end for end in p.difference_interval)
    return f"{100 * p.difference:+.1f} ({low:+.1f} to {high:+.1f})"


def _found(name: str, folder: Path) -> tuple[str, Sequence[str]]:
    """Title and verdict of one study."""
    if name == "pusht":
        from djepa.studies.pages import verdict
        from djepa.studies.write import Results

        return "Does alignment choose better?", verdict(Results(folder))
    design = DESIGNS[name]()
    cases = [case.name for case in design.cases("confirmation", 1000, 0)]
    return design.title, judged(design, rows_in(folder, cases))
