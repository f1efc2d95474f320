"""Tables, figures, page and verdict of a study of cases, from the files its stages left."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from djepa.errors import DjepaError
from djepa.evaluate.intervals import rate_of
from djepa.evaluate.paired import Paired
from djepa.evaluate.rows import Row, read_rows, successes
from djepa.files import write_atomically
from djepa.report.cases import ALL, cost_by_case, pair_of, paired_by_case, success_by_case
from djepa.report.figures import success_bars
from djepa.report.page import Figure, Headline, Page, Section, write_page
from djepa.report.page import Table as Shown
from djepa.report.shifts import films
from djepa.report.tables import Table, write_table

if TYPE_CHECKING:
    from djepa.studies.cases import CaseStudy, Design

PANELS = 4  # cases that fit beside each other
FILM = 112  # pixels


def rows_in(folder: Path, cases: Sequence[str]) -> dict[str, list[Row]]:
    """Case -> rows, of those that were decided."""
    files = {case: folder / "rows" / f"{case}.csv.gz" for case in cases}
    found = {case: read_rows(file) for case, file in files.items() if file.exists()}
    if not found:
        raise DjepaError(f"{folder} holds no rows yet: no case was decided.")
    return found


def case_rows(study: "CaseStudy") -> dict[str, list[Row]]:
    """Case -> rows of a run."""
    return rows_in(study.out, [case.name for case in study.cases("confirmation")])


def measures(folder: Path) -> dict[str, Any]:
    """What a study measured beside choices."""
    path = folder / "measures.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def case_tables(design: "Design", rows: Mapping[str, Sequence[Row]]) -> list[Table]:
    """Success, cost, and pairs of what matters."""
    rule = next(iter(rows.values()))[0].rule
    pooled = design.units() if design.together else {}
    once = {case: of for case, of in rows.items() if of[0].rule == rule}  # others: the same costs
    factor, unit = design.unit or (1.0, f"In units of the threshold of {rule}; below 1 is solved.")
    found = [
        success_by_case(rows, design.methods, design.paper, pooled),
        cost_by_case(once, design.methods, unit, factor, design.paper_cost),
        paired_by_case(rows, design.ours, design.against, design.clustered, pooled),
    ]
    if any(row.method == "relational" for of in rows.values() for row in of):
        others = [name for name in design.against if name != "mixture"]
        found.append(paired_by_case(rows, "relational", others, design.clustered, pooled))
    return found


def write_case_tables(study: "CaseStudy") -> None:
    """As CSV, Markdown and LaTeX; the last file is the list of them."""
    folder = study.out / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    tables = case_tables(study.design, case_rows(study)) + measured_tables(study.out)
    for table in tables:
        write_table(folder, table)
    listed = "\n".join(f"- [{table.title}]({table.name}.md)" for table in tables) + "\n"
    write_atomically(folder / "README.md", listed.encode())


def draw_cases(study: "CaseStudy") -> None:
    """All figures; the last file is the list of them."""
    folder = study.out / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    rows, made = case_rows(study), list[Path]()
    if len(rows) <= PANELS:
        panels = {
            case: {n: (int(hits.sum()), len(hits)) for n, hits in successes(of).items()}
            for case, of in rows.items()
        }
        run = {name for of in panels.values() for name in of}
        groups = {"": [name for name in study.design.methods if name in run]}
        paper: dict[str, dict[str, float]] = {}
        for (case, method), value in study.design.paper.items():
            paper.setdefault(case, {})[method] = value
        made += success_bars(folder / "success", panels, groups, paper)
    if study.design.figures is not None:
        made += study.design.figures(study)
    made += _films(study, rows)
    names = sorted({path.stem for path in made})
    listed = "".join(f"![{name}]({name}.png)\n\n" for name in names)
    write_atomically(folder / "README.md", listed.encode())


def verdict(design: "Design", rows: Mapping[str, Sequence[Row]]) -> list[str]:
    """Plain sentences: ours and the published operator against the controls."""
    lines = []
    for unit, cases in design.units().items():
        some = {case: rows[case] for case in cases if case in rows}
        for ours in dict.fromkeys((design.ours, "relational")):
            pairs = {o: pair_of(some, ours, o, ALL, design.clustered) for o in design.against}
            parts = [f"{_verb(p)} {o} ({_points(p)})" for o, p in pairs.items() if p is not None]
            if parts:
                name = ours if ours == design.ours else "the published relational operator"
                lines.append(f"**{unit}**: {name} " + ", ".join(parts) + ".")
    return lines


def write_case_report(study: "CaseStudy") -> None:
    """One file, offline."""
    design, rows = study.design, case_rows(study)
    tables = case_tables(design, rows) + measured_tables(study.out)
    figures = [
        Figure(path.stem.replace("-", " ").capitalize(), "", path, path.with_suffix(".csv"))
        for path in sorted((study.out / "figures").glob("*.svg"))
    ]
    banks = ", ".join(f"{case} {of[0].bank}" for case, of in rows.items())
    page = Page(
        title=design.title,
        subtitle=f"The study {design.name}, preset {study.preset}: every candidate executed.",
        headlines=tuple(_headlines(design, rows)),
        sections=(
            Section("What was asked", design.question),
            Section("What was found", tuple(verdict(design, rows))),
            Section("Every number", (), tuple(_shown(table) for table in tables)),
            Section("Figures", (), (), tuple(figures)),
        ),
        inspector=_inspected(study) or None,
        footer=f"djepa study {design.name} --preset {study.preset} --seed {study.place.seed}. "
        f"Banks: {banks}. Success: {', '.join(dict.fromkeys(of[0].rule for of in rows.values()))}.",
    )
    write_page(study.out / "report.html", page)


def _inspected(study: "CaseStudy") -> list[dict[str, Any]]:
    files = [study.out / "inspector" / f"{c.name}.json" for c in study.cases("confirmation")]
    return [json.loads(file.read_text()) for file in files if file.exists()]


def _headlines(design: "Design", rows: Mapping[str, Sequence[Row]]) -> Iterable[Headline]:
    best = design.against[0]
    for case, of in list(rows.items())[:PANELS]:
        rate = rate_of(successes(of)[design.ours])
        low, high = (100 * end for end in rate.interval)
        p = pair_of(rows, design.ours, best, case)
        yield Headline(
            f"{design.ours}, {case}",
            f"{100 * rate.share:.1f} %",
            f"{low:.1f} to {high:.1f}, {rate.of} starts",
            "" if p is None else f"{_points(p)} over {best}",
        )


def _films(study: "CaseStudy", rows: Mapping[str, Sequence[Row]]) -> list[Path]:
    """The first start, if there is one, where the native choice fails and ours succeeds."""
    design, made = study.design, list[Path]()
    names = (next(iter(design.natives)), design.ours)
    for case in study.cases("confirmation")[:PANELS]:
        picks = [{r.start: r for r in rows[case.name] if r.method == name} for name in names]
        wanted = [s for s in sorted(picks[0]) if not picks[0][s].success and picks[1][s].success]
        if not wanted:
            continue
        bank, start = study.bank("confirmation", case), wanted[0]
        world, d, ids = bank.world(), bank.decisions, bank.decisions.candidate_ids[start].tolist()
        shown, goal = {}, d.goal[start]
        for name, of in zip(names, picks, strict=True):
            at = ids.index(of[start].chosen)
            path = np.concatenate([d.state[start][None], bank.outcomes.states[start, at]])
            shown[name] = list(world.render(path, FILM, goal=goal))
        stride = bank.config.task.stride
        times = [f"t + {stride * i}" if i else "t" for i in range(len(path))]
        last = world.render(goal[None], FILM)[0]
        outcome = {name: of[start].success for name, of in zip(names, picks, strict=True)}
        stem = study.out / "figures" / f"films-{case.name}"
        made += films(stem, shown, times, last, outcome)
    return made


def measured_tables(folder: Path) -> list[Table]:
    """Tables that a study's own measures hold."""
    held = measures(folder).get("tables", [])
    return [
        Table(
            name=entry["name"],
            title=entry["title"],
            columns=tuple(entry["columns"]),
            rows=tuple(tuple(row) for row in entry["rows"]),
            note=entry["note"],
        )
        for entry in held
    ]


def _shown(table: Table) -> Shown:
    return Shown(table.title, table.note, table.columns, table.rows)


def _verb(p: Paired) -> str:
    low, high = p.difference_interval
    return "beats" if low > 0 else "loses to" if high < 0 else "cannot be told from"


def _points(p: Paired) -> str:
    low, high = (100 * end for end in p.difference_interval)
    return f"{100 * p.difference:+.1f} points, {low:+.1f} to {high:+.1f}"
