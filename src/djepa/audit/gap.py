"""The decision-local gap in three numbers: distance gaps, pair inversions, rank correlations.

An audit reads outcomes. It describes a model after the fact; nothing here may feed a decision.

Legend: N starts, K candidates, k <= K a shortlist: the k lowest predicted costs of a start, ties to
the smaller candidate ID.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.audit.checks import check_arrays
from djepa.audit.result import Audit, Correlation, Each, Gap, Inversions
from djepa.evaluate.correlation import spearman
from djepa.evaluate.intervals import Rate

Floats = npt.NDArray[np.floating[Any]]
Ids = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]
SHORTLISTS = (63, 32, 16, 8, 4)
AT_ONCE = 4096  # starts


def audit(
    name: str,
    costs: Floats,
    ids: Ids,
    success: Bools,
    realised: Floats | None = None,
    distances: Floats | None = None,
    shortlists: Sequence[int] = SHORTLISTS,
) -> Audit:
    """(N, K) predicted costs, IDs and outcomes, optionally realised costs -> the audit.

    `distances` to the goal are √costs by default, as for a mean-square cost; costs below 0 have
    none, and then there is no gap.
    """
    check_arrays(ids, success, costs=costs, realised=realised, distances=distances)
    if distances is None and costs.min() >= 0:
        distances = np.sqrt(costs.astype(np.float64))
    correlations: tuple[Correlation, ...] = ()
    if realised is not None:
        correlations = rank_correlations(costs, realised, ids, shortlists)
    return Audit(
        name=name,
        starts=len(costs),
        candidates=costs.shape[1],
        gap=None if distances is None else distance_gap(distances, success),
        inversions=pair_inversions(costs, ids, success, shortlists),
        correlations=correlations,
    )


def distance_gap(distances: Floats, success: Bools) -> Gap:
    """(N, K) distances to the goal -> g = (d_s - d_f) / (d_s + d_f) of starts with both outcomes.

    d_s and d_f are the smallest distances of a success and of a failure. g lies in [-1, 1]; above 0
    a failure is predicted nearer the goal than every success. Both at the goal: 0.
    """
    d = distances.astype(np.float64)
    nearest = np.where(success, d, np.inf).min(1), np.where(success, np.inf, d).min(1)
    mixed = np.isfinite(nearest[0]) & np.isfinite(nearest[1])
    each = np.full(len(d), np.nan)
    if not mixed.any():
        return Gap(Rate(0, 0), None, None, _each(each))
    good, bad = nearest[0][mixed], nearest[1][mixed]
    total = good + bad
    gaps = np.divide(good - bad, total, out=np.zeros_like(total), where=total > 0)
    each[mixed] = gaps
    low, middle, high = np.quantile(gaps, [0.25, 0.5, 0.75]).tolist()
    return Gap(Rate(int((gaps > 0).sum()), len(gaps)), middle, (low, high), _each(each))


def pair_inversions(
    costs: Floats, ids: Ids, success: Bools, shortlists: Sequence[int] = SHORTLISTS
) -> tuple[Inversions, ...]:
    """#{(s, f) : c_f < c_s} / #{(s, f)} over successes s and failures f of a shortlist, (N, K).

    Costs are sorted once: the cheaper failures of a success are those before the first candidate
    of its cost, and every shortlist is a prefix, so running sums give all of them in O(N K).
    """
    sizes, found = shortlist_sizes(costs.shape[1], shortlists), []
    some = (_inverted(costs[at], ids[at], success[at], sizes) for at in _some(len(costs)))
    inverted, pairs = (np.concatenate(column) for column in zip(*some, strict=True))
    for k, wrong, of in zip(sizes, inverted.T, pairs.T, strict=True):
        share = np.divide(wrong, of, out=np.full(len(of), np.nan), where=of > 0)
        found.append(Inversions(k, int((of > 0).sum()), int(of.sum()), _mean(share), _each(share)))
    return tuple(found)


def _inverted(costs: Floats, ids: Ids, success: Bools, sizes: Sequence[int]) -> tuple[Ids, Ids]:
    """(n, K) -> (n, S) inverted pairs and all pairs of every shortlist."""
    c, won = _sorted(costs, ids, costs, success)
    lost, at = ~won, [k - 1 for k in sizes]
    new = np.concatenate([np.ones_like(won[:, :1]), c[:, 1:] != c[:, :-1]], axis=1)
    first = np.maximum.accumulate(np.where(new, np.arange(c.shape[1]), 0), axis=1)
    cheaper = np.take_along_axis(lost.cumsum(1) - lost, first, 1)  # failures below each cost
    return (cheaper * won).cumsum(1)[:, at], (won.cumsum(1) * lost.cumsum(1))[:, at]


def rank_correlations(
    costs: Floats, realised: Floats, ids: Ids, shortlists: Sequence[int] = SHORTLISTS
) -> tuple[Correlation, ...]:
    """Predicted against realised (N, K) costs within each start, and over all starts at once."""
    predicted, truth = _sorted(costs, ids, costs, realised)
    found = []
    for k in shortlist_sizes(costs.shape[1], shortlists):
        a, b = predicted[:, :k], truth[:, :k]
        rho = np.concatenate([spearman(a[at], b[at]) for at in _some(len(a))])
        pooled = _mean(spearman(a.reshape(1, -1), b.reshape(1, -1)))
        count = int(np.isfinite(rho).sum())
        found.append(Correlation(k, count, len(rho) - count, _mean(rho), pooled, _each(rho)))
    return tuple(found)


def shortlist_sizes(K: int, wanted: Sequence[int] = SHORTLISTS) -> tuple[int, ...]:
    """K itself and the wanted sizes below it, longest first."""
    return tuple(sorted({K, *(k for k in wanted if 1 < k < K)}, reverse=True))


def _sorted(costs: Floats, ids: Ids, *arrays: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """(N, K) arrays with each start's candidates in order of predicted cost, then of ID."""
    order = np.lexsort((ids, costs), axis=1)
    return [np.take_along_axis(array, order, 1) for array in arrays]


def _some(starts: int) -> Iterator[slice]:
    """Consecutive slices of at most AT_ONCE starts, to bound the memory."""
    return (slice(at, at + AT_ONCE) for at in range(0, starts, AT_ONCE))


def _mean(values: Floats) -> float | None:
    there = values[np.isfinite(values)]
    return float(there.mean()) if len(there) else None


def _each(values: Floats) -> Each:
    return tuple(None if np.isnan(value) else float(value) for value in values)
