"""One inverted pair from a bank: two candidates of one start, of which the worse is predicted
nearer the goal. It is an illustration and not counted.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.align.registry import GEOMETRIES
from djepa.audit.gap import distance_gap
from djepa.models.predictions import read_predictions
from djepa.report.frames import films as draw_films
from djepa.report.tables import Table
from djepa.studies.design import Case, Measure
from djepa.studies.measures.decisions import executed
from djepa.studies.results import Results
from djepa.studies.stages import Say
from djepa.studies.study import Study

ENDS = ("fails", "succeeds")


def inverted(geometry: str, *cases: str) -> Measure:
    """The first audit start of these cases on which a failure is nearest by this geometry."""

    def run(study: Study, case: Case, say: Say) -> dict[str, Any]:
        (own,) = study.cases("audit", case.group)
        bank = study.bank(own)
        cost, ids = read_predictions(bank, geometry).cost, bank.decisions.candidate_ids
        found = first_pair(np.sqrt(np.maximum(cost, 0)), ids, bank.outcomes.success)
        if not found:
            return {}
        pair = [of["candidate"] for of in found["pair"].values()]
        study.keep_arrays("inverted", case.name, executed(bank, found["start"], pair, own.look))
        return {"geometry": geometry, "stride": bank.config.task.stride, **found}

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


def _tables(results: Results) -> Iterator[Table]:
    for case, of in results.measured("inverted").items():
        if not of:
            continue
        view = f"{case}, eligible"
        pools, _ = results.design.paper.get(view, ("", ""))
        lines = []
        for end in ENDS:
            method = f"native {of['geometry']}"
            theirs = results.recorded(pools, method, end, "distance of the recorded pair")
            ours = of["pair"][end]
            printed = "" if theirs is None else f"{theirs.value:.4f}"
            lines.append((end, str(ours["candidate"]), f"{ours['distance']:.4f}", printed))
        name = GEOMETRIES[of["geometry"]]
        yield Table(
            f"inverted-{case}",
            f"A recorded pair that {name} orders wrongly, {case} pools",
            ("executed, it", "candidate", "predicted distance", "paper"),
            tuple(lines),
            f"Audit start {of['start']}. The paper's pair is of its own start and weights.",
        )


def _figures(results: Results, folder: Path) -> Iterator[tuple[str, str]]:
    stored = results.measured("inverted")
    for case, frames in results.arrays("inverted").items():
        if of := stored.get(case):
            names = {f"distance {of['pair'][end]['distance']:.4f}": end for end in ENDS}
            strips = {name: list(frames[str(i)]) for i, name in enumerate(names)}
            times = [f"t + {of['stride'] * i}" if i else "t" for i in range(len(frames["0"]))]
            outcome = {name: end == "succeeds" for name, end in names.items()}
            draw_films(folder / f"inverted-{case}", strips, times, frames["goal"], outcome)
            yield f"inverted-{case}", "The nearer one fails."
