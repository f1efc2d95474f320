"""Weights of the convex rank fusion (§4.1), fitted on outcomes of the fitting starts.

Legend: N starts, K candidates, M geometries, W weight vectors of a grid.
"""

from itertools import combinations
from math import comb
from typing import NamedTuple

import torch
from torch import Tensor

from djepa.align.outcomes import millionths
from djepa.evidence.blocks import in_blocks
from djepa.evidence.fusion import Fusion, fuse
from djepa.evidence.ranks import best
from djepa.threads import one_thread

LARGEST = 2000  # points of the default grid, at most


def fit_fusion(
    ranks: Tensor,
    ids: Tensor,
    success: Tensor,
    parts: int | None = None,
    observed: Tensor | None = None,
    quality: Tensor | None = None,
) -> Fusion:
    """The point of a simplex grid whose winners succeed most often, or have the most `quality`.

    `ranks` are (N, K, M). Quality (N, K) in [0, 1] is counted in whole millionths, so that sums are
    exact. Two geometries have 101 grid points. More have steps of 1 / `parts`, by default 20 parts,
    or fewer to keep the grid within 2,000 points. Ties go to the larger mean gap between the best
    failure and the best success, then to the more concentrated mixture, then to the larger leading
    weights. Only `observed` candidates can win.
    """
    M = ranks.shape[-1]
    grid = simplex(M, parts or finest(M))
    seen = torch.ones_like(success) if observed is None else observed
    worth = success if quality is None else millionths(quality)
    fold = torch.arange(len(ids), device=ids.device) % 5
    out = [fold == k for k in range(5)]
    out = [rows for rows in out if rows.any() and not rows.all()]
    tried = [list[_Tried]() for _ in (*out, None)]  # without each fold, then on all starts
    for point in map(_point, grid):  # one at a time: a table of all would be (W, N)
        wins, gaps = _judge(point, ranks, ids, success, seen, worth)
        for found, rows in zip(tried, (*out, fold < 0), strict=True):
            key = _key(wins[~rows], gaps[~rows], point)
            found.append(_Tried(key, point, int(wins[rows].sum())))
    *folds, whole = (max(found, key=lambda one: one.key) for found in tried)
    held_out = sum(one.held_out for one in folds)
    return Fusion(whole.point, whole.key[0], tuple(one.point for one in folds), held_out)


def finest(M: int) -> int:
    """Parts of the default grid for M geometries."""
    sizes = range(100 if M == 2 else 20, 1, -1)
    return next((parts for parts in sizes if comb(parts + M - 1, M - 1) <= LARGEST), 1)


def simplex(M: int, parts: int) -> Tensor:
    """(W, M) float64: all points of the simplex whose coordinates are multiples of 1 / `parts`."""
    if M == 1:
        return torch.ones(1, 1, dtype=torch.float64)
    bars = torch.tensor(list(combinations(range(parts + M - 1), M - 1)), dtype=torch.float64)
    bars = bars.view(-1, M - 1)
    edge = torch.full((len(bars), 1), -1.0, dtype=torch.float64)
    edges = torch.cat([edge, bars, edge + parts + M], dim=1)
    return (edges.diff(dim=1) - 1) / parts


class _Tried(NamedTuple):
    """A grid point on some starts."""

    key: tuple[int, float, float, tuple[float, ...]]
    point: tuple[float, ...]
    held_out: int  # worth of its winners on the other starts


def _judge(
    point: tuple[float, ...],
    ranks: Tensor,
    ids: Tensor,
    success: Tensor,
    seen: Tensor,
    worth: Tensor,
) -> tuple[Tensor, Tensor]:
    """(N,) worth of the winner, and (N,) score of the best failure minus the best success.

    The gap is NaN where one of both is missing.
    """
    never = torch.inf

    def judged(ranks: Tensor, ids: Tensor, success: Tensor, seen: Tensor, worth: Tensor) -> Tensor:
        score = fuse(ranks, point).masked_fill(~seen, never)
        wins = worth.gather(1, best(score, ids)[:, None])[:, 0]
        good = score.masked_fill(~success, never).amin(1)
        bad = score.masked_fill(success, never).amin(1)
        gaps = torch.where(good.isfinite() & bad.isfinite(), bad - good, torch.nan)
        return torch.stack([wins.double(), gaps], dim=1)  # worth is at most 10⁶

    wins, gaps = in_blocks(judged, ranks, ids, success, seen, worth).unbind(1)
    return wins.long(), gaps


def _key(
    wins: Tensor, gaps: Tensor, point: tuple[float, ...]
) -> tuple[int, float, float, tuple[float, ...]]:
    """What decides between grid points: most worth, then the ties of `fit_fusion` in turn."""
    with one_thread():  # so that the sum is rounded alike on any machine
        margin = gaps.nanmean().nan_to_num(0.0)
    weights = torch.tensor(point, dtype=torch.float64)
    spread = round(float(weights.square().sum()), 12)
    return int(wins.sum()), round(float(margin), 12), spread, point


def _point(weights: Tensor) -> tuple[float, ...]:
    return tuple(weights.tolist())
