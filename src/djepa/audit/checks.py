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
    wide = {name: torch.from_numpy(x.astype(np.float64)) for name, x in given.items()}
    check_pools(torch.from_numpy(ids.astype(np.int64)), **wide)
    if "distances" in given and given["distances"].min() < 0:
        raise DjepaError("distances must not be negative.")
