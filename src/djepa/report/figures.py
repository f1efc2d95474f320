"""Figures with bars and strips. Each takes a path without suffix and plain arrays, and returns the
paths of a PNG, an SVG and the numbers as CSV. Those along an axis are in `curves`.

Shares go in as shares and are drawn in percent.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.errors import DjepaError, unknown_name
from djepa.evaluate.intervals import Rate
from djepa.report.style import (
    BLUE,
    COLUMN,
    INK,
    PAGE,
    SOFT,
    VERMILION,
    ByShortlist,
    bar_colour,
    canvas,
    legend_beneath,
    looks,
    mean_of,
    save,
    signed,
    sizes_of,
)

Floats = npt.NDArray[np.floating[Any]]
Counts = tuple[int, int]  # successes, starts
LONG = 12  # letters of a panel's name; a longer one has its number of starts on a separate line
HALO = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}  # behind numbers, over the grid
DIAMOND = {"color": INK, "markerfacecolor": "white", "markersize": 3.2}
GAP = "$(d_{success} - d_{failure})\\,/\\,(d_{success} + d_{failure})$"


def gap_strip(stem: Path, gaps: Mapping[str, npt.ArrayLike]) -> list[Path]:
    """Model -> (N,) normalised gaps by start, NaN where a start lacks one outcome.

    Above zero the nearest predicted future fails. Lines are median and quartiles.
    """
    rows: list[tuple[str, object, float]] = []
    looks(gaps)  # refuses an empty figure
    with canvas(COLUMN, 1.2 + 0.48 * len(gaps)) as figure:
        axes = figure.subplots()
        axes.axvline(0, color=SOFT, linewidth=0.8)
        for y, (model, given) in enumerate(gaps.items()):
            values = np.asarray(given, float)
            starts = np.flatnonzero(np.isfinite(values))
            if not len(starts):
                raise DjepaError(f"{model} has no start with a success and a failure.")
            rows += [(model, int(start), float(values[start])) for start in starts]
            summary = _strip(axes, y, values[starts])
            rows += [(model, name, value) for name, value in summary.items()]
        axes.set_yticks(range(len(gaps)), list(gaps))
        axes.set(ylim=(len(gaps) - 0.45, -0.55), xlabel=f"normalised distance gap\n{GAP}")
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.margins(x=0.05)
        points = {"linestyle": "none", "markersize": 3.5}
        axes.plot([], "o", color=BLUE, label="nearest future succeeds", **points)
        axes.plot([], "^", color=VERMILION, label="nearest future fails", **points)
        axes.plot([], color=INK, linewidth=2, label="median, quartiles")
        legend_beneath(figure, axes, 2)
        return save(figure, stem, ("model", "start", "gap"), rows)


def _strip(axes: Any, y: float, values: Floats) -> dict[str, float]:
    """Draw one model's points, jittered so that ties are visible, and its summary."""
    spread = y + 0.44 * ((np.arange(len(values)) * 0.618034) % 1 - 0.5)
    wrong = values > 0
    style = {"s": 7, "linewidths": 0, "alpha": 0.65}
    axes.scatter(values[~wrong], spread[~wrong], color=BLUE, marker="o", **style)
    axes.scatter(values[wrong], spread[wrong], color=VERMILION, marker="^", **(style | {"s": 12}))
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    axes.plot([low, high], [y, y], color=INK, linewidth=2.2, solid_capstyle="butt")
    axes.plot([middle, middle], [y - 0.17, y + 0.17], color=INK, linewidth=2.2)
    said = f"{wrong.sum()} of {len(values)}\nfail"
    place = axes.get_yaxis_transform()  # x as a share of the width
    axes.text(1.02, y, said, transform=place, va="center", fontsize=6.5, color=VERMILION)
    return {"lower quartile": float(low), "median": float(middle), "upper quartile": float(high)}


