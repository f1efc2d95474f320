"""Frames of one start, all cropped to the same part of the table, where the motion is.

Legend: K candidates, B blocks of five controls, S state.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.report.canvas import BORDER
from djepa.worlds.push import CANVAS, PUSHER_RADIUS, PushWorld

Array = npt.NDArray[Any]
SIZE, OUTER = 112, 112 + 2 * BORDER  # px of a frame without and with its border
LEAST = 224.0  # least side of the part, in pixels of the world


@dataclass(frozen=True, eq=False)
class View:
    """Draws states of one start, with the goal pose beneath."""

    bank: Bank
    row: int
    corner: Array  # (2,) upper left of the part, in pixels of the world
    side: float

    def frames(self, states: Array) -> Array:
        """(n, S) states -> (n, SIZE, SIZE, 3) frames of the part."""
        whole = max(SIZE, round(SIZE * CANVAS / self.side))
        x, y = np.clip(np.round(self.corner * whole / CANVAS).astype(int), 0, whole - SIZE)
        frames = self.bank.world().render(states, whole, self.bank.decisions.goal[self.row])
        return frames[:, y : y + SIZE, x : x + SIZE]


def view_of(bank: Bank, row: int, states: Array) -> View:
    """The smallest square part of the table that holds context, goal and these states (n, S)."""
    if bank.config.task.name != PushWorld.name:
        raise DjepaError(
            f"Predictions are drawn in the push world alone, not in {bank.config.world}."
        )
    known, reach = bank.decisions, bank.world().shape.reach
    both = np.concatenate([known.context[row], known.goal[row][None], states])
    rooms = ((both[:, :2], PUSHER_RADIUS), (both[:, 2:4], reach))
    ends = np.concatenate([point + sign * room for point, room in rooms for sign in (-1, 1)])
    low, high = np.clip([ends.min(0) - 4, ends.max(0) + 4], 0, CANVAS)
    side = max(LEAST, float((high - low).max()))
    return View(bank, row, np.clip((low + high - side) / 2, 0, CANVAS - side), side)


def executed_states(bank: Bank, row: int, frames: Array) -> Array:
    """Numbers k * B + b of executed frames (n,) -> their states (n, S)."""
    states = bank.outcomes.states[row]
    return np.asarray(states.reshape(-1, states.shape[-1])[frames])
