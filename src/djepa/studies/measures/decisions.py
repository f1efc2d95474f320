"""Single decisions: the inspector of the page, and film strips. They illustrate; nothing is counted
on them. Legend: N starts, K candidates, T frames, S side of a frame.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from djepa.align.methods import Choice
from djepa.align.registry import GEOMETRIES, label
from djepa.bank.read import Bank
from djepa.report.frames import films as draw_films
from djepa.report.inspector import View, inspect
from djepa.studies.decisions import solved
from djepa.studies.design import Case, Measure
from djepa.studies.results import Results
from djepa.studies.stages import Say
from djepa.studies.study import Study
from djepa.tasks.task import PLAIN

Bools = npt.NDArray[np.bool_]
FILM = 128  # pixels


def inspector(
    methods: Sequence[str], against: str, many: tuple[int, int, int], only: tuple[str, ...] = ()
) -> Measure:
    """Starts on which ours and another method differ, for the inspector.

    `many`: numbers of gains, losses and other eligible starts shown per case.
    """

    def run(study: Study, case: Case, say: Say) -> dict[str, Any]:
        test, choices = study.decided(case)
        e, bank = test.evidence, study.bank(case)
        views = {label(name): view_of(choices[name]) for name in methods if name in choices}
        costs = {GEOMETRIES.get(name, name): e.cost(name).cpu().numpy() for name in e.names}
        ours, theirs = (
            solved(choices[name], test).cpu().numpy() for name in (study.design.ours, against)
        )
        rows = shown(ours, theirs, np.array(study.design.eligible(test)), many)
        return inspect(bank, rows, costs, views, case.name, case.look)

    return Measure("inspector", "Single decisions", run=run, only=only)


def shown(ours: Bools, theirs: Bools, matters: Bools, many: tuple[int, int, int]) -> list[int]:
    """(N,) each -> sorted positions of `many` gains, losses and others, without repetition."""
    kinds = (ours & ~theirs, theirs & ~ours, matters)
    parts = [np.flatnonzero(kind)[:most] for kind, most in zip(kinds, many, strict=True)]
    return sorted(set(np.concatenate([*parts, np.arange(min(2, len(ours)))]).tolist()))


def view_of(choice: Choice) -> View:
    """A choice as plain arrays."""

    def array(x: Any) -> Any:
        return None if x is None else x.cpu().numpy()

    base, opened, gain = (array(x) for x in (choice.base, choice.opened, choice.advantage))
    return View(array(choice.score), array(choice.position), base, opened, gain, choice.threshold)


def films(methods: Sequence[str], only: tuple[str, ...] = (), also: Sequence[str] = ()) -> Measure:
    """A start on which the last method succeeds and all the others fail, executed.

    Methods in `also` are shown with any outcome; the first start on which most of them fail too is
    taken. Frames have the look of the decision.
    """
    shown = (*methods[:-1], *also, methods[-1])

    def run(study: Study, case: Case, say: Say) -> dict[str, Any]:
        picks = {m: {r.start: r for r in study.rows(case.name) if r.method == m} for m in shown}
        picks = {m: of for m, of in picks.items() if of}  # not every study runs every method
        wanted = [False] * (len(methods) - 1) + [True]
        found = [s for s in sorted(picks[methods[-1]])
                 if [picks[m][s].success for m in methods] == wanted]  # fmt: skip
        if not found:
            return {}
        start = min(found, key=lambda s: sum(of[s].success for of in picks.values()))
        chosen = {m: of[start].chosen for m, of in picks.items()}
        strips = executed(study.bank(case), start, chosen.values(), case.look)
        study.keep_arrays("films", case.name, strips)
        won, stride = (
            [of[start].success for of in picks.values()],
            study.bank(case).config.task.stride,
        )
        about = {"start": start, "methods": list(picks), "success": won, "stride": stride}
        return {**about, "look": case.look}

    beside = f"; beside them {', '.join(map(label, also))}" if also else ""
    others = ", ".join(map(label, methods[:-1])) + (" fails" if len(methods) == 2 else " fail")
    return Measure(
        name="films",
        title="What the choices lead to",
        text=(
            f"One start of each case on which {label(methods[-1])} succeeds and {others}{beside}.",
        ),
        run=run,
        figures=_films,
        only=only,
    )


def executed(bank: Bank, start: int, chosen: Iterable[int], look: str) -> dict[str, Any]:
    """Frames (T, S, S, 3) of executed candidates, "0", "1" and so on, and of the goal.

    In a look other than the plain one they are what a model sees, without the goal beneath.
    """
    d, ids, world = bank.decisions, bank.decisions.candidate_ids[start].tolist(), bank.world()
    goal, found = d.goal[start], {}

    def drawn(states: Any, beneath: Any) -> Any:
        if look == PLAIN:
            return np.ascontiguousarray(world.render(states, FILM, goal=beneath))
        return bank.scene(look).observe(torch.from_numpy(np.array(states)), FILM)[0].numpy()

    for i, candidate in enumerate(chosen):
        done = bank.outcomes.states[start, ids.index(candidate)]
        found[str(i)] = drawn(np.concatenate([d.state[start][None], done]), goal)
    return {**found, "goal": drawn(goal[None], None)[0]}


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
            look = of.get("look", PLAIN)
            seen = "" if look == PLAIN else f", as it was seen: {look}"
            yield f"films-{case}", f"Start {of['start']}{seen}."
