"""How a page draws a state: a few parts on a square table, their places in whole numbers.

A page replays executions in the browser, so a state must travel there as little as it can: V whole
numbers, and what they mean is said once. Between two states numbers are interpolated.

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
    """Something that is drawn; `at` names those of the V numbers that say where.

    polygon  x y angle: `corners` around that place
    disc     x y, or `many` times x y
    bar      x y of its two ends
    board    x y of where a push begins, and ends: the board is on its way between them
    """

    kind: Kind
    name: str  # in the legend
    colour: Literal["block", "pusher"]
    at: tuple[int, ...]
    size: float = 0.0  # radius of a disc, half the width of a bar or a board
    corners: tuple[tuple[float, float], ...] = ()
    trail: bool = False  # whether it leaves one
    many: int = 1


@dataclass(frozen=True)
class Sketch:
    """What a page needs to draw the states of a world."""

    side: float  # of the table: what is drawn lies within 0 and this
    parts: tuple[Part, ...]  # the lowest first
    draw: Callable[[Array, Array], Array]  # (..., T, S), (..., T - 1, A) -> (..., T, V)
    pace: float = 10.0  # controls a second


def whole(values: Array) -> npt.NDArray[np.int64]:
    """The nearest whole numbers."""
    return np.asarray(np.rint(np.asarray(values, np.float64)).astype(np.int64))


def no_sketch(world: object) -> Sketch:
    """Of a world that does not say: nothing is drawn, and a page shows no replay."""
    return Sketch(1.0, (), lambda states, controls: whole(np.asarray(states)[..., :0]))
