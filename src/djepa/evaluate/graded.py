"""Paired comparison of two methods whose outcomes are qualities in [0, 1].

The cost of a row is 1 - quality. Starts of one cluster (scenes of one log) are not independent:
intervals resample whole clusters, and p is from a sign-flip test over whole clusters.

Legend: N starts, C clusters.
"""

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from djepa.errors import DjepaError
from djepa.evaluate.paired import RESAMPLES, SEED, Paired
from djepa.evaluate.rows import Row

Floats = npt.NDArray[np.float64]
POINT = 0.01  # a smaller change is neither a gain nor a loss


def qualities(rows: Iterable[Row]) -> dict[str, Floats]:
    """Method -> (N,) qualities of the same starts in the same order."""
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        found.setdefault(row.method, {})[row.start] = 1 - row.cost
    if len({frozenset(of) for of in found.values()}) > 1:
        raise DjepaError("Not all methods were run on the same starts.")
    return {name: np.array([of[s] for s in sorted(of)]) for name, of in found.items()}


def log_of(rows: Iterable[Row]) -> npt.NDArray[np.str_]:
    """(N,) the cluster of every start."""
    of = {row.start: row.identity for row in rows}
    return np.array([of[start] for start in sorted(of)])


def ratio_interval(above: Floats, below: Floats, clusters: npt.ArrayLike) -> tuple[float, float]:
    """95 % interval of Σ above / Σ below, (N,) each, over 10,000 resamples of whole clusters."""
    _, at = np.unique(np.asarray(clusters), return_inverse=True)
    sums = np.stack([np.bincount(at, weights=x) for x in (above, below)], 1)  # (C, 2)
    return ratio_ends(_resamples(len(sums)) @ sums)


def ratio_ends(drawn: Floats) -> tuple[float, float]:
    """The 95 % interval from (10,000, 2) resampled sums; those with a zero divisor are left out."""
    drawn = drawn[drawn[:, 1] > 0]
    low, high = np.quantile(drawn[:, 0] / drawn[:, 1], [0.025, 0.975])
    return float(low), float(high)


@lru_cache(maxsize=4)
def _resamples(C: int) -> Floats:
    """(10,000, C) how often each cluster is drawn; the same draws for every method."""
    rng = np.random.default_rng(SEED)
    return rng.multinomial(C, np.full(C, 1 / C), RESAMPLES).astype(float)  # floats: a fast product


def mean_interval(values: Floats, clusters: npt.ArrayLike) -> tuple[float, float]:
    """95 % interval of the mean of (N,) values over 10,000 resamples of whole clusters."""
    return ratio_interval(np.asarray(values, float), np.ones(len(values)), clusters)


def paired_quality(ours: Floats, theirs: Floats, clusters: npt.ArrayLike) -> Paired:
    """(N,) qualities of two methods on the same starts. A gain is more than one point of 100."""
    if ours.shape != theirs.shape or not len(ours):
        raise DjepaError(f"Paired methods need the same starts: {ours.shape}, {theirs.shape}.")
    change = ours - theirs
    return Paired(
        starts=len(ours),
        ours=float(ours.mean()),
        ours_interval=mean_interval(ours, clusters),
        theirs=float(theirs.mean()),
        theirs_interval=mean_interval(theirs, clusters),
        difference=float(change.mean()),
        difference_interval=mean_interval(change, clusters),
        gains=int((change > POINT).sum()),
        losses=int((change < -POINT).sum()),
        p=flips(change, clusters),
    )


def flips(change: Floats, clusters: npt.ArrayLike) -> float:
    """Two-sided p of (N,) changes: sign-flip test with 10,000 random flips of whole clusters."""
    _, at = np.unique(np.asarray(clusters), return_inverse=True)
    sums = np.bincount(at, weights=change)
    signs = np.random.default_rng(SEED).choice((-1.0, 1.0), (RESAMPLES, len(sums)))
    as_far = np.abs(signs @ sums) >= abs(sums.sum()) - 1e-12
    return float((1 + as_far.sum()) / (1 + RESAMPLES))
