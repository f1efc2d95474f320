"""The density control: chooses where candidates are dense. It sees no goal and no outcome.

Its success shows how much the construction of a pool reveals the solution, so it is reported beside
every method. Shapes: N starts, K candidates, F features.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.checks import check_int
from djepa.errors import DjepaError

Array64 = npt.NDArray[np.float64]

CHUNK = 1 << 21
"""Most float64 numbers in one block of differences: 16 MiB."""


def density_scores(points: npt.ArrayLike, neighbours: int = 8) -> Array64:
    """Mean Euclidean distance to the nearest others, for points (K, F) or (N, K, F).

    Returns (K,) or (N, K); low is dense. `neighbours` is capped at K - 1.
    """
    array = _checked_points(points)
    nearest = min(check_int("neighbours", neighbours, 1), array.shape[-2] - 1)
    starts = array.reshape(-1, *array.shape[-2:])
    scores = np.stack([_one_start(start, nearest) for start in starts])
    return scores.reshape(array.shape[:-1])


def density_pick(
    points: npt.ArrayLike, ids: npt.ArrayLike, neighbours: int = 8
) -> npt.NDArray[np.int64]:
    """ID of the densest candidate, () or (N,); ties go to the smaller ID.

    `ids` is (K,), shared by all starts, or (N, K).
    """
    scores = density_scores(points, neighbours)
    named = _checked_ids(ids, scores.shape)
    best = scores == scores.min(axis=-1, keepdims=True)
    return np.asarray(np.where(best, named, np.iinfo(np.int64).max).min(axis=-1))


def _one_start(points: Array64, nearest: int) -> Array64:
    """(K,) scores of one start (K, F), in blocks of rows.

    Differences, not a matrix product, and a full sort before the mean: each score is then the
    same to the last bit in any order of the candidates.
    """
    count, features = points.shape
    rows = max(1, CHUNK // (count * features))
    scores = np.empty(count)
    for first in range(0, count, rows):
        block = points[first : first + rows]
        distances = np.sqrt(np.square(block[:, None] - points[None]).sum(axis=-1))
        own = np.arange(len(block))
        distances[own, first + own] = np.inf
        distances.sort(axis=-1)
        scores[first : first + rows] = distances[:, :nearest].mean(axis=-1)
    return scores


def _checked_points(points: npt.ArrayLike) -> Array64:
    array = np.asarray(points)
    if array.dtype.kind not in "fiu":
        raise DjepaError(f"Points must be real numbers, not {array.dtype}.")
    if array.ndim not in (2, 3) or 0 in array.shape or array.shape[-2] < 2:
        raise DjepaError(
            f"Points must have shape (K, F) or (N, K, F) with at least 2 candidates, "
            f"not {array.shape}."
        )
    if not np.isfinite(array).all():
        raise DjepaError("Points contain NaN or infinity.")
    return np.ascontiguousarray(array, dtype=np.float64)


def _checked_ids(ids: npt.ArrayLike, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    array: npt.NDArray[Any] = np.asarray(ids)
    if array.dtype.kind not in "iu" or array.shape not in (shape, shape[-1:]):
        raise DjepaError(
            f"ids must be integers of shape {shape[-1:]} or {shape}, "
            f"not {array.dtype} {array.shape}."
        )
    if (np.diff(np.sort(array, axis=-1), axis=-1) == 0).any():
        raise DjepaError("ids must be unique within a start.")
    return array.astype(np.int64)
