"""The studies there are, and one page over all that were run."""

import json
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from djepa.report.page import Page, Section, write_page

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
    page = Page(
        title="All studies",
        subtitle="What alignment gains in each world, with its interval.",
        sections=tuple(sections),
        footer="djepa study all",
    )
    return write_page(out / "index.html", page)


def _found(name: str, folder: Path) -> tuple[str, Sequence[str]]:
    """Title and verdict of one study."""
    if name == "pusht":
        from djepa.studies.pages import verdict
        from djepa.studies.write import Results

        return "Does alignment choose better?", verdict(Results(folder))
    from djepa.studies.case_pages import rows_in
    from djepa.studies.case_pages import verdict as judged

    design = DESIGNS[name]()
    cases = [case.name for case in design.cases("confirmation", 1000, 0)]
    return design.title, judged(design, rows_in(folder, cases))
