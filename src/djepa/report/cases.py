"""Success of a few methods over many cases, side by side: unseen shapes, looks."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from djepa.evaluate.intervals import Rate
from djepa.report.figures import DIAMOND, Counts
from djepa.report.style import INK, PAGE, canvas, legend_beneath, looks, save


def case_bars(
    stem: Path,
    cases: Mapping[str, Mapping[str, Counts]],
    paper: Mapping[tuple[str, str], float] | None = None,
) -> list[Path]:
    """Case -> method -> (successes, starts): a group of bars per case, with Wilson intervals.

    `paper`, (case, method) -> published percent, puts open diamonds.
    """
    looks(cases)  # refuses an empty figure
    methods = list(dict.fromkeys(name for of in cases.values() for name in of))
    width, rows = 0.8 / len(methods), list[tuple[object, ...]]()
    with canvas(PAGE, 2.8) as figure:
        axes = figure.subplots()
        for i, (method, look) in enumerate(looks(dict.fromkeys(methods, 0)).items()):
            for x, (case, of) in enumerate(cases.items()):
                if method not in of:
                    continue
                at, rate = x + (i - (len(methods) - 1) / 2) * width, Rate(*of[method])
                low, high = rate.interval
                axes.bar(at, 100 * rate.share, 0.9 * width, color=look["color"])
                axes.vlines(at, 100 * low, 100 * high, color=INK, linewidth=0.7)
                printed = (paper or {}).get((case, method))
                if printed is not None:
                    axes.plot(at, printed, "D", **DIAMOND)
                shown = "" if printed is None else printed
                rows.append((case, method, rate.hits, rate.of, rate.share, low, high, shown))
            axes.plot([], "s", color=look["color"], label=method)
        if paper:
            axes.plot([], "D", **DIAMOND, label="paper, on its own starts")
        axes.set_xticks(np.arange(len(cases)), [case.replace("-", "\n", 1) for case in cases])
        axes.set(ylim=(0, 100), ylabel="success, %")
        axes.grid(visible=False, axis="x")
        legend_beneath(figure, axes, 3)
        header = ("case", "method", "successes", "starts", "share", "low", "high", "paper")
        return save(figure, stem, header, rows)
