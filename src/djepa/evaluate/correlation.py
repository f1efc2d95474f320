"""Rank correlation."""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

Floats = npt.NDArray[np.floating[Any]]


def spearman(a: Floats, b: Floats) -> Floats:
    """ρ = Σ x y / √(Σ x² Σ y²) of centred average ranks, (N, k) twice -> (N,); constant: NaN."""
    centre = (a.shape[1] + 1) / 2  # exactly the mean of the ranks, so constants give exactly 0
    x, y = rankdata(a, axis=1) - centre, rankdata(b, axis=1) - centre
    scale = np.sqrt((x**2).sum(1) * (y**2).sum(1))
    return np.divide((x * y).sum(1), scale, out=np.full(len(a), np.nan), where=scale > 0)
