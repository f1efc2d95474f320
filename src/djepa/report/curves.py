"""Figures along an axis: shortlists, budgets, fitting starts, thresholds, pairs of costs.

As in `figures`, each takes a path without suffix and plain arrays, and returns the paths.
Legend: N starts, K candidates, T thresholds.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.errors import DjepaError
from djepa.evaluate.intervals import Rate
from djepa.report.style import (
    BLUE,
    COLUMN,
    INK,
    PAGE,
    SOFT,
    VERMILION,
    ByShortlist,
    canvas,
    legend_beneath,
    log_ticks,
    looks,
    mean_of,
    save,
    sizes_of,
)

Counts = tuple[int, int]  # successes, starts
DASHES = {"color": SOFT, "linewidth": 0.8, "linestyle": (0, (4, 3)), "zorder": 0.9}
WIDE = 30  # letters of a name; such names are drawn one per line
LETTER = 0.0165  # width of a letter in the name of a mark, as a share of the axes


def correlation_curves(
    stem: Path, within: ByShortlist, pooled: Mapping[str, Mapping[int, float]]
) -> list[Path]:
    """Spearman correlation of predicted and realised latent cost by shortlist, in two ways.

    `within` holds (n,) coefficients by start, drawn as mean with the 95 % interval of resampled
    starts; `pooled` one coefficient over all candidates of all shortlists.
    """
    sizes = sizes_of(within)
    rows: list[tuple[object, ...]] = []
    with canvas(PAGE, 2.6) as figure:
        panels = figure.subplots(1, 2, sharey=True)
        for model, look in looks(within).items():
            summary = [mean_of(within[model][k]) for k in sizes]
            mean, low, high = np.array([entry[:3] for entry in summary]).T
            panels[0].fill_between(sizes, low, high, color=look["color"], alpha=0.15, linewidth=0)
            panels[0].plot(sizes, mean, label=model, **look)
            rows += [("within", model, k, *e) for k, e in zip(sizes, summary, strict=True)]
            known = [k for k in sizes if k in pooled.get(model, {})]
            panels[1].plot(known, [pooled[model][k] for k in known], **look)
            rows += [("pooled", model, k, float(pooled[model][k]), "", "", "") for k in known]
        starts = sorted({np.size(of[k]) for of in within.values() for k in sizes})
        several = f"{starts[0]} to {starts[-1]}" if len(starts) > 1 else f"{starts[0]}"
        panels[0].set_title(f"within a start, mean of n = {several} starts")
        panels[1].set_title("pooled over all starts")
        for axes in panels:
            log_ticks(axes, sizes)
            axes.invert_xaxis()
            axes.set_xlabel("shortlist, best by predicted cost")
            axes.axhline(0, color=SOFT, linewidth=0.8)
        panels[0].set_ylabel("Spearman, predicted : realised")
        legend_beneath(figure, panels[0])
        header = ("kind", "model", "shortlist", "coefficient", "low", "high", "starts")
        return save(figure, stem, header, rows)


def budget_curves(
    stem: Path, budget: Mapping[str, Mapping[int, Sequence[float]]], starts: int
) -> list[Path]:
    """Method -> candidates K -> success shares by subset seed: mean, and band of their range."""
    sizes = sizes_of(budget)[::-1]
    seeds = max(len(of[k]) for of in budget.values() for k in sizes)
    rows = []
    with canvas(COLUMN, 2.7) as figure:
        axes = figure.subplots()
        for method, look in looks(budget).items():
            many = [100 * np.asarray(budget[method][k], float) for k in sizes]
            mean, low, high = ([f(x) for x in many] for f in (np.mean, np.min, np.max))
            axes.fill_between(sizes, low, high, color=look["color"], alpha=0.15, linewidth=0)
            axes.plot(sizes, mean, label=method, **look)
            for k, *values, of in zip(sizes, mean, low, high, many, strict=True):
                rows.append((method, k, *(float(v) / 100 for v in values), len(of)))
        log_ticks(axes, sizes)
        axes.set_xlabel(
            f"candidates K (n = {starts} starts)\nbands: range over {seeds} subset seeds"
        )
        axes.set_ylabel("success, %")
        legend_beneath(figure, axes, 2)
        return save(figure, stem, ("method", "K", "mean", "min", "max", "seeds"), rows)


def learning_curve(stem: Path, curves: Mapping[str, Mapping[int, Counts]]) -> list[Path]:
    """Method -> fitting starts -> (successes, starts), with Wilson intervals."""
    sizes = sorted({n for of in curves.values() for n in of})
    names, rows = list(curves), []
    styles = looks(curves)
    with canvas(COLUMN, 2.9) as figure:
        axes = figure.subplots()
        for i, method in enumerate(names):
            at = sorted(curves[method])
            rates = [Rate(*curves[method][n]) for n in at]
            shares = [100 * rate.share for rate in rates]
            ends = 100 * np.array([rate.interval for rate in rates]).T
            beside = np.array(at) * 1.045 ** (i - (len(names) - 1) / 2)  # intervals side by side
            axes.vlines(beside, *ends, color=styles[method]["color"], linewidth=0.9, alpha=0.7)
            axes.plot(beside, shares, label=method, **styles[method])
            for n, r in zip(at, rates, strict=True):
                rows.append((method, n, r.hits, r.of, r.share, *r.interval))
        log_ticks(axes, sizes)
        tested = " / ".join(str(n) for n in sorted({row[3] for row in rows}))
        axes.set_xlabel(f"fitting starts (tested on n = {tested})\nbars: 95 % intervals")
        axes.set_ylabel("success, %")
        legend_beneath(figure, axes, 2)
        header = ("method", "fitting starts", "successes", "starts", "share", "low", "high")
        return save(figure, stem, header, rows)


def threshold_curve(
    stem: Path,
    thresholds: npt.ArrayLike,
    curves: Mapping[str, npt.ArrayLike],
    marks: Mapping[str, float],
    axis: str = "Chamfer threshold, table units",
) -> list[Path]:
    """(T,) rising thresholds, method -> (T,) success shares, name -> marked threshold."""
    at = np.asarray(thresholds, float)
    styles, shares = looks(curves), {name: np.asarray(of, float) for name, of in curves.items()}
    if at.ndim != 1 or len(at) < 2 or not (np.diff(at) > 0).all():
        raise DjepaError("A threshold curve needs two or more thresholds, rising.")
    for name, of in shares.items():
        if of.shape != at.shape or not ((of >= 0) & (of <= 1)).all():
            raise DjepaError(f"{name}: needs {len(at)} shares from 0 to 1, one per threshold.")
    rows = []
    every = max(1, len(at) // 8)  # markers, at different places for each
    with canvas(COLUMN, 2.8) as figure:
        axes = figure.subplots()
        for i, (name, of) in enumerate(shares.items()):
            axes.plot(at, 100 * of, label=name, markevery=(i % every, every), **styles[name])
            rows += [(name, float(x), float(y)) for x, y in zip(at, of, strict=True)]
        low, high = min([at[0], *marks.values()]), max([at[-1], *marks.values()])
        pad = 0.02 * (high - low)
        axes.set(xlim=(low - pad, high + pad), ylim=(-2, 102), yticks=range(0, 101, 25))
        axes.locator_params(axis="x", nbins=8, steps=[1, 2, 5, 10])
        axes.set(xlabel=axis, ylabel="success, %")
        _mark(axes, marks)
        legend_beneath(figure, axes, 2 if max(map(len, curves)) < WIDE else 1)
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
    """Give both axes the same limits: the range of the values and a margin."""
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
