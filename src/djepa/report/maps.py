"""Figures in a plane: ranks before and after a lift, latents, transport coefficients.

As in `figures`, each takes a path without suffix and plain arrays, and returns the paths.
"""

import math
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
    SKY,
    SOFT,
    VERMILION,
    canvas,
    legend_beneath,
    save,
    signed,
)

Floats = npt.NDArray[np.floating[Any]]
DIGIT = 0.07  # width of a digit in a cell, inches


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
    """White to blue by the root of the share, so that rare cells are visible."""
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list("blues", ["white", SKY, BLUE, INK])
    return {"cmap": shades, "vmin": 0, "vmax": 1, "interpolation": "none"}


def terminal_geometry(
    stem: Path,
    original: npt.ArrayLike,
    lifted: npt.ArrayLike,
    goal: npt.ArrayLike,
    chosen: tuple[int, int],
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
        # The aligned choice is next to the goal, so the goal's cross is larger than its marker.
        axes.scatter(*target, s=230, marker="+", color=INK, linewidths=1.2, zorder=4)
        axes.scatter([], [], s=55, marker="+", color=INK, linewidths=1.2, label="goal")
        axes.scatter(*b[chosen[1]], s=75, marker="*", color=VERMILION, label="chosen after", **big)
        axes.set_title(f"{K} candidates")
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

    A component's largest weight is positive, so that the picture is never mirrored.
    """
    off = points - points.mean(0)
    _, spread, axes = np.linalg.svd(off, full_matrices=False)
    signs = np.sign(axes[np.arange(2), np.abs(axes[:2]).argmax(1)])
    return off @ (axes[:2] * signs[:, None]).T, spread[:2] ** 2 / (spread**2).sum()


def coefficient_map(stem: Path, table: npt.ArrayLike, radius: float) -> list[Path]:
    """(bins, steps) mean signed transport coefficients β by learned rank and future step.

    The first row is the best bin. NaN cells stay blank. Colours range from minus to plus the
    largest |β|, which is at most `radius`.
    """
    known = np.asarray(table, float)
    if known.ndim != 2 or not np.isfinite(known).any():
        raise DjepaError("A coefficient map needs numbers (bins, steps).")
    bins, steps = known.shape
    top = float(np.nanmax(np.abs(known))) or radius
    if not radius > 0 or top > radius * (1 + 1e-6):  # float32 rounds
        raise DjepaError(f"Coefficients up to {top:g} cannot have the bound {radius:g}.")
    names = [str(i + 1) for i in range(bins)]
    digits = max(1, 1 - math.floor(math.log10(top)))
    width = 1.5 + DIGIT * (digits + 3) * steps
    with canvas(max(COLUMN, width), max(1.8, 1 + 0.24 * bins)) as figure:
        from matplotlib.colors import LinearSegmentedColormap

        axes = figure.subplots()
        signs = LinearSegmentedColormap.from_list("signs", [VERMILION, "white", BLUE])
        shown = axes.imshow(known, signs, aspect="auto", vmin=-top, vmax=top)
        for (row, step), value in np.ndenumerate(known):
            colour = "white" if abs(value) > 0.85 * top else INK
            text = "" if math.isnan(value) else signed(value, digits)
            axes.text(step, row, text, ha="center", va="center", fontsize=6.5, color=colour)
        axes.set_xticks(range(steps), [str(step + 1) for step in range(steps)])
        axes.set_yticks(range(bins), names)
        axes.set(xlabel="future step", ylabel="learned rank bin,\nbest first")
        axes.set_title("mean signed transport coefficient β")
        axes.grid(visible=False)
        axes.tick_params(length=0)
        axes.spines[:].set(visible=True, color=PALE)
        bar = figure.colorbar(shown, ax=axes, aspect=25, fraction=0.06, pad=0.02)
        bar.set_label(f"β, bound ρ = {radius:g}")
        bar.outline.set_visible(False)
        cells = [(names[i], j + 1, float(value)) for (i, j), value in np.ndenumerate(known)]
        rows = [(*at, "" if math.isnan(value) else value) for *at, value in cells]
        return save(figure, stem, ("bin", "step", "coefficient"), rows)
