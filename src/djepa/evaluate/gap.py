"""Gap closed: a method's gain over a base, as a share of the best candidate's gain.

    Σ (ours - base) / Σ (best - base)      of successes or of qualities, over the same starts

Legend: N starts, C clusters.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from djepa.errors import DjepaError
from djepa.evaluate.graded import log_of, qualities, ratio_ends, ratio_interval
from djepa.evaluate.paired import RESAMPLES, SEED
from djepa.evaluate.rows import Row, successes

ORACLE = "oracle"


@dataclass(frozen=True)
class GapClosed:
    """A share, negative where ours is worse than the base, and its 95 % interval."""

    share: float
    interval: tuple[float, float]

    def __str__(self) -> str:
        share, low, high = (round(100 * x) for x in (self.share, *self.interval))
        return f"{share} % ({low} to {high})"


def gap_closed(rows: Sequence[Row], ours: str, base: str, graded: bool = False) -> GapClosed:
    """The gap closed by `ours` over `base`, with a bootstrap interval.

    Resamples draw whole starts, or whole clusters where outcomes are `graded`. A resample in which
    the best candidate gains nothing over the base is left out.
    """
    known = qualities(rows) if graded else successes(rows)
    a, b, best = (known[name].astype(float) for name in (ours, base, ORACLE))
    if not graded and (np.maximum(a, b) > best).any():
        raise DjepaError("A method solves a start that the oracle does not: not the same pools.")
    won, left = a - b, best - b
    if left.sum() <= 0:
        raise DjepaError(f"{base} is the best candidate everywhere: there is no gap to close.")
    if graded:
        interval = ratio_interval(won, left, log_of(rows))
    else:
        kinds, counts = np.unique(np.stack([won, left], 1), axis=0, return_counts=True)
        drawn = np.random.default_rng(SEED).multinomial(len(a), counts / len(a), RESAMPLES)
        interval = ratio_ends(drawn @ kinds)
    return GapClosed(float(won.sum() / left.sum()), interval)
