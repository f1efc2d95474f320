"""Checks of arguments before anything is computed: their types, ranges and shapes."""

from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.errors import DjepaError

Floats = npt.NDArray[np.floating[Any]]


def check_int(what: str, value: object, minimum: int) -> int:
    """`value` as an int of at least `minimum`; a bool or a float is refused."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise DjepaError(f"{what} must be an integer, not {value!r} ({type(value).__name__}).")
    if value < minimum:
        raise DjepaError(f"{what} must be at least {minimum}, not {value}.")
    return int(value)


def check_floats(what: str, values: object, shape: tuple[int | None, ...]) -> Floats:
    """`values` as a finite array of float16, float32 or float64; None in `shape` is any size."""
    array = np.asarray(values)
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        raise DjepaError(f"{what} must be float16, float32 or float64, not {array.dtype}.")
    fits = array.ndim == len(shape) and all(
        size > 0 and wanted in (None, size) for size, wanted in zip(array.shape, shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise DjepaError(f"{what} must have shape ({wanted}), none of it empty, not {array.shape}.")
    if not np.isfinite(array).all():
        raise DjepaError(f"{what} contains NaN or infinity.")
    # One byte order, so that equal values always have equal bytes.
    return array.astype(array.dtype.newbyteorder("="), order="C", copy=True)
