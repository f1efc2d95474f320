"""Rank correlation."""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

Floats = npt.NDArray[np.floating[Any]]


def spearman(a: Floats, b: Floats) -> Floats:
    """ρ = Σ x y / √(Σ x² Σ y²) of centred average ranks, (N, k) twice -> (N,); constant: NaN."""
    centre = (a.shape[1] + 1) / 2  # exactly the mean of the ranks, so constants give exactly 0
    x, y = rankdata(a, axis=1), rankdata(b, axis=1)
    x -= centre
    y -= centre
    both = (x * y).sum(1)
    x *= x  # in place: of all starts at once, each array is a large one
    y *= y
    scale = np.sqrt(x.sum(1) * y.sum(1))
    return np.divide(both, scale, out=np.full(len(a), np.nan), where=scale > 0)
