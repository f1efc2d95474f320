"""The decision-local gap in three numbers: distance gaps, pair inversions, rank correlations.

An audit reads outcomes. It describes a model after the fact; nothing here may feed a decision.

Legend: N starts, K candidates, k <= K a shortlist: the k lowest predicted costs of a start, ties to
the smaller candidate ID.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

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


class Columns(NamedTuple):
    """Numbers of single starts, for S shortlists; those of several blocks can be put together."""

    gap: Floats | None  # (N,) distance gap, NaN without both outcomes; None without distances
    inverted: Ids  # (N, S) inverted pairs
    pairs: Ids  # (N, S) all pairs
    rho: Floats | None = None  # (N, S) rank correlation, NaN where undefined
    predicted: Floats | None = None  # (N, K) costs, best first
    realised: Floats | None = None  # (N, K) realised costs, in the same order


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
    blocks = []
    for at in _some(len(costs)):
        truth = None if realised is None else realised[at]
        away = None if distances is None else distances[at]
        blocks.append(columns(costs[at], ids[at], success[at], truth, away, shortlists))
    return audit_of(name, together(blocks), costs.shape[1], shortlists)


def columns(
    costs: Floats,
    ids: Ids,
    success: Bools,
    realised: Floats | None = None,
    distances: Floats | None = None,
    shortlists: Sequence[int] = SHORTLISTS,
) -> Columns:
    """Checked arguments of `audit` for a block of starts -> what an audit is made of."""
    sizes = shortlist_sizes(costs.shape[1], shortlists)
    if distances is None and costs.min() >= 0:
        distances = np.sqrt(costs.astype(np.float64))
    gap = None if distances is None else _gaps(distances, success)
    pairs = _inverted(costs, ids, success, sizes)
    more = () if realised is None else _correlated(costs, realised, ids, sizes)
    return Columns(gap, *pairs, *more)


def together(parts: Sequence[Columns]) -> Columns:
    """Columns of consecutive blocks as one; those that a block lacks are left out."""
    return Columns(*map(stack, zip(*parts, strict=True)))


def stack(parts: Sequence[npt.NDArray[Any] | None]) -> Any:
    """Concatenate arrays of consecutive blocks; None if one is missing."""
    known = [part for part in parts if part is not None]
    return np.concatenate(known) if len(known) == len(parts) else None


def audit_of(
    name: str, of: Columns, candidates: int, shortlists: Sequence[int] = SHORTLISTS
) -> Audit:
    """The audit of all starts."""
    sizes = shortlist_sizes(candidates, shortlists)
    return Audit(
        name=name,
        starts=len(of.pairs),
        candidates=candidates,
        gap=None if of.gap is None else _gap(of.gap),
        inversions=_inversions(of.inverted, of.pairs, sizes),
        correlations=_correlations(of, sizes),
    )


def distance_gap(distances: Floats, success: Bools) -> Gap:
    """(N, K) distances to the goal -> g = (d_s - d_f) / (d_s + d_f) of starts with both outcomes.

    d_s and d_f are the smallest distances of a success and of a failure. g lies in [-1, 1]; above 0
    a failure is predicted nearer the goal than every success. Both at the goal: 0.
    """
    found = [_gaps(distances[at], success[at]) for at in _some(len(distances))]
    return _gap(np.concatenate(found) if found else np.empty(0))


def _gaps(distances: Floats, success: Bools) -> Floats:
    """(n,) distance gaps, NaN without both outcomes."""
    d = distances.astype(np.float64)
    good, bad = np.where(success, d, np.inf).min(1), np.where(success, np.inf, d).min(1)
    mixed, each = np.isfinite(good) & np.isfinite(bad), np.full(len(d), np.nan)
    good, bad = good[mixed], bad[mixed]
    total = good + bad
    each[mixed] = np.divide(good - bad, total, out=np.zeros_like(total), where=total > 0)
    return each


def _gap(each: Floats) -> Gap:
    gaps = each[~np.isnan(each)]
    if not len(gaps):
        return Gap(Rate(0, 0), None, None, _each(each))
    low, middle, high = np.quantile(gaps, [0.25, 0.5, 0.75]).tolist()
    return Gap(Rate(int((gaps > 0).sum()), len(gaps)), middle, (low, high), _each(each))


def pair_inversions(
    costs: Floats, ids: Ids, success: Bools, shortlists: Sequence[int] = SHORTLISTS
) -> tuple[Inversions, ...]:
    """#{(s, f) : c_f < c_s} / #{(s, f)} over successes s and failures f of a shortlist, (N, K).

    Costs are sorted once: the cheaper failures of a success are those before the first candidate
    of its cost, and every shortlist is a prefix, so running sums give all of them in O(N K).
    """
    sizes = shortlist_sizes(costs.shape[1], shortlists)
    some = (_inverted(costs[at], ids[at], success[at], sizes) for at in _some(len(costs)))
    inverted, pairs = (np.concatenate(column) for column in zip(*some, strict=True))
    return _inversions(inverted, pairs, sizes)


def _inversions(inverted: Ids, pairs: Ids, sizes: Sequence[int]) -> tuple[Inversions, ...]:
    found = []
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
    sizes, none = shortlist_sizes(costs.shape[1], shortlists), np.empty((len(costs), 0), int)
    some = (_correlated(costs[at], realised[at], ids[at], sizes) for at in _some(len(costs)))
    return _correlations(Columns(None, none, none, *map(stack, zip(*some, strict=True))), sizes)


def _correlated(
    costs: Floats, realised: Floats, ids: Ids, sizes: Sequence[int]
) -> tuple[Floats, Floats, Floats]:
    """(n, K) -> (n, S) correlations within starts, and both costs with the best candidate first."""
    a, b = _sorted(costs, ids, costs, realised)
    return np.stack([spearman(a[:, :k], b[:, :k]) for k in sizes], axis=1), a, b


def _correlations(of: Columns, sizes: Sequence[int]) -> tuple[Correlation, ...]:
    if of.rho is None or of.predicted is None or of.realised is None:
        return ()
    found = []
    for k, rho in zip(sizes, of.rho.T, strict=True):
        # Over all starts at once: these ranks need the costs of every start.
        both = (costs[:, :k].reshape(1, -1) for costs in (of.predicted, of.realised))
        pooled, count = _mean(spearman(*both)), int(np.isfinite(rho).sum())
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
