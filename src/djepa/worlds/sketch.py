"""How a page draws a state: a few parts on a square table, with integer coordinates.

A page replays executions in the browser, so states must be small: V integers each, whose meaning is
stored once. Numbers are interpolated between two states.

Legend: K candidates, H controls, S numbers in a state, A action width, V numbers of a drawn state.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Kind = Literal["polygon", "disc", "bar", "board"]
ANGLE = 1000  # angles are stored in thousandths of a radian


@dataclass(frozen=True)
class Part:
    """A part of the drawing; `at` selects its coordinates among the V numbers.

    polygon  x y angle: `corners` around that point
    disc     x y, or `many` times x y
    bar      x y of its two ends
    board    x y of the begin and the end of a push, between which the board moves
    """

    kind: Kind
    name: str  # in the legend
    colour: Literal["block", "pusher"]
    at: tuple[int, ...]
    size: float = 0.0  # radius of a disc, half the width of a bar or a board
    corners: tuple[tuple[float, float], ...] = ()
    trail: bool = False  # whether its path is drawn
    many: int = 1


@dataclass(frozen=True)
class Sketch:
    """What a page needs to draw the states of a world."""

    side: float  # of the table: coordinates are between 0 and this
    parts: tuple[Part, ...]  # the lowest first
    draw: Callable[[Array, Array], Array]  # (..., T, S), (..., T - 1, A) -> (..., T, V)
    pace: float = 10.0  # controls a second


def whole(values: Array) -> npt.NDArray[np.int64]:
    """Values rounded to integers."""
    return np.asarray(np.rint(np.asarray(values, np.float64)).astype(np.int64))


def no_sketch(world: object) -> Sketch:
    """The default sketch of a world: nothing is drawn, and a page shows no replay."""
    return Sketch(1.0, (), lambda states, controls: whole(np.asarray(states)[..., :0]))
