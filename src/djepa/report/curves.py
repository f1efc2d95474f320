"""Figures along an axis: shortlists, budgets, fitting starts, ranks, latent planes, time.

As in `figures`, each takes a path without suffix and plain arrays, and returns the paths.
Legend: N starts, K candidates, D latent, H horizon, S state.
"""

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
    PALE,
    SKY,
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
from djepa.worlds.push import CANVAS, PUSHER_RADIUS, PushWorld

Floats = npt.NDArray[np.floating[Any]]
Counts = tuple[int, int]  # successes, starts
FRAME = 224  # px of a film's frame
LEAST = 200.0  # side of the smallest part of the table a film shows, in pixels of the world


def correlation_curves(
    stem: Path, within: ByShortlist, pooled: Mapping[str, Mapping[int, float]]
) -> list[Path]:
    """Spearman of predicted and realised latent cost over the shortlist, two ways.

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


def learning_curve(
    stem: Path,
    curves: Mapping[str, Mapping[int, Counts]],
    flat: Mapping[str, Counts] | None = None,
) -> list[Path]:
    """Method -> fitting starts -> (successes, starts), with Wilson intervals.

    `flat` methods do not change with the number: dashed lines.
    """
    sizes = sorted({n for of in curves.values() for n in of})
    names, rows = list(curves), []
    styles = looks([*curves, *(flat or {})])
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
            rows += [(method, n, *_counted(r)) for n, r in zip(at, rates, strict=True)]
        for method, counts in (flat or {}).items():
            rate, colour = Rate(*counts), styles[method]["color"]
            dashes = {"color": colour, "linestyle": (0, (4, 2)), "label": method}
            axes.axhline(100 * rate.share, linewidth=1.1, **dashes)
            rows.append((method, 0, *_counted(rate)))
        log_ticks(axes, sizes)
        tested = " / ".join(str(n) for n in sorted({row[3] for row in rows}))
        axes.set_xlabel(f"fitting starts (tested on n = {tested})\nbars: 95 % intervals")
        axes.set_ylabel("success, %")
        legend_beneath(figure, axes, 2)
        header = ("method", "fitting starts", "successes", "starts", "share", "low", "high")
        return save(figure, stem, header, rows)


def _counted(rate: Rate) -> tuple[int, int, float, float, float]:
    return rate.hits, rate.of, rate.share, *rate.interval


def rank_recovery(
    stem: Path,
    learned: npt.ArrayLike,
    native: npt.ArrayLike,
    before: npt.ArrayLike | None = None,
) -> list[Path]:
    """(N, K) learned ranks against native ranks after the lift, 1 to K, and before it if given."""
    wanted = np.asarray(learned)
    pairs = {} if before is None else {"before the lift": np.asarray(before)}
    pairs["after the lift"] = np.asarray(native)
    if wanted.ndim != 2 or any(found.shape != wanted.shape for found in pairs.values()):
        raise DjepaError("Ranks to compare must have one shape (N, K).")
    N, K = wanted.shape
    if any(ranks.min() < 1 or ranks.max() > K for ranks in (wanted, *pairs.values())):
        raise DjepaError(f"Ranks of {K} candidates go from 1 to {K}.")
    marks = sorted({1, (K + 1) // 2, K})
    rows: list[tuple[object, ...]] = []
    with canvas(*((COLUMN, 2.7) if len(pairs) == 1 else (PAGE, 3.0))) as figure:
        panels = figure.subplots(1, len(pairs), sharey=True, squeeze=False)[0]
        for axes, (title, found) in zip(panels, pairs.items(), strict=True):
            counts = np.zeros((K, K), int)  # native rank, learned rank
            np.add.at(counts, (found.ravel() - 1, wanted.ravel() - 1), 1)
            ends = (0.5, K + 0.5, 0.5, K + 0.5)
            shown = axes.imshow(np.sqrt(counts / N), extent=ends, origin="lower", **_shades())
            kept = int((wanted == found).sum())
            axes.set_title(f"{title}: {kept:,} of {wanted.size:,} ranks equal")
            axes.grid(visible=False)
            axes.set(xlabel="learned rank", xticks=marks, yticks=marks)
            rows += [(title, j + 1, i + 1, int(counts[i, j])) for i, j in np.argwhere(counts)]
        panels[0].set_ylabel("native rank")
        bar = figure.colorbar(shown, ax=panels, shrink=0.8, aspect=25)
        levels = np.array([0, 0.05, 0.25, 0.5, 1])
        bar.set_ticks(np.sqrt(levels), labels=[f"{100 * level:.0f}" for level in levels])
        bar.set_label(f"% of n = {N} starts")
        bar.outline.set_visible(False)
        return save(figure, stem, ("panel", "learned", "native", "candidates"), rows)


def _shades() -> dict[str, Any]:
    """White to blue; what is rare is still seen because roots of shares are shown."""
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list("blues", ["white", SKY, BLUE, INK])
    return {"cmap": shades, "vmin": 0, "vmax": 1, "interpolation": "none"}


def terminal_geometry(
    stem: Path,
    original: npt.ArrayLike,
    lifted: npt.ArrayLike,
    goal: npt.ArrayLike,
    chosen: tuple[int, int],
    title: str = "",
) -> list[Path]:
    """(K, D) last predicted latents of one start before and after the lift, and the goal (D,).

    One PCA for all of them; `chosen` are the positions of the native choice and of the aligned one.
    """
    before, after = np.asarray(original, float), np.asarray(lifted, float)
    K = len(before)
    if before.shape != after.shape or not all(0 <= k < K for k in chosen):
        raise DjepaError(f"{before.shape} and {after.shape} latents, {chosen} chosen: no one pool.")
    flat, explained = _plane(np.concatenate([before, after, np.asarray(goal, float)[None]]))
    a, b, target = flat[:K], flat[K:-1], flat[-1]
    with canvas(COLUMN, 3.3) as figure:
        axes = figure.subplots()
        for k in range(K):
            axes.plot(*zip(a[k], b[k], strict=True), color=PALE, linewidth=0.4, zorder=1)
        square = {"marker": "s", "linewidths": 0.8, "edgecolors": SOFT}
        axes.scatter(*a.T, s=13, facecolors="none", label="predicted", zorder=2, **square)
        axes.scatter(*b.T, s=9, color=BLUE, linewidths=0, label="lifted", zorder=3)
        big = {"edgecolors": "white", "linewidths": 0.7, "zorder": 4}
        axes.scatter(*a[chosen[0]], s=42, marker="s", color=INK, label="chosen before", **big)
        # The aligned choice lies next to the goal, whose arms therefore reach out from under it.
        axes.scatter(*target, s=230, marker="+", color=INK, linewidths=1.2, zorder=4)
        axes.scatter([], [], s=55, marker="+", color=INK, linewidths=1.2, label="goal")
        axes.scatter(*b[chosen[1]], s=75, marker="*", color=VERMILION, label="chosen after", **big)
        axes.set_title(f"{title}: {K} candidates" if title else f"{K} candidates")
        axes.set_xlabel(f"first component, {100 * explained[0]:.1f} % of variance")
        axes.set_ylabel(f"second component, {100 * explained[1]:.1f} %")
        axes.set_aspect("equal", adjustable="datalim")
        legend_beneath(figure, axes, 3)
        rows: list[tuple[object, ...]] = [("goal", "", *map(float, target), "")]
        for kind, of, best in (("predicted", a, chosen[0]), ("lifted", b, chosen[1])):
            rows += [(kind, k, *map(float, xy), int(k == best)) for k, xy in enumerate(of)]
        return save(figure, stem, ("kind", "candidate", "first", "second", "chosen"), rows)


def _plane(points: Floats) -> tuple[Floats, Floats]:
    """(n, D) -> (n, 2) principal coordinates, and the share of variance of both.

    A component's largest weight is positive, so that the picture never turns over.
    """
    off = points - points.mean(0)
    _, spread, axes = np.linalg.svd(off, full_matrices=False)
    signs = np.sign(axes[np.arange(2), np.abs(axes[:2]).argmax(1)])
    return off @ (axes[:2] * signs[:, None]).T, spread[:2] ** 2 / (spread**2).sum()


def film_strips(
    stem: Path,
    world: PushWorld,
    goal: npt.ArrayLike,
    films: Mapping[str, npt.ArrayLike],
    times: Sequence[int],
) -> list[Path]:
    """Method -> (H + 1, S) states executed from one start: a row each, a column per time.

    The goal lies beneath in green. All frames show the same part of the table.
    """
    runs = {name: np.asarray(states, float) for name, states in films.items()}
    looks(runs)  # refuses an empty figure
    target, shown = np.asarray(goal, float), list(times)
    for name, run in runs.items():
        if not shown or min(shown) < 0 or max(shown) >= len(run):
            raise DjepaError(
                f"{name} has {len(run) - 1} controls; frames at {shown} cannot be drawn."
            )
    crop = _part(world, target, np.concatenate([run[shown] for run in runs.values()]))
    rows: list[tuple[object, ...]] = []
    with canvas(min(PAGE, 1.0 + 1.02 * len(shown)), 0.4 + 1.06 * len(runs)) as figure:
        grid = figure.subplots(len(runs), len(shown), squeeze=False)
        for line, (name, run) in zip(grid, runs.items(), strict=True):
            success, cost = world.judge(target, run[-1])
            for axes, t, frame in zip(line, shown, crop(run[shown]), strict=True):
                axes.imshow(frame, interpolation="antialiased")
                axes.set(xticks=[], yticks=[])
                axes.spines[:].set(visible=True, color=PALE, linewidth=0.6)
                rows.append((name, t, *map(float, run[t]), int(success), float(cost)))
            word, colour = ("success", BLUE) if success else ("failure", VERMILION)
            line[-1].spines[:].set(color=colour, linewidth=1.6)
            line[0].set_ylabel(f"{name}\n{word}", color=colour)
        for axes, t in zip(grid[0], shown, strict=True):
            axes.set_title(f"{t} controls" if t else "start", loc="center", fontsize=7)
        figure.supxlabel("green: where block and pusher should end", fontsize=7)
        state = ("pusher x", "pusher y", "block x", "block y", "block angle")
        speed = ("pusher vx", "pusher vy", "block vx", "block vy", "block spin")
        return save(figure, stem, ("method", "control", *state, *speed, "success", "cost"), rows)


def _part(world: PushWorld, goal: Floats, states: Floats) -> Any:
    """How to draw (n, S) states so that all frames show the part of the table that they need."""
    both = np.concatenate([goal[None], states])
    discs = [both[:, :2] + sign * PUSHER_RADIUS for sign in (-1, 1)]
    ends = np.concatenate([world.block_vertices(both).reshape(-1, 2), *discs])
    low, high = np.clip([ends.min(0) - 12, ends.max(0) + 12], 0, CANVAS)
    side = max(LEAST, float((high - low).max()))
    corner = np.clip((low + high - side) / 2, 0, CANVAS - side)
    whole = max(FRAME, round(FRAME * CANVAS / side))
    x, y = np.clip(np.round(corner * whole / CANVAS).astype(int), 0, whole - FRAME)

    def draw(of: Floats) -> Any:
        return world.render(of, whole, goal)[:, y : y + FRAME, x : x + FRAME]

    return draw
