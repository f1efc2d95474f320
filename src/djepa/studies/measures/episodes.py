"""Episodes of a closed-loop study: time to success, model evaluations, and films.

Legend: N episodes, T the budget in controls.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path as File
from typing import Any

import numpy as np

from djepa.align.registry import label, ordered
from djepa.control.episodes import MODERATE, draw_episodes
from djepa.control.results import Episodes
from djepa.evaluate.intervals import rate_of
from djepa.report.curves import threshold_curve
from djepa.report.episodes import Path, replay
from djepa.report.tables import Table
from djepa.studies.design import Case, Measure
from djepa.studies.measures.decisions import FILM, films, shown
from djepa.studies.results import Results
from djepa.studies.stages import Say
from djepa.studies.study import Study

Find = Callable[[Study, Case], Mapping[str, Episodes]]  # method -> its episodes of a case
FLOOR = "random controls"


def expense(find: Find, drawn: Sequence[str]) -> Measure:
    """Success within k controls, controls until success, model evaluations per episode.

    `drawn` are the methods of the figure: there are only seven line styles.
    """

    def run(study: Study, case: Case, say: Say) -> dict[str, Any]:
        rule, found = case.rule or MODERATE, find(study, case)
        some = next(iter(found.values()))
        steps = {name: of.steps(rule) for name, of in found.items()}
        counts = {name: of.arrays["evaluations"] for name, of in found.items()}
        return {
            "goal": some.config.goal,
            "budget": some.config.budget,
            "frozen": some.frozen,
            "steps": {n: of.tolist() for n, of in steps.items()}
            | {FLOOR: some.steps(rule, floor=True).tolist()},
            "evaluations": {n: float(of.sum(1).mean()) for n, of in counts.items()} | {FLOOR: 0.0},
        }

    return Measure(
        name="expense",
        title="How soon, and at what expense",
        text=(
            "One evaluation is one candidate rolled out by one model. A decision may make equally "
            "many under every planner; an episode that ends early makes fewer.",
        ),
        run=run,
        tables=_tables,
        figures=partial(_curves, drawn),
    )


def _tables(results: Results) -> Iterator[Table]:
    for case, of in results.measured("expense").items():
        goal, budget, lines = of["goal"], of["budget"], []
        for name in ordered(of["steps"]):
            steps = np.array(of["steps"][name])
            within = [
                rate_of((steps >= 0) & (steps <= k)).percent(interval=True) for k in (goal, budget)
            ]
            solved = steps[steps >= 0]
            middle = f"{np.median(solved):.0f}" if len(solved) else ""
            spent, wins = of["evaluations"][name], int((steps >= 0).sum())
            each = f"{spent * len(steps) / wins:,.0f}" if wins and spent else ""
            lines.append((label(name), *within, middle, f"{spent:,.0f}", each))
        columns = (
            "planner",
            f"success within {goal} controls",
            f"within {budget}",
            "median controls until success",
            "evaluations an episode",
            "evaluations a success",
        )
        frozen = "the frozen list" if of["frozen"] else "not of a frozen list"
        note = f"Episodes of {frozen}. Shares with Wilson's 95 % intervals."
        yield Table(f"expense-{case}", f"Closed loop, {case}", columns, tuple(lines), note)


def _curves(drawn: Sequence[str], results: Results, folder: File) -> Iterator[tuple[str, str]]:
    for case, of in results.measured("expense").items():
        at = np.arange(1, of["budget"] + 1)
        shares = {}
        for name in ordered(name for name in of["steps"] if name in drawn):
            steps = np.array(of["steps"][name])
            shares[label(name)] = [float(((steps >= 0) & (steps <= k)).mean()) for k in at]
        axis = "controls executed"
        threshold_curve(folder / f"success-at-{case}", at, shares, {"goal": of["goal"]}, axis)
        yield f"success-at-{case}", f"{case}: share of episodes solved within so many controls."


def replays(find: Find, ours: str, theirs: str, many: tuple[int, int, int]) -> Measure:
    """Episodes on which ours and another planner differ, for the page's replay.

    `many`: numbers of gains, losses and others shown per case.
    """

    def run(study: Study, case: Case, say: Say) -> dict[str, Any]:
        found, rule = find(study, case), case.rule or MODERATE
        first = next(iter(found.values()))
        a, b = (found[name].solved(rule) for name in (ours, theirs))
        config = first.config
        world, task = config.starts().make_world(), config.starts().task
        limit, episodes = config.thresholds[rule], {}
        for row in shown(a, b, np.ones(len(a), bool), many):
            block, place = divmod(row, config.block)
            start = draw_episodes(config, block)[place].start
            episodes[row] = (
                start,
                {
                    label(name): Path(
                        of.arrays["states"][row],
                        of.arrays["controls"][row],
                        float(of.arrays["cost"][row].min() / limit),
                    )
                    for name, of in found.items()
                },
            )
        about = (first.list_hash, f"{config.rule}, {rule}", task.stride)
        return replay(world, task.sketch(world), episodes, case.name, about)

    return Measure("inspector", "Single episodes", run=run)


def episode_films(find: Find, methods: Sequence[str], only: tuple[str, ...] = ()) -> Measure:
    """The first episode that the last method solves and the others do not, frame by frame."""

    def run(study: Study, case: Case, say: Say) -> dict[str, Any]:
        episodes = [find(study, case).get(name) for name in methods]
        found = [of for of in episodes if of is not None]
        rule = case.rule or MODERATE
        if len(found) < len(methods):
            return {}
        *others, ours = (of.solved(rule) for of in found)
        rows = np.flatnonzero(ours & ~np.any(others, axis=0))
        if not len(rows):
            return {}
        config, row = found[0].config, int(rows[0])
        world, stride = config.starts().make_world(), config.starts().task.stride
        goal = found[0].arrays["goal"][row]
        strips = {
            str(i): np.ascontiguousarray(
                world.render(of.arrays["states"][row, ::stride], FILM, goal=goal)
            )
            for i, of in enumerate(found)
        }
        strips["goal"] = np.ascontiguousarray(world.render(goal[None], FILM)[0])
        study.keep_arrays("films", case.name, strips)
        wanted = [False] * len(others) + [True]
        return {"start": row, "methods": list(methods), "success": wanted, "stride": stride}

    like = films(methods)
    return Measure(
        name="films",
        title="Episodes side by side",
        text=(
            "One episode of each case, the first that "
            f"{label(methods[-1])} solves and {' and '.join(map(label, methods[:-1]))} not. An "
            "episode that ends early stays as it is.",
        ),
        run=run,
        figures=like.figures,
        only=only,
    )
