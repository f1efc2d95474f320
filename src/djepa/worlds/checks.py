"""Checks of states and controls before a world executes, judges or draws."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.errors import DjepaError
from djepa.worlds.protocol import Floats, Frames


def as_state(world: str, numbers: int, state: npt.ArrayLike) -> Floats:
    """A copy of `state` as (numbers,) finite float64."""
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


def as_ends(numbers: int, goal: npt.ArrayLike, states: npt.ArrayLike) -> tuple[Floats, Floats]:
    """A goal and final states, (..., numbers) finite float64 each."""
    ends = np.asarray(goal, np.float64), np.asarray(states, np.float64)
    for what, array in zip(("goal", "states"), ends, strict=True):
        wide = array.shape[-1:] == (numbers,)
        if not wide or not np.isfinite(array).all():
            odd = "NaN or infinity" if wide else f"shape {array.shape}"
            raise DjepaError(f"judge: {what} must be {numbers} finite numbers each, got {odd}.")
    return ends


def as_states(numbers: int, states: npt.ArrayLike) -> Floats:
    """`states` as (..., numbers) float64, for drawing."""
    many = np.asarray(states, np.float64)
    if many.shape[-1:] != (numbers,):
        raise DjepaError(f"render: {numbers} numbers a state, got an array {many.shape}.")
    return many


def draw_states(
    draw: Callable[[Any, Any], Any], states: Floats, goal: npt.ArrayLike | None
) -> Frames:
    """(..., S) states, each over its goal if there is one -> (..., size, size, 3).

    `draw` takes tensors (N, S) of states and of goals, or None, and gives (N, size, size, 3).
    """
    import torch  # here, so that workers that only execute need not import torch

    def flat(array: Floats) -> torch.Tensor:
        return torch.from_numpy(array.reshape(-1, array.shape[-1]).copy())

    marks = None
    if goal is not None:
        try:
            marks = flat(np.broadcast_to(np.asarray(goal, np.float64), states.shape))
        except ValueError:
            raise DjepaError("render: the goal must be one state or one per state.") from None
    frames = draw(flat(states), marks).numpy()
    return np.asarray(frames.reshape(*states.shape[:-1], *frames.shape[1:]))
