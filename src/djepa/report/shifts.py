"""Figures of what changes from one method or look to another: starts won and lost, paired costs,
thresholds, transport coefficients, frames.

As in `figures`, each takes a path without suffix and plain arrays, and returns the paths.
Legend: N starts, T thresholds, S side of a frame in pixels.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.errors import DjepaError
from djepa.report.style import (
    BLUE,
    COLUMN,
    INK,
    PAGE,
    PALE,
    SOFT,
    VERMILION,
    canvas,
    legend_beneath,
    looks,
    save,
)

Frame = npt.NDArray[np.uint8]  # (S, S, 3)
DASHES = {"color": SOFT, "linewidth": 0.8, "linestyle": (0, (4, 3)), "zorder": 0.9}
LETTER = 0.0165  # of the axes' width: what a letter takes in the name of a mark
TIGHT = {"w_pad": 0.02, "h_pad": 0.02, "wspace": 0.01, "hspace": 0.01}  # between frames
DIGIT = 0.07  # inches that a digit takes in a cell


def gains_and_losses(
    stem: Path, counts: Mapping[str, tuple[int, int, int]], ours: str, theirs: str
) -> list[Path]:
    """Case -> (gains, losses, starts): starts that only `ours` solves, those that only `theirs`.

    Bars are in percent of a case's own starts, so that cases compare; the numbers are counts.
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
        axes.xaxis.set_major_formatter(lambda x, _: f"{abs(x):g}")  # losses are no negative share
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
    """One case: a bar to each side of zero, their counts, and the net at the right."""
    for count, way, colour in ((gains, 1, BLUE), (losses, -1, VERMILION)):
        end, side = way * 100 * count / starts, "left" if way > 0 else "right"
        axes.barh(y, end, 0.66, color=colour)
        axes.annotate(f"{count}", (end, y), (3 * way, 0), textcoords="offset points",
                      ha=side, va="center_baseline", fontsize=6.5)  # fmt: skip
    said = f"{_signed(gains - losses)} of {starts}"
    place = axes.get_yaxis_transform()  # x as a share of the width
    axes.text(1.03, y, said, transform=place, va="center_baseline", fontweight="bold", fontsize=7)