def inversion_bars(stem: Path, inversions: ByShortlist) -> list[Path]:
    """Model -> shortlist -> (n,) share of success-failure pairs in the wrong order, mixed starts.

    Mean over starts, with the 95 % interval of whole-start resamples.
    """
    sizes = sizes_of(inversions)
    rows = []
    width = 0.8 / len(inversions)
    with canvas(PAGE, 2.6) as figure:
        axes = figure.subplots()
        for i, (model, look) in enumerate(looks(inversions).items()):
            at = np.arange(len(sizes)) + (i - (len(inversions) - 1) / 2) * width
            summary = [mean_of(inversions[model][k]) for k in sizes]
            bars = 100 * np.array([(mean, low, high) for mean, low, high, _ in summary])
            axes.bar(at, bars[:, 0], 0.9 * width, color=look["color"], label=model)
            axes.vlines(at, bars[:, 1], bars[:, 2], color=INK, linewidth=0.8)
            for x, (mean, _, high) in zip(at, bars, strict=True):
                axes.text(x, high + 1, f"{mean:.0f}", ha="center", fontsize=6.5, bbox=HALO)
            rows += [(model, k, *entry) for k, entry in zip(sizes, summary, strict=True)]
        axes.axhline(50, color=SOFT, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0.9)
        axes.text(0.005, 51, "chance", color=SOFT, transform=axes.get_yaxis_transform())
        counts = [" / ".join(str(np.size(of[k])) for of in inversions.values()) for k in sizes]
        ticks = [f"best {k}\n{n}" for k, n in zip(sizes, counts, strict=True)]
        axes.set_xticks(range(len(sizes)), ticks)
        axes.grid(visible=False, axis="x")
        axes.set(ylim=(0, None), ylabel="pairs in the wrong order, %")
        axes.set_xlabel("shortlist by predicted cost; beneath: its mixed starts, by model")
        legend_beneath(figure, axes)
        header = ("model", "shortlist", "mean", "low", "high", "starts")
        return save(figure, stem, header, rows)


def success_bars(
    stem: Path,
    panels: Mapping[str, Mapping[str, Counts]],
    groups: Mapping[str, Sequence[str]] | None = None,
    paper: Mapping[str, Mapping[str, float]] | None = None,
) -> list[Path]:
    """Panel -> method -> (successes, starts), with Wilson intervals; a panel per kind of pools.

    `groups` puts methods under headings. `paper`, panel -> method -> published percent, puts open
    diamonds where its pools are of that kind.
    """
    methods = list(dict.fromkeys(name for of in panels.values() for name in of))
    places = _places(groups or {"": methods})
    for name, _, heading in places:
        if not heading and name not in methods:
            raise unknown_name("method", name, methods)
    width = COLUMN if len(panels) == 1 else min(PAGE, 1.2 + 1.9 * len(panels))
    looks(panels)  # refuses an empty figure
    rows: list[tuple[object, ...]] = []
    with canvas(width, 0.95 + 0.185 * len(places)) as figure:
        row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (title, counts) in zip(row, panels.items(), strict=True):
            rows += _success_panel(axes, title, counts, places, (paper or {}).get(title, {}))
        row[0].set_yticks([y for _, y, _ in places], [name for name, _, _ in places])
        for tick, (_, _, heading) in zip(row[0].get_yticklabels(), places, strict=True):
            tick.set_fontweight("bold" if heading else "normal")
        row[0].set_ylim(max(y for _, y, _ in places) + 0.6, -0.6)
        row[0].plot([], color=INK, linewidth=0.9, label="95 % interval")
        if paper:
            row[0].plot([], "D", **DIAMOND, label="paper, on its own starts")
        legend_beneath(figure, row[0])
        header = ("panel", "method", "successes", "starts", "share", "low", "high", "paper")
        return save(figure, stem, header, rows)


