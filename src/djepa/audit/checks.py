"""Checks of audit inputs: arrays of one shape, unique IDs, finite values."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from djepa.errors import DjepaError
from djepa.evidence.ranks import check_pools

Array = npt.NDArray[Any]


def check_arrays(ids: Array, success: Array, **scores: Array | None) -> None:
    """Refuse what is not (N, K) integer IDs, booleans and finite numbers; scores may be None."""
    if not np.issubdtype(ids.dtype, np.integer):
        raise DjepaError(f"ids must be integers, got {ids.dtype}.")
    if ids.ndim != 2 or not len(ids):
        raise DjepaError(f"ids must be (N, K) with at least one start, got {ids.shape}.")
    if success.dtype != np.bool_:
        raise DjepaError(f"success must be true or false (dtype bool), got {success.dtype}.")
    if success.shape != ids.shape:
        raise DjepaError(f"success is {success.shape}, ids are {ids.shape}.")
    given = {name: score for name, score in scores.items() if score is not None}
    for name, score in given.items():
        if not np.issubdtype(score.dtype, np.floating):
            raise DjepaError(f"{name} must be floating point, got {score.dtype}.")
    check_pools(_tensor(ids, np.int64), **{n: _tensor(x, np.float64) for n, x in given.items()})
    if "distances" in given and given["distances"].min() < 0:
        raise DjepaError("distances must not be negative.")


def _tensor(array: Array, wide: type[np.generic]) -> torch.Tensor:
    """The array as a tensor: itself where torch can read it in place, else a copy as `wide`."""
    read = array.dtype in (np.int64, np.float32, np.float64) and array.flags.c_contiguous
    return torch.from_numpy(array if read and array.flags.writeable else array.astype(wide))
