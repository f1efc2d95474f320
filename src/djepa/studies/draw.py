"""The figures of a push study, each as PNG and SVG with its numbers as CSV beside it."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from djepa.evaluate.paper import SUCCESS
from djepa.evaluate.rows import successes
from djepa.files import write_atomically
from djepa.report.curves import (
    budget_curves,
    correlation_curves,
    film_strips,
    learning_curve,
    rank_recovery,
    terminal_geometry,
)
from djepa.report.figures import gap_strip, inversion_bars, latency_bars, success_bars
from djepa.studies.write import Results
from djepa.worlds.push import PushWorld

Say = Callable[[str], None]
GROUPS = {
    "no model, or no goal": ("random", "consensus tdjepa"),
    "native costs": ("native lewm", "native tdjepa", "native jepawm", "native dinowm"),
    "fusion": ("fusion, two", "fusion, four", "consensus + fusion, four"),
    "published alignment": (
        "pointwise",
        "relational",
        "plasticity",
        "composition",
        "multi-geometry",
    ),
    "ours": ("log costs", "log mixture", "D-JEPA"),
    "bounds": ("realised lewm", "oracle"),
}
SOURCES = {"sources": ("lewm descriptors", "temporal descriptors", "relational")}
FILMED = ("native lewm", "native tdjepa", "D-JEPA")
TIMES = (0, 5, 10, 15, 20, 25)


def draw_figures(results: Results, say: Say) -> None:
    """All that the folder has the numbers for; the last file is the list of them."""
    folder = results.out / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    made: list[Path] = []
    for work in (_audit, _success, _budgets, _latency, _learning, _lifting, _films):
        made += work(results, folder)
    names = sorted({path.stem for path in made})
    listed = "".join(f"![{name}]({name}.png)\n\n" for name in names)
    write_atomically(folder / "README.md", listed.encode())


def _audit(results: Results, folder: Path) -> list[Path]:
    audits = results.held("audit")
    if not audits:
        return []
    made = []
    gaps = {a["name"]: _numbers(a["gap"]["each"]) for a in audits if a["gap"]}
    if some := {name: each for name, each in gaps.items() if np.isfinite(each).any()}:
        made += gap_strip(folder / "audit-gap", some)
    if inversions := _by_size(audits, "inversions"):
        made += inversion_bars(folder / "audit-inversions", inversions)
    if within := _by_size(audits, "correlations"):
        pooled = {
            a["name"]: {
                e["shortlist"]: e["pooled"] for e in a["correlations"] if e["pooled"] is not None
            }
            for a in audits
        }
        made += correlation_curves(folder / "audit-correlations", within, pooled)
    return made


def _success(results: Results, folder: Path) -> list[Path]:
    panels = {kind: _counts(results, kind) for kind in results.rows}
    paper = {"reference": {name: figure.value for name, figure in SUCCESS.items()}}
    made = success_bars(folder / "success", panels, _known(GROUPS, panels), paper)
    sources = _known(SOURCES, panels)
    if sources:
        made += success_bars(folder / "sources", panels, sources)
    return made


def _budgets(results: Results, folder: Path) -> list[Path]:
    made = []
    for kind, rows in results.rows.items():
        if budget := results.budget(kind):
            starts = len({row.start for row in rows})
            made += budget_curves(folder / f"budget-{kind}", budget, starts)
    return made


def _latency(results: Results, folder: Path) -> list[Path]:
    held = results.held("deployment")
    if not held:
        return []
    device = next(iter(held.values()))["device"]
    times = {label: entry["milliseconds"] for label, entry in held.items()}
    return latency_bars(folder / "latency", times, f"{device}, batches of 16 starts")


def _learning(results: Results, folder: Path) -> list[Path]:
    made = []
    for kind in results.rows:
        if rows := results.held(f"learning/{kind}"):
            curves: dict[str, dict[int, tuple[int, int]]] = {}
            for row in rows:
                curves.setdefault(row["method"], {})[row["fit"]] = (row["hits"], row["of"])
            made += learning_curve(folder / f"learning-{kind}", curves)
    return made


def _lifting(results: Results, folder: Path) -> list[Path]:
    made = []
    for kind in results.rows:
        file = results.out / "lifting" / f"{kind}.safetensors"
        if not file.exists():
            continue
        held = load_file(file)
        ranks = [held[name] + 1 for name in ("wanted", "after", "before")]
        made += rank_recovery(folder / f"lift-ranks-{kind}", *ranks)
        ends = [held[name].astype(np.float64) for name in ("original", "lifted", "goal")]
        native, aligned = held["chosen"].tolist()
        stem = folder / f"lift-geometry-{kind}"
        made += terminal_geometry(stem, ends[0], ends[1], ends[2], (native, aligned))
    return made


def _films(results: Results, folder: Path) -> list[Path]:
    """The first shown start where both native choices fail and the aligned one succeeds."""
    made = []
    for kind in results.rows:
        held = results.held(f"inspector/{kind}")
        if not held or not set(FILMED) <= set(held["methods"]):
            continue
        at = [held["methods"].index(name) for name in FILMED]
        for start in held["starts"]:
            picks = [start["ids"].index(start["methods"][m]["chosen"]) for m in at]
            if [start["success"][k] for k in picks] == [0, 0, 1]:
                films = {
                    name: _states(start["states"][k], held["angle"])
                    for name, k in zip(FILMED, picks, strict=True)
                }
                goal = _states(start["aim"], held["angle"])[0]
                world = PushWorld(held["shape"], held["rule"])
                made += film_strips(folder / f"films-{kind}", world, goal, films, TIMES)
                break
    return made


def _states(path: Sequence[int], angle: int) -> Any:
    """Whole numbers of the inspector -> (T, 10) states at rest."""
    poses = np.array(path, float).reshape(-1, 5) / (1, 1, 1, 1, angle)
    return np.concatenate([poses, np.zeros_like(poses)], axis=1)


def _counts(results: Results, kind: str) -> dict[str, tuple[int, int]]:
    solved = successes(results.rows[kind])
    return {name: (int(hits.sum()), len(hits)) for name, hits in solved.items()}


def _known(
    groups: Mapping[str, Sequence[str]], panels: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[str]]:
    """Groups without the methods that nobody ran."""
    run = {name for counts in panels.values() for name in counts}
    kept = {title: [name for name in names if name in run] for title, names in groups.items()}
    return {title: names for title, names in kept.items() if names}


def _by_size(audits: Sequence[Mapping[str, Any]], part: str) -> dict[str, dict[int, Any]]:
    """Model -> shortlist -> values of the starts that count, where every model has some."""
    found = {
        a["name"]: {e["shortlist"]: [x for x in e["each"] if x is not None] for e in a[part]}
        for a in audits
    }
    known = set.intersection(*({k for k, each in of.items() if each} for of in found.values()))
    if not known:
        return {}
    return {
        name: {k: _numbers(each) for k, each in of.items() if k in known}
        for name, of in found.items()
    }


def _numbers(values: Sequence[float | None]) -> Any:
    return np.array([np.nan if x is None else x for x in values], float)
