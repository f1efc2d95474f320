"""The paper's main table from stored rows: every method, every task, the paper's cell beside ours.

Nothing is run here. A cell is computed from the rows of one study; if no study has rows of a method
on those pools, the cell is listed as missing, with the reason and the command that makes it. Rows
of the studies main-pusht, main-reacher and main-granular, where all methods decided on the same
starts, have priority; otherwise rows of earlier studies are used and marked.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from djepa.align.presets import FOUR
from djepa.align.registry import label
from djepa.errors import DjepaError
from djepa.evaluate import paper
from djepa.evaluate.intervals import Rate
from djepa.evaluate.rows import Row
from djepa.files import naming
from djepa.report.page import Page, Section, write_page
from djepa.report.tables import Table, write_table
from djepa.studies.adapting import ADAPTED
from djepa.studies.main import EARLIER, OURS, named, trained
from djepa.studies.results import Results, load_results
from djepa.worlds.chamfer import MAIN

TABLE = "table"
METHODS = (
    *(f"native {name}" for name in ("jepawm", "dinowm", "lewm", "tdjepa")),
    *("PEGrad", "Var-JEPA", "conflict-safe", "expected value", "CVaR"),
    *("plasticity", "fusion, four", "relational", "composition", OURS),
)
MARKS = "¹²³⁴⁵⁶⁷⁸⁹"


@dataclass(frozen=True)
class Source:
    """A study and a view that may have rows for a column."""

    study: str
    view: str  # a case, or its eligible starts
    first: int = 0  # only its first starts, this many; 0: all


@dataclass(frozen=True)
class Column:
    """One column of the paper's table."""

    title: str
    task: str
    sources: tuple[Source, ...]  # by priority: the first that has rows is used
    pools: str
    case: str = ""
    population: str = "confirmation"
    factor: float = 0.0  # of costs, if the column is one of costs

    def theirs(self, method: str) -> str:
        """The paper's cell."""
        quantity = "cost" if self.factor else "success"
        study = "granular" if self.task == "fine" else self.task
        key = (study, self.population, self.pools, method, self.case, quantity)
        found = paper.figure(*key)
        return "" if found is None else f"{found.value:.{3 if self.factor else 2}f}"


def _grains(task: str, *sources: str) -> tuple[Column, ...]:
    """Chamfer distance, main and strict success; the paper has one kind of grains."""
    main, strict = (tuple(Source(name, view) for name in sources) for view in ("main", "strict"))
    return (
        Column(f"{task}, Chamfer", task, main, "replay", factor=MAIN),
        Column(f"{task}, main", task, main, "replay", "main"),
        Column(f"{task}, strict", task, strict, "replay", "strict"),
    )


COLUMNS = (
    Column(
        "PushT",
        "pusht",
        (Source("main-pusht", "published, eligible"), Source("pusht", "published, eligible")),
        paper.RETAINED,
    ),
    Column(
        "Reacher",
        "reacher",
        (Source("main-reacher", "reference"), Source("reacher", "reference")),
        "reference-control",
    ),
    *_grains("granular", "main-granular", "granular"),
    Column(
        "PushT, earlier",
        "pusht",
        (Source("main-pusht", EARLIER), Source("pusht", "published", 32)),
        paper.RETAINED,
        population=EARLIER,
    ),
)
FINE = _grains("fine", "main-fine")  # 200 grains, goals of two kinds: a second case