def threshold_curve(
    stem: Path,
    thresholds: npt.ArrayLike,
    curves: Mapping[str, npt.ArrayLike],
    marks: Mapping[str, float],
) -> list[Path]:
    """(T,) rising Chamfer thresholds, method -> (T,) success shares, name -> marked threshold."""
    at = np.asarray(thresholds, float)
    styles, shares = looks(curves), {name: np.asarray(of, float) for name, of in curves.items()}
    if at.ndim != 1 or len(at) < 2 or not (np.diff(at) > 0).all():
        raise DjepaError("A threshold curve needs two or more thresholds, rising.")
    for name, of in shares.items():
        if of.shape != at.shape or not ((of >= 0) & (of <= 1)).all():
            raise DjepaError(f"{name}: needs {len(at)} shares from 0 to 1, one per threshold.")
    rows = []
    every = max(1, len(at) // 8)  # markers, not at the same places for all
    with canvas(COLUMN, 2.8) as figure:
        axes = figure.subplots()
        for i, (name, of) in enumerate(shares.items()):
            axes.plot(at, 100 * of, label=name, markevery=(i % every, every), **styles[name])
            rows += [(name, float(x), float(y)) for x, y in zip(at, of, strict=True)]
        low, high = min([at[0], *marks.values()]), max([at[-1], *marks.values()])
        pad = 0.02 * (high - low)
        axes.set(xlim=(low - pad, high + pad), ylim=(-2, 102), yticks=range(0, 101, 25))
        axes.locator_params(axis="x", nbins=8, steps=[1, 2, 5, 10])
        axes.set(xlabel="Chamfer threshold, table units", ylabel="success, %")
        _mark(axes, marks)
        legend_beneath(figure, axes, 2)
        return save(figure, stem, ("method", "threshold", "share"), rows)


def _mark(axes: Any, marks: Mapping[str, float], both: bool = False) -> None:
    """Lines at named values, names above, higher where crowded. `both`: across as well."""
    scale = math.log if axes.get_xscale() == "log" else float
    low, high = map(scale, axes.get_xlim())
    level, taken = 0, -math.inf
    for name, value in sorted(marks.items(), key=lambda mark: mark[1]):
        x, said = (scale(value) - low) / (high - low), f"{name} {value:g}"
        half = LETTER * len(said) / 2
        level = level + 1 if x - half < taken else 0
        taken = x + half
        for draw in (axes.axvline, axes.axhline)[: 1 + both]:
            draw(value, **DASHES)
        axes.annotate(said, (x, 1), (0, 3 + 9 * level), xycoords="axes fraction",
                      textcoords="offset points", ha="center", fontsize=6.5)  # fmt: skip


def paired_costs(
    stem: Path,
    ours: npt.ArrayLike,
    theirs: npt.ArrayLike,
    names: tuple[str, str],
    marks: Mapping[str, float],
    log: bool = False,
) -> list[Path]:
    """(N,) task costs of two methods on the same starts; below the diagonal `ours` is better.

    `names` are those of ours and theirs, `marks` named costs. `log` is for costs of many sizes.
    """
    a, b = np.asarray(ours, float), np.asarray(theirs, float)
    if a.ndim != 1 or a.shape != b.shape or not a.size:
        raise DjepaError(f"Paired costs are (N,) twice, got {a.shape} and {b.shape}.")
    every = np.array([*a, *b, *marks.values()])
    if not np.isfinite(every).all() or (log and every.min() <= 0):
        raise DjepaError("Costs must be finite, and above zero on logarithmic axes.")
    with canvas(COLUMN, 4.1 + 0.13 * max(0, len(marks) - 2)) as figure:
        figure.set_layout_engine("compressed")  # for axes of a fixed shape
        axes = figure.subplots()
        _square(axes, every, log)
        _mark(axes, marks, both=True)
        axes.axline((every.min(),) * 2, (every.max() + 1,) * 2, color=INK, linewidth=0.8)
        kinds = (
            (a < b, f"below, {names[0]} better", BLUE, "o", 13),
            (a > b, f"above, {names[1]} better", VERMILION, "^", 16),
            (a == b, "on the diagonal, equal", SOFT, "s", 9),
        )
        style = {"linewidths": 0, "alpha": 0.75, "zorder": 2}
        for of, said, colour, marker, size in kinds:
            text = f"{said}: {of.sum()} of {len(a)}"
            axes.scatter(b[of], a[of], size, color=colour, marker=marker, label=text, **style)
        axes.set(xlabel=f"cost of {names[1]}", ylabel=f"cost of {names[0]}")
        legend_beneath(figure, axes, 1)
        rows = zip(range(len(a)), a.tolist(), b.tolist(), strict=True)
        return save(figure, stem, ("start", "ours", "theirs"), rows)


def _square(axes: Any, values: npt.NDArray[np.float64], log: bool) -> None:
    """Both axes alike, from the least to the greatest value and a little further."""
    low, high = float(values.min()), float(values.max())
    if log:
        ends = low / 1.2, high * 1.2
        axes.loglog(subs=())
        for axis in (axes.xaxis, axes.yaxis):
            axis.get_major_locator().set_params(subs=(1, 2, 5))
            axis.set_major_formatter(lambda x, _: f"{x:g}")
    else:
        low = 0.0 if 0 < low < 0.2 * high else low
        pad = 0.03 * (high - low) or 1.0
        ends = low - pad, high + pad
    axes.set(xlim=ends, ylim=ends)
    axes.set_aspect("equal")


def coefficient_map(
    stem: Path, table: npt.ArrayLike, radius: float, labels: Sequence[str] | None = None
) -> list[Path]:
    """(bins, steps) mean signed transport coefficients β by learned rank and future step.

    The first row is the best bin. NaN cells stay blank. Colours reach from minus the largest |β|
    to plus it, which the bound `radius` only limits.
    """
    known = np.asarray(table, float)
    if known.ndim != 2 or not np.isfinite(known).any():
        raise DjepaError("A coefficient map needs numbers (bins, steps).")
    bins, steps = known.shape
    top = float(np.nanmax(np.abs(known))) or radius
    if not radius > 0 or top > radius * (1 + 1e-6):  # float32 rounds
        raise DjepaError(f"Coefficients up to {top:g} cannot have the bound {radius:g}.")
    said = [str(i + 1) for i in range(bins)] if labels is None else list(labels)
    if len(said) != bins:
        raise DjepaError(f"{len(said)} labels for {bins} rows.")
    digits = max(1, 1 - math.floor(math.log10(top)))
    width = 1.5 + DIGIT * (digits + 3) * steps
    with canvas(max(COLUMN, width), max(1.8, 1 + 0.24 * bins)) as figure:
        from matplotlib.colors import LinearSegmentedColormap

        axes = figure.subplots()
        signs = LinearSegmentedColormap.from_list("signs", [VERMILION, "white", BLUE])
        shown = axes.imshow(known, signs, aspect="auto", vmin=-top, vmax=top)
        for (row, step), value in np.ndenumerate(known):
            colour = "white" if abs(value) > 0.85 * top else INK
            text = "" if math.isnan(value) else _signed(value, digits)
            axes.text(step, row, text, ha="center", va="center", fontsize=6.5, color=colour)
        axes.set_xticks(range(steps), [str(step + 1) for step in range(steps)])
        axes.set_yticks(range(bins), said)
        axes.set(xlabel="future step", ylabel="learned rank bin,\nbest first")
        axes.set_title("mean signed transport coefficient β")
        axes.grid(visible=False)
        axes.tick_params(length=0)
        axes.spines[:].set(visible=True, color=PALE)
        bar = figure.colorbar(shown, ax=axes, aspect=25, fraction=0.06, pad=0.02)
        bar.set_label(f"β, bound ρ = {radius:g}")
        bar.outline.set_visible(False)
        cells = [(said[i], j + 1, float(value)) for (i, j), value in np.ndenumerate(known)]
        rows = [(*at, "" if math.isnan(value) else value) for *at, value in cells]
        return save(figure, stem, ("bin", "step", "coefficient"), rows)


def _signed(value: float, digits: int = 0) -> str:
    """With its sign, unless it rounds to zero."""
    text = f"{value:+.{digits}f}"
    return (text if float(text) else text[1:]).replace("-", "−")


def looks_picture(stem: Path, frames: Mapping[str, tuple[Frame, Frame]]) -> list[Path]:
    """Look -> its context frame and its goal frame, uint8 (S, S, 3): a column each."""
    looks(frames)  # refuses an empty figure
    for look, pair in frames.items():
        _check_frames(look, pair, 2)
    side = min(1.2, (PAGE - 0.5) / len(frames))
    with canvas(0.5 + side * len(frames), 0.25 + 2 * side) as figure:
        grid = _grid(figure, list(zip(*frames.values(), strict=True)), list(frames))
        grid[0, 0].set_ylabel("context")
        grid[1, 0].set_ylabel("goal")
        rows = [(look, *(float(np.mean(of)) for of in pair)) for look, pair in frames.items()]
        return save(figure, stem, ("look", "context mean level", "goal mean level"), rows)


def films(
    stem: Path,
    frames: Mapping[str, Sequence[Frame]],
    times: Sequence[str],
    goal: Frame,
    outcome: Mapping[str, bool],
) -> list[Path]:
    """Method -> a uint8 (S, S, 3) frame per time: a row each, with the goal at its end.

    `outcome` says whether a method succeeds. Frames may be of any world.
    """
    looks(frames)  # refuses an empty figure
    if not times or set(outcome) != set(frames):
        raise DjepaError("Films need times, and one outcome for each of their methods.")
    lines = [[*given, goal] for given in frames.values()]
    for name, line in zip(frames, lines, strict=True):
        _check_frames(name, line, len(times) + 1)
    side = min(1.1, (PAGE - 1.0) / (len(times) + 1))
    with canvas(1.0 + side * (len(times) + 1), 0.25 + side * len(frames)) as figure:
        grid = _grid(figure, lines, [*times, "goal"])
        for line, name in zip(grid, frames, strict=True):
            word, colour = ("succeeds", BLUE) if outcome[name] else ("fails", VERMILION)
            line[-2].spines[:].set(color=colour, linewidth=1.6)
            line[-1].spines[:].set(color=INK, linewidth=1.0)
            line[0].set_ylabel(f"{name}\n{word}", color=colour, rotation=0, ha="right", va="center")
        rows = [(name, int(outcome[name])) for name in frames]
        return save(figure, stem, ("method", "succeeded"), rows)


def _grid(figure: Any, lines: Sequence[Sequence[Frame]], titles: Sequence[str]) -> Any:
    """Rows of frames in thin borders, titles above the first; returns their axes."""
    figure.set_layout_engine("compressed", **TIGHT)
    grid = figure.subplots(len(lines), len(titles), squeeze=False)
    for axes, frame in zip(grid.flat, (frame for line in lines for frame in line), strict=True):
        axes.imshow(frame, interpolation="antialiased")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set(visible=True, color=PALE, linewidth=0.6)
    for axes, title in zip(grid[0], titles, strict=True):
        axes.set_title(title, loc="center", fontsize=7, pad=3)
    return grid


def _check_frames(name: str, frames: Sequence[Frame], count: int) -> None:
    kinds = {(frame.shape, frame.dtype.name) for frame in frames}
    if len(frames) != count or kinds != {((*2 * frames[0].shape[:1], 3), "uint8")}:
        raise DjepaError(f"{name}: needs {count} frames, all uint8 (S, S, 3) of one S.")
