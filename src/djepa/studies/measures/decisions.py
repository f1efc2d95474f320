"""Single decisions: the inspector of the page, and film strips. They illustrate; nothing is counted
on them. Legend: N starts, K candidates, T frames, S side of a frame.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.align.methods import Choice
from djepa.align.registry import GEOMETRIES, label
from djepa.bank.schema import encode
from djepa.files import write_atomically
from djepa.report.frames import films as draw_films
from djepa.report.inspector import View, inspect
from djepa.studies.decisions import solved
from djepa.studies.design import Case, Measure
from djepa.studies.results import Results
from djepa.studies.stages import Say
from djepa.studies.study import Study

Bools = npt.NDArray[np.bool_]
FILM = 128  # pixels


def inspector(
    methods: Sequence[str], against: str, many: tuple[int, int, int], only: tuple[str, ...] = ()
) -> Measure:
    """Starts on which ours and another method differ, as the page shows them.

    `many` is how many gains, losses and other eligible starts are shown of each case.
    """

    def run(study: Study, case: Case, say: Say) -> dict[str, Any]:
        test, choices = study.decided(case)
        e, bank = test.evidence, study.bank(case)
        views = {label(name): _view(choices[name]) for name in methods if name in choices}
        names = [GEOMETRIES.get(name, name) for name in e.names]
        costs = {name: e.costs[..., m].cpu().numpy() for m, name in enumerate(names)}
        ours, theirs = (
            solved(choices[name], test).cpu().numpy() for name in (study.design.ours, against)
        )
        rows = shown(ours, theirs, np.array(study.design.eligible(test)), many)
        return inspect(bank, rows, costs, views, case.name, case.look)

    return Measure("inspector", "Single decisions", run=run, only=only)


def shown(ours: Bools, theirs: Bools, matters: Bools, many: tuple[int, int, int]) -> list[int]:
    """(N,) each -> positions of so many gains, losses and others, without repetition, in order."""
    kinds = (ours & ~theirs, theirs & ~ours, matters)
    parts = [np.flatnonzero(kind)[:most] for kind, most in zip(kinds, many, strict=True)]
    return sorted(set(np.concatenate([*parts, np.arange(min(2, len(ours)))]).tolist()))


def _view(choice: Choice) -> View:
    def array(x: Any) -> Any:
        return None if x is None else x.cpu().numpy()

    base, opened, gain = (array(x) for x in (choice.base, choice.opened, choice.advantage))
    return View(array(choice.score), array(choice.position), base, opened, gain, choice.threshold)


def films(methods: Sequence[str], only: tuple[str, ...] = ()) -> Measure:
    """The first start on which the last method succeeds and all the others fail, executed."""

    def run(study: Study, case: Case, say: Say) -> dict[str, Any]:
        picks = [{r.start: r for r in study.rows(case.name) if r.method == m} for m in methods]
        wanted = [False] * (len(methods) - 1) + [True]
        found = [s for s in sorted(picks[0]) if [of[s].success for of in picks] == wanted]
        if not found:
            return {}
        start, bank = found[0], study.bank(case)
        world, d, ids = bank.world(), bank.decisions, bank.decisions.candidate_ids[start].tolist()
        strips, goal = {}, d.goal[start]
        for i, of in enumerate(picks):
            done = bank.outcomes.states[start, ids.index(of[start].chosen)]
            path = np.concatenate([d.state[start][None], done])
            strips[str(i)] = np.ascontiguousarray(world.render(path, FILM, goal=goal))
        strips["goal"] = np.ascontiguousarray(world.render(goal[None], FILM)[0])
        file = study.measured("films", case.name).with_suffix(".safetensors")
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, encode(strips))
        stride = bank.config.task.stride
        return {"start": start, "methods": list(methods), "success": wanted, "stride": stride}

    return Measure(
        name="films",
        title="What the choices lead to",
        text=(
            "One start of each case, the first on which "
            f"{label(methods[-1])} succeeds and the others fail.",
        ),
        run=run,
        figures=_films,
        only=only,
    )


def _films(results: Results, folder: Path) -> Iterator[tuple[str, str]]:
    stored = results.measured("films")
    for case, frames in results.arrays("films").items():
        if of := stored.get(case):
            names = [label(name) for name in of["methods"]]
            strips = {name: list(frames[str(i)]) for i, name in enumerate(names)}
            steps = range(len(frames["0"]))
            times = [f"t + {of['stride'] * i}" if i else "t" for i in steps]
            outcome = dict(zip(names, of["success"], strict=True))
            draw_films(folder / f"films-{case}", strips, times, frames["goal"], outcome)
            yield f"films-{case}", f"Start {of['start']}."