@dataclass(frozen=True)
class MainTable:
    """The table over stored results of any number of studies."""

    found: tuple[Results, ...]

    def source(self, of: Source) -> Results | None:
        """The run of a study with the most starts of that view."""
        runs = [r for r in self.found if r.design.name == of.study and of.view in r.views]
        return max(runs, key=lambda r: len(self._rows(of, r)), default=None)

    def rows(self, of: Source, method: str) -> list[Row]:
        """Rows of one method; empty if it was not run."""
        if (run := self.source(of)) is None:
            return []
        name = run.design.paper_names.get(method, method)
        return [row for row in self._rows(of, run) if row.method == name]

    def _rows(self, of: Source, run: Results) -> list[Row]:
        found = [row for rows in run.views[of.view].values() for row in rows]
        return [row for row in found if row.start < of.first] if of.first else found

    @cached_property
    def used(self) -> list[Source]:
        """Sources of all cells, in order; the position of a source is its mark."""
        cells = [self.cell(c, m)[1] for c in (*COLUMNS, *FINE) for m in METHODS]
        return list(dict.fromkeys(of for of in cells if of is not None))

    def cell(self, column: Column, method: str) -> tuple[str, Source | None]:
        """Our cell, and its source."""
        for of in column.sources:
            if rows := self.rows(of, method):
                return _counted(rows, column.factor), of
        return "", None

    def main(self, shown: Sequence[Column] = COLUMNS) -> Table:
        """All rows and some columns, the paper's cell beside each."""
        columns, lines = ["method"], []
        for column in shown:
            columns += [column.title, f"{column.title}, paper"]
        for method in METHODS:
            cells = [label(method)]
            for column in shown:
                ours, of = self.cell(column, method)
                mark = "" if of is None else f" {MARKS[self.used.index(of) % len(MARKS)]}"
                absent = "missing" if self.lacks(column, method) else ""
                cells += [f"{ours}{mark}" or absent, column.theirs(method)]
            lines.append(tuple(cells))
        note = (
            "Success, % (95 % interval), and mean Chamfer distance. Cells with one mark are of the "
            "same starts. The paper's figures are of its own starts and weights; its row D-JEPA is "
            "with composition on PushT and without it elsewhere."
        )
        if shown == FINE:
            kept = tuple(line for line in lines if any(line[1:]))
            title = "The granular columns with 200 grains and goals of two kinds"
            return Table("main-fine", title, tuple(columns), kept, note)
        return Table("main", "The main table", tuple(columns), tuple(lines), note)

    def sources(self) -> Table:
        """Table of the marks of sources."""
        lines = []
        for mark, of in zip(MARKS, self.used, strict=False):
            run = self.source(of)
            assert run is not None
            rows = self._rows(of, run)
            starts = len({row.start for row in rows})
            preset, first = str(run.about.get("preset", "")), rows[0]
            lines.append((mark, of.study, preset, of.view, str(starts), first.rule, first.bank))
        columns = ("mark", "study", "preset", "starts of", "starts", "rule", "bank")
        return Table("main-sources", "Where the cells are from", columns, tuple(lines))

    def lacks(self, column: Column, method: str) -> bool:
        """Whether a cell of the paper, or of our methods, has no rows."""
        wanted = method == OURS or bool(column.theirs(method))
        return wanted and not self.cell(column, method)[0]

    def missing(self) -> Table:
        """Table of cells without rows: reason, and command that makes them."""
        found: dict[tuple[str, str, str], tuple[list[str], list[str]]] = {}
        for column in (*COLUMNS, *FINE):
            for method in METHODS:
                if self.lacks(column, method):
                    of = found.setdefault((column.task, *_reason(column, method)), ([], []))
                    of[0].append(column.title)
                    of[1].append(label(method))
        lines = tuple(
            (*("; ".join(dict.fromkeys(names)) for names in of), why, todo)
            for (_, why, todo), of in found.items()
        )
        note = "" if lines else "None is missing."
        columns = ("columns", "methods", "why", "what makes them")
        return Table("main-missing", "Missing cells", columns, lines, note)

    def tables(self) -> tuple[Table, ...]:
        """All four tables."""
        return self.main(), self.main(FINE), self.sources(), self.missing()


def find_results(places: Sequence[Path]) -> tuple[Results, ...]:
    """Results of every study in these folders or one folder below, in order."""
    files = [f for place in places for how in ("study.json", "*/study.json", "*/*/study.json")
             for f in sorted(place.glob(how))]  # fmt: skip
    found = [load_results(file.parent) for file in files if any(file.parent.glob("rows/*.csv.gz"))]
    if not found:
        looked = ", ".join(map(str, places))
        raise DjepaError(f"There are no rows of a study in {looked}. Run one: djepa study pusht")
    return tuple(found)


def write_main(out: Path, places: Sequence[Path]) -> MainTable:
    """Write the tables as files, and one page."""
    found = MainTable(find_results(places))
    with naming(out):
        (out / "tables").mkdir(parents=True, exist_ok=True)
    for table in found.tables():
        write_table(out / "tables", table)
    page = Page(
        title="The main table",
        subtitle="Every method on every task of the paper, its figures beside ours.",
        sections=tuple(Section(t.title, (), (t,)) for t in found.tables()),
        footer="djepa study table",
    )
    write_page(out / "report.html", page)
    return found


def _counted(rows: Sequence[Row], factor: float) -> str:
    if factor:
        return f"{factor * np.mean([row.cost for row in rows]):.3f}"
    return Rate(sum(row.success for row in rows), len(rows)).percent(interval=True)


def _reason(column: Column, method: str) -> tuple[str, str]:
    """Why a cell has no rows, and the command that makes them."""
    run = f"djepa study main-{column.task} --preset paper"
    there = trained(column.task)
    absent = [name for name in _needed(method) if name not in there]
    if absent:
        names = [named(column.task, name) for name in absent]
        world = {"pusht": "push", "fine": "granular"}.get(column.task, column.task)
        commands = [f"djepa train {world} --geometry {name} --out weights/{of}"
                    for name, of in zip(absent, names, strict=True)]  # fmt: skip
        return f"no weights {', '.join(names)}", "; ".join([*commands, run])
    return "no rows yet", run


def _needed(method: str) -> Iterator[str]:
    """Geometries that a method uses."""
    if method.startswith("native "):
        yield method.removeprefix("native ")
    elif method in ADAPTED:
        yield "tdjepa"
    elif method == "fusion, four":
        yield from FOUR