def _success_panel(
    axes: Any,
    title: str,
    counts: Mapping[str, Counts],
    places: Sequence[tuple[str, float, bool]],
    paper: Mapping[str, float],
) -> list[tuple[object, ...]]:
    starts = {of for _, of in counts.values()}
    if len(starts) != 1:
        raise DjepaError(f"Panel {title}: its methods were run on {sorted(starts)} starts.")
    rows: list[tuple[object, ...]] = []
    for name, y, heading in places:
        if heading or name not in counts:
            continue
        rate = Rate(*counts[name])
        share, (low, high) = 100 * rate.share, (100 * end for end in rate.interval)
        axes.barh(y, share, 0.72, color=bar_colour(name))
        axes.plot([low, high], [y, y], color=INK, linewidth=0.9, solid_capstyle="butt")
        axes.text(102, y, f"{share:.1f}", va="center", ha="left", fontsize=6.5)
        if name in paper:
            axes.plot(paper[name], y, "D", **DIAMOND)
        printed = paper.get(name, "")
        rows.append((title, name, rate.hits, rate.of, rate.share, *rate.interval, printed))
    between = ", " if len(title) < LONG else "\n"
    axes.set_title(f"{title}{between}n = {starts.pop()}")
    axes.set(xlim=(0, 100), xticks=range(0, 101, 25), xlabel="success, %")
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    return rows


def _places(groups: Mapping[str, Sequence[str]]) -> list[tuple[str, float, bool]]:
    """Name, height, whether it is a heading; a gap before every heading but the first."""
    places: list[tuple[str, float, bool]] = []
    y = 0.0
    for title, names in groups.items():
        if title:
            y += 0.4 * bool(places)
            places.append((title, y, True))
            y += 1
        for name in names:
            places.append((name, y, False))
            y += 1
    return places


def gains_and_losses(
    stem: Path, counts: Mapping[str, tuple[int, int, int]], ours: str, theirs: str
) -> list[Path]:
    """Case -> (gains, losses, starts): starts that only `ours` solves, those that only `theirs`.

    Bars are in percent of a case's starts, so that cases are comparable; the numbers are counts.
    """
    looks(counts)  # refuses an empty figure
    for case, (gains, losses, starts) in counts.items():
        if min(gains, losses) < 0 or starts < max(1, gains + losses):
            raise DjepaError(f"{case}: {gains} gains, {losses} losses of {starts} starts?")
    right, left = (max(100 * of[i] / of[2] for of in counts.values()) for i in (0, 1))
    room = 0.12 * (right + left) or 1.0  # for the counts
    with canvas(COLUMN, 1.15 + 0.26 * len(counts)) as figure:
        axes = figure.subplots()
        for y, (gains, losses, starts) in enumerate(counts.values()):
            _both_ways(axes, y, gains, losses, starts)
        axes.axvline(0, color=INK, linewidth=0.8)
        axes.set_yticks(range(len(counts)), list(counts))
        axes.set(ylim=(len(counts) - 0.4, -0.6), xlim=(-left - room, right + room))
        axes.set_xlabel("% of the case's starts")
        axes.locator_params(axis="x", nbins=7, steps=[1, 2, 5, 10])
        axes.xaxis.set_major_formatter(lambda x, _: f"{abs(x):g}")  # losses are shown without sign
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.text(1.03, 1, "net", transform=axes.transAxes, fontsize=7)
        axes.plot([], "s", color=BLUE, label=f"gains: {ours} succeeds, {theirs} fails")
        axes.plot([], "s", color=VERMILION, label=f"losses: {theirs} succeeds, {ours} fails")
        legend_beneath(figure, axes, 1)
        rows = [(case, *of) for case, of in counts.items()]
        return save(figure, stem, ("case", "gains", "losses", "starts"), rows)


def _both_ways(axes: Any, y: int, gains: int, losses: int, starts: int) -> None:
    """Draw one case: a bar on each side of zero, the counts, and the net at the right."""
    for count, way, colour in ((gains, 1, BLUE), (losses, -1, VERMILION)):
        end, side = way * 100 * count / starts, "left" if way > 0 else "right"
        axes.barh(y, end, 0.66, color=colour)
        axes.annotate(f"{count}", (end, y), (3 * way, 0), textcoords="offset points",
                      ha=side, va="center_baseline", fontsize=6.5)  # fmt: skip
    said = f"{signed(gains - losses)} of {starts}"
    place = axes.get_yaxis_transform()  # x as a share of the width
    axes.text(1.03, y, said, transform=place, va="center_baseline", fontweight="bold", fontsize=7)
