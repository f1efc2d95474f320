"""Paired comparison of two methods on the same starts: gains, losses, interval and p-value."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.errors import DjepaError
from djepa.evaluate.intervals import wilson

RESAMPLES, SEED = 10_000, 3072
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Paired:
    """One method against another: success rates over starts, and their difference."""

    starts: int
    ours: float
    ours_interval: tuple[float, float]  # Wilson 95 %
    theirs: float
    theirs_interval: tuple[float, float]
    difference: float
    difference_interval: tuple[float, float]  # 95 % of whole-start bootstrap resamples
    gains: int  # starts that only ours solves
    losses: int  # starts that only theirs solves
    p: float  # two-sided and exact: McNemar's test, or `sign_flip` of clusters

    @property
    def points(self) -> str:
        """The difference in points of 100, and its interval: `+3.1 (+1.0 to +5.2)`."""
        return with_ends(self.difference, *self.difference_interval)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def with_ends(share: float, low: float, high: float, unit: str = "") -> str:
    """A difference of shares in points of 100, such as `+3.1 (+1.0 to +5.2)`; never -0.0."""
    mean, *ends = (f"{round(100 * x, 1) + 0.0:+.1f}" for x in (share, low, high))
    return f"{mean}{unit} ({ends[0]} to {ends[1]})"


def paired(ours: Bools, theirs: Bools, clusters: npt.ArrayLike | None = None) -> Paired:
    """Compare (N,) successes of two methods on the same starts.

    `clusters` (N,) names the start of each row where rows are looks of one start. Then whole starts
    are resampled, and p is from a sign-flip test over whole starts.
    """
    a, b = np.asarray(ours, dtype=bool), np.asarray(theirs, dtype=bool)
    if a.shape != b.shape or a.ndim != 1 or not len(a):
        raise DjepaError(f"Paired methods need the same starts, got {a.shape} and {b.shape}.")
    gains, losses = int((a & ~b).sum()), int((~a & b).sum())
    change = a.astype(float) - b
    net = change if clusters is None else cluster_sums(change, clusters)
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
        p=sign_flip(net),
    )


def sign_flip(net: npt.NDArray[np.float64]) -> float:
    """Exact two-sided p of (C,) whole net gains: the share of all 2^C sign changes whose |sum| is
    at least the one observed. Without clusters every net gain is -1, 0 or 1, and this is McNemar's
    exact test. The distribution of the sum is a product of polynomials ½ x^-g + ½ x^g.
    """
    sizes = np.abs(np.rint(net)).astype(int)
    chance = np.ones(1)  # P of the sums -S, -S + 2, ..., S, with S the sum of sizes so far
    for size in sizes[sizes > 0]:
        grown = np.zeros(len(chance) + size)
        grown[: len(chance)] += chance / 2
        grown[size:] += chance / 2
        chance = grown
    sums = np.abs(2 * np.arange(len(chance)) - (len(chance) - 1))
    return float(min(1.0, chance[sums >= abs(round(float(net.sum())))].sum()))


def cluster_sums(
    values: npt.NDArray[np.floating[Any]], clusters: npt.ArrayLike
) -> npt.NDArray[np.float64]:
    """(N,) values -> (C,) their sums by cluster; clusters must be of one size."""
    _, at, sizes = np.unique(np.asarray(clusters), return_inverse=True, return_counts=True)
    if len(at) != len(values) or len(set(sizes.tolist())) != 1:
        raise DjepaError("Clusters need a name for every start, and all the same size.")
    return np.bincount(at, weights=values).astype(np.float64)


def bootstrap(values: npt.NDArray[np.floating[Any]]) -> tuple[float, float]:
    """95 % interval of the mean over 10,000 resamples of whole starts, (N,) values.

    Counts of starts in a resample are multinomial, so starts of equal value are drawn together.
    """
    rng = np.random.default_rng(SEED)
    kinds, counted = np.unique(np.asarray(values, float), return_counts=True)
    counts = rng.multinomial(len(values), counted / len(values), RESAMPLES)
    low, high = np.quantile(counts @ kinds / len(values), [0.025, 0.975])
    return float(low), float(high)
