"""What worlds refuse before they execute anything."""

import numpy as np
import numpy.typing as npt

from djepa.errors import DjepaError
from djepa.worlds.protocol import Floats


def as_state(world: str, numbers: int, state: npt.ArrayLike) -> Floats:
    """(numbers,) finite float64, a copy."""
    array = np.array(state, dtype=np.float64)
    if array.shape != (numbers,):
        raise DjepaError(
            f"A {world} state has {numbers} numbers, got an array of shape {array.shape}."
        )
    if not np.isfinite(array).all():
        raise DjepaError(f"A {world} state must be finite, got {array.tolist()}.")
    return array


def as_controls(
    what: str, shape: tuple[int | None, ...], controls: npt.ArrayLike, limit: float = 1.0
) -> Floats:
    """Float64 within ± the limit; None in the shape stands for any K, then any H."""
    array = np.asarray(controls, dtype=np.float64)
    wanted = tuple("KH"[i] if n is None else n for i, n in enumerate(shape))
    if array.ndim != len(shape) or array.shape[-1] != shape[-1]:
        raise DjepaError(f"{what} must have shape {wanted}, got {array.shape}.")
    if not (np.abs(array) <= limit).all():  # also false for NaN
        raise DjepaError(
            f"{what} must lie in [-{limit:g}, {limit:g}]; found a value outside, or not finite."
        )
    return array
