"""Weights of the convex rank fusion (§4.1), fitted on outcomes of the fitting starts.

Legend: N starts, K candidates, M geometries, W weight vectors of a grid.
"""

from itertools import combinations
from math import comb

import torch
from torch import Tensor

from djepa.align.outcomes import millionths
from djepa.evidence.fusion import Fusion, fuse
from djepa.evidence.ranks import best

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
    worth = success.long() if quality is None else millionths(quality)
    wins, gaps = _judge(ranks, ids, success, seen, worth, grid)
    fold = torch.arange(len(ids), device=ids.device) % 5
    folds, held_out = [], 0
    for k in range(5):
        out = fold == k
        if out.all() or not out.any():
            continue
        at = _choose(wins[:, ~out].sum(1), gaps[:, ~out], grid)
        folds.append(_point(grid[at]))
        held_out += int(wins[at, out].sum())
    at = _choose(wins.sum(1), gaps, grid)
    return Fusion(_point(grid[at]), int(wins[at].sum()), tuple(folds), held_out)


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


def _judge(
    ranks: Tensor, ids: Tensor, success: Tensor, seen: Tensor, worth: Tensor, grid: Tensor
) -> tuple[Tensor, Tensor]:
    """(W, N) worth of the winner, and (W, N) score of the best failure minus the best success.

    The gap is NaN where one of both is missing.
    """
    never = torch.inf
    wins, gaps = [], []
    for weights in grid:
        score = fuse(ranks, _point(weights)).masked_fill(~seen, never)
        wins.append(worth.gather(1, best(score, ids)[:, None])[:, 0])
        good = score.masked_fill(~success, never).amin(1)
        bad = score.masked_fill(success, never).amin(1)
        gaps.append(torch.where(good.isfinite() & bad.isfinite(), bad - good, torch.nan))
    return torch.stack(wins), torch.stack(gaps)


def _choose(wins: Tensor, gaps: Tensor, grid: Tensor) -> int:
    """Index of the best grid point: most wins, then the ties of `fit_fusion` in turn."""
    margin = gaps.nanmean(1).nan_to_num(0.0)
    keys = [
        (int(w), round(float(g), 12), round(float(p.square().sum()), 12), _point(p))
        for w, g, p in zip(wins, margin, grid, strict=True)
    ]
    return max(range(len(keys)), key=keys.__getitem__)


def _point(weights: Tensor) -> tuple[float, ...]:
    return tuple(weights.tolist())
