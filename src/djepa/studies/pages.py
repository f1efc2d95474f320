"""Figures and the page of a study, made only from the files of its stages."""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from djepa.align.registry import METHODS, label, slug
from djepa.evaluate.intervals import rate_of
from djepa.evaluate.paired import with_ends
from djepa.evaluate.rows import successes
from djepa.files import to_json, write_atomically
from djepa.report.cases import case_bars
from djepa.report.figures import gains_and_losses, success_bars
from djepa.report.graded import quality_bars, quality_headline
from djepa.report.page import Figure, Headline, Page, Section, write_page
from djepa.report.results import pair_of
from djepa.report.tables import Table
from djepa.studies.design import Measure
from djepa.studies.findings import findings, verdict_table, write_tables
from djepa.studies.results import (
    Results,
    ablation_tables,
    paired_tables,
    read_json,
    success_tables,
)
from djepa.studies.stages import Stage

if TYPE_CHECKING:
    from djepa.studies.study import Study

Captions = dict[str, list[tuple[str, str]]]  # section -> name and caption of each figure
PANELS = 4  # most cases side by side
GROUPS = {
    "control": "controls",
    "published": "published methods",
    "ours": "ours",
    "bound": "bounds",
}


def writing(study: "Study", left: tuple[Path, ...]) -> list[Stage]:
    """Stages of tables, figures and page, which run again if their inputs are newer."""
    out, results = study.out, partial(Results, study.out, study.design)
    listed, drawn = out / "tables" / "README.md", out / "figures" / "README.md"
    return [
        Stage("tables", listed, lambda say: write_tables(results()), left),
        Stage("figures", drawn, lambda say: draw_figures(results()), left),
        Stage("page", out / "report.html", lambda say: write_report(results()), (*left, drawn)),
    ]


def parts(results: Results) -> Iterator[Measure]:
    """The sections of a page after the question, in order: of the rows, then of the measures."""
    yield Measure(
        "found",
        "What was found",
        tuple(findings(results)),
        tables=_found,
        figures=_success,
    )
    yield Measure(
        "paired",
        "Paired differences",
        ("Two methods on the same starts, start by start.",),
        tables=paired_tables,
        figures=_gains,
    )
    if results.design.blocks:
        text = ("What each part of the published method adds.",)
        yield Measure("ablations", "Ablations", text, tables=ablation_tables)
    yield from results.design.measures


def _found(results: Results) -> Iterator[Table]:
    """The verdicts, if there are primary comparisons, then success."""
    if results.verdicts:
        yield verdict_table(results)
    yield from success_tables(results)


def draw_figures(results: Results) -> None:
    """Draw all figures for which the folder has numbers; the list of them is written last."""
    folder = results.folder / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {part.name: list(part.figures(results, folder)) for part in parts(results)}
    write_atomically(folder / "captions.json", to_json(drawn).encode())
    names = [name for of in drawn.values() for name, _ in of]
    there = {path.name for path in folder.iterdir()}
    files = {name: f"{name}.{'gif' if f'{name}.gif' in there else 'png'}" for name in names}
    listed = "".join(f"![{name}]({file})\n\n" for name, file in files.items())
    write_atomically(folder / "README.md", listed.encode())


def write_report(results: Results) -> None:
    """Write the page: one file that works offline."""
    design, rows, about = results.design, results.rows, results.about
    banks = ", ".join(f"{case} {of[0].bank}" for case, of in rows.items())
    rules = ", ".join(dict.fromkeys(of[0].rule for of in rows.values()))
    page = Page(
        title=design.title,
        subtitle=f"Study {design.name}, preset {about['preset']}. {_executed(results)}",
        headlines=tuple(_headlines(results)),
        sections=(Section("The question", design.question), *_sections(results)),
        inspector=list(results.measured("inspector").values()) or None,
        footer=f"djepa study {design.name} --preset {about['preset']} --seed {about['seed']}. "
        f"Banks: {banks}. Success rule: {rules}.",
    )
    write_page(results.folder / "report.html", page)


def _executed(results: Results) -> str:
    if results.design.decide is None:
        return "Every candidate was executed."
    return "Every episode was executed, all planners on the same starts and goals."


def _sections(results: Results) -> Iterator[Section]:
    captions = read_json(results.folder / "figures" / "captions.json", Captions)
    for part in parts(results):
        tables = tuple(part.tables(results))
        figures = tuple(_figures(results.folder / "figures", captions.get(part.name, [])))
        if tables or figures or part.name == "found":
            yield Section(part.title, part.text, tables, figures)


