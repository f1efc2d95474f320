"""Two ways to choose, on the same starts: gains, losses, and how sure one can be.

Legend: N starts.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import binomtest

from djepa.errors import DjepaError
from djepa.evaluate.intervals import wilson

RESAMPLES, SEED = 10_000, 3072
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Paired:
    """One method against another; shares of starts."""

    starts: int
    ours: float
    ours_interval: tuple[float, float]  # Wilson 95 %
    theirs: float
    theirs_interval: tuple[float, float]
    difference: float
    difference_interval: tuple[float, float]  # 95 % of whole-start bootstrap resamples
    gains: int  # starts that only ours solves
    losses: int  # starts that only theirs solves
    p: float  # exact McNemar: gains and losses are equally likely

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def paired(ours: Bools, theirs: Bools, clusters: npt.ArrayLike | None = None) -> Paired:
    """(N,) successes of two methods on the same starts.

    `clusters` (N,) names what each belongs to where several are of one start: then whole clusters
    are resampled, and p is that of a sign test of their net gains.
    """
    a, b = np.asarray(ours, dtype=bool), np.asarray(theirs, dtype=bool)
    if a.shape != b.shape or a.ndim != 1 or not len(a):
        raise DjepaError(f"Paired methods need the same starts, got {a.shape} and {b.shape}.")
    gains, losses = int((a & ~b).sum()), int((~a & b).sum())
    change = a.astype(float) - b
    net = change if clusters is None else cluster_sums(change, clusters)
    up, down = int((net > 0).sum()), int((net < 0).sum())
    p = float(binomtest(up, up + down).pvalue) if up + down else 1.0
    spread = bootstrap(net)
    each = len(a) / len(net)  # starts of a cluster
    return Paired(
        starts=len(a),
        ours=float(a.mean()),
        ours_interval=wilson(int(a.sum()), len(a)),
        theirs=float(b.mean()),
        theirs_interval=wilson(int(b.sum()), len(b)),
        difference=float(a.mean() - b.mean()),
        difference_interval=(spread[0] / each, spread[1] / each),
        gains=gains,
        losses=losses,
        p=p,
    )


def cluster_sums(
    values: npt.NDArray[np.floating[Any]], clusters: npt.ArrayLike
) -> npt.NDArray[np.float64]:
    """(N,) values -> (C,) their sums by cluster; clusters must be of one size."""
    _, at, held = np.unique(np.asarray(clusters), return_inverse=True, return_counts=True)
    if len(at) != len(values) or len(set(held.tolist())) != 1:
        raise DjepaError("Clusters need a name for every start, and all the same size.")
    return np.bincount(at, weights=values).astype(np.float64)


def bootstrap(values: npt.NDArray[np.floating[Any]], seed: int = SEED) -> tuple[float, float]:
    """95 % interval of the mean over 10,000 resamples of whole starts, (N,) values.

    How often each start is drawn is multinomial; starts of equal value are drawn as one kind.
    """
    rng = np.random.default_rng(seed)
    kinds, held = np.unique(np.asarray(values, float), return_counts=True)
    counts = rng.multinomial(len(values), held / len(values), RESAMPLES)
    low, high = np.quantile(counts @ kinds / len(values), [0.025, 0.975])
    return float(low), float(high)
