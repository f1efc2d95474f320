"""Longer trainings of the push models: validation loss and choices against steps."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from tools.docs.growth import RESULTS

from djepa.evaluate.intervals import Rate
from djepa.report.style import PAGE, canvas, legend_beneath, looks, save

JUDGED = 1024  # development starts
PANELS = {  # title -> name in the legend -> run
    "LeWM": {
        "first run": "LeWM, predictor twice as wide",
        "continued": "the same, continued on 327,680 episodes",
        "continued, noise": "the same, with noise of 0.1 on what the predictor reads",
        "continued, open-loop loss": "the same, with an open-loop loss on 95 % of the steps",
    },
    "JEPA-WM": {"first run": "JEPA-WM", "continued": "JEPA-WM, continued on 294,912 episodes"},
    "DINO-WM": {"first run": "DINO-WM, encoder of its own"},
    "TD-JEPA": {"first run": "TD-JEPA, encoder of its own trained by LeWM's loss, wide"},
    "TD-JEPA, own loss": {"first run": "TD-JEPA, encoder trained by its own loss"},
}
TICKS = {
    "LeWM": (4000, 8000, 16000, 45000),
    "JEPA-WM": (13000, 20000, 30000),
    "DINO-WM": (18000, 25000, 36000),
    "TD-JEPA": (7000, 10000, 14000),
    "TD-JEPA, own loss": (4000, 6000, 8500),
}
SPAN = 25  # points of success that every panel shows


@cache
def trainings() -> Any:
    """What docs/results/training-long.json holds: run -> its card and its marks."""
    return json.loads((RESULTS / "training-long.json").read_text())


def draw_training(folder: Path) -> list[Path]:
    """A column for each model: loss above, success on development starts beneath.

    Of checkpoints that are running averages; the mean of the last four has an open mark.
    """
    named = list(dict.fromkeys(name for of in PANELS.values() for name in of))
    styles, rows = looks(named), list[tuple[object, ...]]()
    with canvas(PAGE, 3.6) as figure:
        grid = figure.subplots(2, len(PANELS), sharex="col")
        for (loss, success), (title, runs) in zip(grid.T, PANELS.items(), strict=True):
            shares = []
            for name, run in runs.items():
                marks, style = trainings()[run]["marks"], styles[name]
                steps = [mark["step"] for mark in marks]
                averages = len(set(steps))  # the last step may be there twice
                for i, mark in enumerate(marks):
                    rate = Rate(round(JUDGED * mark["selection"]), JUDGED)
                    shares.append(100 * rate.share)
                    kind = "running average" if i < averages else "mean of four"
                    rows.append((run, kind, mark["step"], mark["validation"], rate.hits, rate.of,
                                 rate.share, *rate.interval))  # fmt: skip
                for axes, what, scale in ((loss, "validation", 1), (success, "selection", 100)):
                    values = [scale * mark[what] for mark in marks]
                    axes.plot(steps[:averages], values[:averages], label=name, **style)
                    hollow = {**style, "linestyle": "", "markerfacecolor": "white"}
                    axes.plot(steps[averages:], values[averages:], **hollow)
            loss.set_title(title)
            loss.margins(y=0.25)
            low = max(0, 5 * round((sum(shares) / len(shares) - SPAN / 2) / 5))
            success.set(ylim=(low, low + SPAN), xlabel="thousand steps")
            success.set(xscale="log")
            ticks = TICKS.get(title, ())
            success.set_xticks(ticks, [f"{tick / 1000:g}" for tick in ticks])
            success.set_xticks([], minor=True)
        grid[0, 0].set_ylabel("validation loss")
        grid[1, 0].set_ylabel("success, %")
        legend_beneath(figure, grid[0, 0])
        header = ("run", "checkpoint", "step", "validation loss", "successes", "starts", "share",
                  "low", "high")  # fmt: skip
        return save(figure, folder / "training", header, rows)
