"""One inverted pair from a bank: two candidates of one start, of which the worse is predicted
nearer the goal. It is an illustration and not counted.

Legend: T frames, S side of a frame.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.align.registry import GEOMETRIES
from djepa.audit.gap import distance_gap
from djepa.bank.read import Bank
from djepa.models.predictions import read_predictions
from djepa.report.frames import films as draw_films
from djepa.report.tables import Table
from djepa.studies.design import Case, Measure
from djepa.studies.measures.decisions import executed
from djepa.studies.results import Results
from djepa.studies.stages import Say
from djepa.studies.study import Study
from djepa.tasks.task import PLAIN

ENDS = ("fails", "succeeds")
DISTANCE = "distance of the recorded pair"  # the paper's, in evaluate/paper.csv


def inverted(geometry: str, *cases: str) -> Measure:
    """The first audit start of these cases on which a failure is nearest by this geometry."""

    def run(study: Study, case: Case, say: Say) -> dict[str, Any]:
        (own,) = study.cases("audit", case.group)
        found, frames = recorded_pair(study.bank(own), geometry, own.look)
        if frames:
            study.keep_arrays("inverted", case.name, frames)
        return found

    return Measure(
        name="inverted",
        title="An inverted pair",
        text=(
            f"The first audit start on which {GEOMETRIES[geometry]} predicts a failure nearer the "
            "goal than every success: both candidates, executed.",
        ),
        run=run,
        tables=_tables,
        figures=_figures,
        only=cases,
    )


def recorded_pair(
    bank: Bank, geometry: str, look: str = PLAIN
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pair of a bank with predictions, and its frames (T, S, S, 3); empty if there is none."""
    cost, ids = read_predictions(bank, geometry).cost, bank.decisions.candidate_ids
    found = first_pair(np.sqrt(np.maximum(cost, 0)), ids, bank.outcomes.success)
    if not found:
        return {}, {}
    pair = [of["candidate"] for of in found["pair"].values()]
    about = {"geometry": geometry, "stride": bank.config.task.stride}
    return {**about, **found}, executed(bank, found["start"], pair, look)


def first_pair(
    distances: npt.NDArray[Any], ids: npt.NDArray[Any], success: npt.NDArray[np.bool_]
) -> dict[str, Any]:
    """(N, K) -> the first start with a positive gap, and its nearest failure and success.

    Ties go to the smaller ID; empty if there is no such start.
    """
    gaps = distance_gap(distances, success).each
    starts = [n for n, gap in enumerate(gaps) if gap is not None and gap > 0]
    if not starts:
        return {}
    n, pair = starts[0], {}
    for end, of in zip(ENDS, (~success[n], success[n]), strict=True):
        at = min(np.flatnonzero(of), key=lambda k: (distances[n, k], ids[n, k]))
        pair[end] = {"candidate": int(ids[n, at]), "distance": round(float(distances[n, at]), 4)}
    return {"start": n, "pair": pair}


def pair_table(of: Mapping[str, Any], case: str, printed: Mapping[str, float]) -> Table:
    """Both candidates of a recorded pair; `printed`: the paper's distances, by how it ended."""
    lines = []
    for end in ENDS:
        ours, theirs = of["pair"][end], printed.get(end)
        paper = "" if theirs is None else f"{theirs:.4f}"
        lines.append((end, str(ours["candidate"]), f"{ours['distance']:.4f}", paper))
    name = GEOMETRIES[of["geometry"]]
    return Table(
        f"inverted-{case}",
        f"A recorded pair that {name} orders wrongly, {case} pools",
        ("executed, it", "candidate", "predicted distance", "paper"),
        tuple(lines),
        f"Audit start {of['start']}. The paper's pair is of its own start and weights.",
    )


def draw_pair(stem: Path, of: Mapping[str, Any], frames: Mapping[str, Any]) -> list[Path]:
    """Film strips of both candidates, the nearer one first."""
    names = {f"distance {of['pair'][end]['distance']:.4f}": end for end in ENDS}
    strips = {name: list(frames[str(i)]) for i, name in enumerate(names)}
    times = [f"t + {of['stride'] * i}" if i else "t" for i in range(len(frames["0"]))]
    outcome = {name: end == "succeeds" for name, end in names.items()}
    return draw_films(stem, strips, times, frames["goal"], outcome)


def _tables(results: Results) -> Iterator[Table]:
    for case, of in results.measured("inverted").items():
        if of:
            pools, _ = results.design.paper.get(f"{case}, eligible", ("", ""))
            method = f"native {of['geometry']}"
            found = {end: results.recorded(pools, method, end, DISTANCE) for end in ENDS}
            yield pair_table(of, case, {end: x.value for end, x in found.items() if x})


def _figures(results: Results, folder: Path) -> Iterator[tuple[str, str]]:
    stored = results.measured("inverted")
    for case, frames in results.arrays("inverted").items():
        if of := stored.get(case):
            draw_pair(folder / f"inverted-{case}", of, frames)
            yield f"inverted-{case}", "The nearer one fails."
