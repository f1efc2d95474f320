"""PDMS and its parts, collisions avoided and caused, and the PDMS of single scenes.

Legend: N scenes, K candidates.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.align.registry import label, ordered
from djepa.bank.driving import TrafficBank
from djepa.evaluate.graded import log_of, mean_interval, qualities
from djepa.evaluate.paired import with_ends
from djepa.report.tables import Table
from djepa.studies.design import Case, Measure
from djepa.studies.results import Results
from djepa.studies.stages import Say
from djepa.studies.study import Study

Floats = npt.NDArray[np.float64]
SHOWN = {"pdms": "PDMS", "nc": "NC", "dac": "DAC", "ttc": "TTC", "ep": "EP", "comfort": "C"}
FEW = 12  # scenes that a table shows one by one
NATIVE = "native score"


def chosen_parts(study: Study, case: Case) -> dict[str, dict[str, Floats]]:
    """Method -> part -> (N,) values of its choices."""
    bank = TrafficBank(study.out / "banks" / case.folder)
    rows = {name: i for i, name in enumerate(bank.known.names)}
    at = [rows[name] for name in study.population("confirmation", case).evidence.identities]
    found: dict[str, dict[int, int]] = {}
    for row in study.rows(case.name):
        found.setdefault(row.method, {})[row.start] = row.chosen
    return {
        method: {
            part: np.array([bank.parts[part][at[s], of[s]] for s in sorted(of)]) for part in SHOWN
        }
        for method, of in found.items()
    }


def _run(study: Study, case: Case, say: Say) -> dict[str, Any]:
    """Means, their intervals over whole logs, and changes against the native choice."""
    parts, logs = chosen_parts(study, case), log_of(study.rows(case.name))
    before, found = parts[NATIVE], {}
    for method, of in parts.items():
        crash, crashed = of["nc"] < 1, before["nc"] < 1
        harmed = crash & ~crashed
        found[method] = {
            "mean": {part: round(float(x.mean()), 6) for part, x in of.items()},
            "interval": {
                part: [round(end, 6) for end in mean_interval(x, logs)] for part, x in of.items()
            },
            "collisions": int(crash.sum()),
            "avoided": int((crashed & ~crash).sum()),
            "harmed": int(harmed.sum()),
            "harmed logs": len(set(logs[harmed].tolist())),
            "more": _points(crash.astype(float) - crashed, logs),
        }
    return {"scenes": len(logs), "logs": len(set(logs.tolist())), "methods": found}


def _points(change: Floats, logs: npt.NDArray[Any]) -> list[float]:
    """Mean of (N,) changes in points of 100, and its interval over whole logs."""
    return [round(100 * x, 3) for x in (float(change.mean()), *mean_interval(change, logs))]


def _tables(results: Results) -> Iterator[Table]:
    for case, of in results.measured("parts").items():
        lines = []
        for method in ordered(of["methods"]):
            one = of["methods"][method]
            cells = [f"{100 * one['mean'][part]:.1f}" for part in SHOWN]
            counts = (str(one[name]) for name in ("collisions", "avoided", "harmed", "harmed logs"))
            more = with_ends(*(x / 100 for x in one["more"])) if method != NATIVE else ""
            lines.append((label(method), *cells, *counts, more))
        note = (
            f"{of['scenes']} scenes of {of['logs']} logs. NC, DAC, TTC, EP and C are means in "
            "points of 100. Collisions: at-fault contact in the chosen drive. Avoided: only the "
            "native choice collides. Harmed: only this choice collides; in so many logs. The last "
            "column is the share of scenes with a collision less that of the native choice, in "
            "points, with its 95 % interval over whole logs."
        )
        counted = ("collisions", "avoided", "harmed", "harmed logs", "collisions, difference")
        columns = ("method", *SHOWN.values(), *counted)
        yield Table(f"parts-{case}", f"PDMS and its parts, {case}", columns, tuple(lines), note)


PARTS_OF_PDMS = Measure(
    name="parts",
    title="What the choices are made of",
    text=("Parts of PDMS, and collisions at fault won and lost against the native choice.",),
    run=_run,
    tables=_tables,
)


def _scene_tables(results: Results) -> Iterator[Table]:
    for case, rows in results.rows.items():
        known, logs = qualities(rows), log_of(rows)
        if len(logs) > FEW:
            continue
        names = dict.fromkeys(logs.tolist())
        numbers = {log: i for i, log in enumerate(names, 1)}
        columns = ("method", *(f"log {numbers[log]}, scene {i}" for i, log in enumerate(logs, 1)))
        lines = [
            (
                label(method),
                *(f"{100 * x:.2f}" for x in known[method]),
                f"{100 * known[method].mean():.2f}",
            )
            for method in ordered(known)
        ]
        yield Table(
            f"scenes-{case}", f"PDMS scene by scene, {case}", (*columns, "mean"), tuple(lines)
        )


SCENES = Measure(
    name="scenes",
    title="Scene by scene",
    text=("Where a study has few scenes, each of them.",),
    tables=_scene_tables,
)
