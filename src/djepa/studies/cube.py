"""The cube study: LeWM and TD-JEPA choose for an arm that carries and pushes a cube  (App. G).

    relational   set operator over both models' directions and ranks, its gate  (§4.2)
    D-JEPA       mixture of both costs, density and ranks if folds gain by them, careful gate

The paper shows one start on which both models succeed by different controls. That figure is made
from rows here. Success on all starts, which the paper does not report, is added.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from djepa.align.presets import PRESETS
from djepa.align.registry import label
from djepa.report.frames import films as draw_films
from djepa.studies.design import Case, Measure, Sizes
from djepa.studies.pair import NATIVES, pair_design
from djepa.studies.results import Results
from djepa.studies.stages import Say
from djepa.studies.study import Study
from djepa.worlds.cube import CUBE as PLACE
from djepa.worlds.cube import PINCH, TOLERANCE
from djepa.worlds.cube_draw import project

STAMPS, FULL = 8, 448  # frames of the figure; side of a frame before the common crop
MARGIN = 0.12  # of the whole frame, around hand and cube


def _stamps(study: Study, case: Case, say: Say) -> dict[str, Any]:
    """The first start on which both models succeed by different choices, executed again."""
    picks = {m: {r.start: r for r in study.rows(case.name) if r.method == m} for m in NATIVES}
    first, second = picks.values()
    both = [s for s in sorted(first) if first[s].success and second[s].success]
    different = [s for s in both if first[s].chosen != second[s].chosen]
    about = {"starts": len(first), "both": len(both), "different": len(different)}
    if not different:
        return about
    bank, start = study.bank(case), different[0]
    d, world = bank.decisions, bank.world()
    ids = d.candidate_ids[start].tolist()
    rows = [ids.index(of[start].chosen) for of in picks.values()]
    times = np.linspace(0, d.actions.shape[2], STAMPS).round().astype(int)
    states = world.execute(d.state[start], d.actions[start, rows])[:, times]
    drawn = {"frames": world.render(states, FULL, goal=d.goal[start])}
    drawn["goal"] = world.render(d.goal[start][None], FULL)
    part = _crop(np.concatenate([states.reshape(-1, states.shape[-1]), d.goal[start][None]]))
    drawn = {name: frames[(..., *part, slice(None))] for name, frames in drawn.items()}
    study.keep_arrays("stamps", case.name, {n: np.ascontiguousarray(a) for n, a in drawn.items()})
    return {**about, "start": start, "times": times.tolist(), "methods": list(picks)}


def _crop(states: npt.NDArray[np.float64]) -> tuple[slice, slice]:
    """Rows and columns of the smallest square that shows hand and cube in all (T, 73) states."""
    points = torch.from_numpy(np.concatenate([states[:, PLACE], states[:, PINCH]]))
    places = project(points)[0].numpy() * FULL
    low, high = places.min(0) - MARGIN * FULL, places.max(0) + MARGIN * FULL
    side = min(FULL, int(np.ceil((high - low).max())))
    corner = np.clip(((low + high - side) / 2).astype(int), 0, FULL - side)
    column, row = (slice(int(begin), int(begin) + side) for begin in corner)
    return row, column


def _stamp_figures(results: Results, folder: Path) -> Iterator[tuple[str, str]]:
    stored = results.measured("stamps")
    for case, drawn in results.arrays("stamps").items():
        of = stored[case]
        names = [label(name) for name in of["methods"]]
        strips = dict(zip(names, map(list, drawn["frames"]), strict=True))
        times = [f"t + {time}" if time else "t" for time in of["times"]]
        draw_films(
            folder / f"stamps-{case}", strips, times, drawn["goal"][0], dict.fromkeys(names, True)
        )
        yield (
            f"stamps-{case}",
            f"Start {of['start']}, the first of {of['different']} on which both succeed by "
            f"different candidates; both succeed on {of['both']} of {of['starts']} starts. The "
            "green cube is the goal; times in controls of 0.05 s.",
        )


SAME_START = Measure(
    name="stamps",
    title="The same start and goal, different choices",
    text=("Each model's own choice of 25 controls, executed, at eight shared times.",),
    run=_stamps,
    figures=_stamp_figures,
)
CUBE = pair_design(
    "cube",
    4,
    SAME_START,
    {"relational": PRESETS["published"]},
    title="Does alignment choose better for a gripper?",
    question=(
        "OGBench's UR5e arm with a gripper and one cube, unchanged. A candidate is 25 controls: "
        "shifts and turns of the hand, closing or opening. A start is solved when the cube ends "
        "within 4 cm of the goal's place, OGBench's own rule; starts that are solved from the "
        "beginning are left out. LeWM and TD-JEPA plan by latent distance. Every candidate was "
        "executed.",
        "In reference pools, made around a hidden solution, pool density alone finds that "
        "solution; in decoy pools it does not. Fusion + pool density is the control.",
    ),
    sizes={
        "quick": Sizes(32, 16, 24, updates=300),
        "paper": Sizes(192, 64, 128),
        "large": Sizes(1024, 256, 512),
    },
    unit=(TOLERANCE, "Distance of the cube from the goal's, in m; solved up to 0.04."),
)