def _figures(folder: Path, captions: Iterable[tuple[str, str]]) -> Iterator[Figure]:
    for name, caption in captions:
        film = folder / f"{name}.gif"  # it has no numbers of its own
        if film.exists():
            yield Figure(_title(name), caption, film)
        else:
            yield Figure(_title(name), caption, folder / f"{name}.svg", folder / f"{name}.csv")


def _title(name: str) -> str:
    """The name of a figure in words, with the method's label if it is about one."""
    for method in METHODS.values():
        if name.endswith(f"-{slug(method.name)}"):
            about = name.removesuffix(f"-{slug(method.name)}")
            return f"{_title(about)}, {method.label}"
    return name.replace("-", " ").capitalize()


def _headlines(results: Results) -> Iterator[Headline]:
    """Success of ours in every unit, and its gain over the control."""
    d = results.design
    for unit, cases in d.units().items():
        some = {case: results.rows[case] for case in cases if case in results.rows}
        if not some:
            continue
        if d.graded:
            yield quality_headline(some, d.ours, d.primary[0], unit, d.graded)
            continue
        rate = rate_of(np.concatenate([successes(of)[d.ours] for of in some.values()]))
        ends = "{:.1f} to {:.1f}, ".format(*(100 * end for end in rate.interval))
        counted = f"{ends if len(some) == 1 else ''}{rate.of} starts"
        p, note = pair_of(some, d.ours, d.control, d.clustered), ""
        if p is not None:
            gain = with_ends(p.difference, *p.difference_interval, " points")
            note = f"{gain} over {label(d.control)}"
        yield Headline(f"{label(d.ours)}, {unit}", f"{100 * rate.share:.1f} %", counted, note)


def _success(results: Results, folder: Path) -> Iterator[tuple[str, str]]:
    """Bars of all methods if the cases fit side by side, else of the main methods."""
    if results.design.graded:
        quality_bars(folder / "quality", results.rows, results.methods, results.design.graded)
        yield "quality", f"Mean {results.design.graded} of every method, with 95 % intervals."
        return
    if len(results.rows) > PANELS:
        yield from draw_cases(results, folder)
        return
    panels = {
        case: {label(n): (int(hits.sum()), len(hits)) for n, hits in successes(of).items()}
        for case, of in results.rows.items()
    }
    groups: dict[str, list[str]] = {title: [] for title in GROUPS.values()}
    for name in results.methods:
        groups[GROUPS[METHODS[name].origin if name in METHODS else "ours"]].append(label(name))
    paper: dict[str, dict[str, float]] = {}
    for (case, method), value in results.paper().items():
        paper.setdefault(case, {})[label(method)] = value
    success_bars(folder / "success", panels, {t: of for t, of in groups.items() if of}, paper)
    yield "success", "Success of every method, with 95 % intervals."


def draw_cases(results: Results, folder: Path) -> Iterator[tuple[str, str]]:
    """Every case of every group, the main methods beside each other."""
    d = results.design
    shown = [m for m in (*d.primary, d.published, d.ours) if m in results.methods]
    paper = {(case, label(m)): value for (case, m), value in results.paper().items()}
    for group, cases in groups_of(results).items():
        bars = {
            case: {label(m): (int(hits[m].sum()), len(hits[m])) for m in shown}
            for case in cases
            if (hits := successes(results.rows[case]))
        }
        case_bars(folder / f"cases-{group}", bars, {k: v for k, v in paper.items() if k[0] in bars})
        yield f"cases-{group}", "Success in every case, with 95 % intervals."


def groups_of(results: Results) -> dict[str, list[str]]:
    """Group -> its cases that have rows."""
    units = {name.removeprefix("all ") or name: of for name, of in results.design.units().items()}
    found = {name: [case for case in of if case in results.rows] for name, of in units.items()}
    return {name: cases for name, cases in found.items() if cases}


def _gains(results: Results, folder: Path) -> Iterator[tuple[str, str]]:
    """Starts won and lost against the fusion of the design, by case."""
    design = results.design
    for ours in (design.ours, design.published):
        counts = {}
        for case, rows in results.rows.items():
            graded = bool(design.graded)
            if (p := pair_of({case: rows}, ours, design.fusion, graded=graded)) is not None:
                counts[case] = (p.gains, p.losses, p.starts)
        if counts:
            name, names = f"gains-{slug(ours)}", (label(ours), label(design.fusion))
            gains_and_losses(folder / name, counts, *names)
            yield name, f"Starts that only one of {names[0]} and {names[1]} solves."
