"""The granular world: a flat board pushes a pile of discs on an open table.

State (4 n numbers): x y of every grain, then the velocity x y of every grain. A control is one
whole push (x0, y0, x1, y1): the board is lowered at the first point, at right angles to the path,
moves straight to the second, is lifted, and the grains come to rest. The board is up between pushes
and so not part of the state. Units are those of `djepa.pools.granular`.

The state is complete. Every push runs in a new physics space, so a rollout that is stopped and
restored anywhere continues with the same bits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from djepa.errors import DjepaError
from djepa.worlds.chamfer import get_granular_rule
from djepa.worlds.checks import as_controls, as_ends, as_states, draw_states
from djepa.worlds.granular_space import run_push
from djepa.worlds.protocol import Bools, Floats, Frames

if TYPE_CHECKING:
    from torch import Tensor

    from djepa.worlds.granular_draw import GranularLook

PUSH_BOUND = 4.0  # of every number of a push; `djepa.pools.granular` clips to the same
FAR = 100.0  # largest coordinate of a grain, and largest speed per second, in a state
VIEW = 2.5  # frames show the square within ± this, which pushed grains rarely leave
PILE = 2.3  # side of the reset pile, whatever the number of grains
THICK = 0.56  # of a grain, in spacings of that pile; a pile scaled by 0.6 has no contacts
MAX_GRAINS = 1000


class GranularWorld:
    """`particles` grains on the table. Holds only their live state, for `step`."""

    name = "granular"
    version = 1
    action_size = 4

    def __init__(
        self,
        particles: int = 100,
        rule: str = "granular.v1",
        goals: tuple[str, ...] = ("reached",),
    ) -> None:
        if type(particles) is not int or not 1 <= particles <= MAX_GRAINS:
            raise DjepaError(f"particles must be 1 to {MAX_GRAINS} (whole), got {particles!r}.")
        self.particles = particles
        self.variant = "-".join((str(particles), *goals)) if len(goals) > 1 else str(particles)
        self.state_size = 4 * particles
        self.radius = grain_radius(particles)
        self.rule, self.goals = rule, goals  # kinds of goals of its starts
        self._cost = get_granular_rule(rule)
        self._state = as_state(reset_places(particles))

    def restore(self, state: npt.ArrayLike) -> None:
        """Set the state to `state` (4 n,); no physics is run."""
        self._state = self._checked(state)

    def snapshot(self) -> Floats:
        """(4 n,) the live state."""
        return self._state.copy()

    def step(self, control: npt.ArrayLike) -> Floats:
        """Execute one push (4,) and let the grains come to rest."""
        self._state = self._pushed(self._state, as_controls("Pushes", (4,), control, PUSH_BOUND))
        return self._state.copy()

    def execute(self, state: npt.ArrayLike, controls: npt.ArrayLike) -> Floats:
        """(K, H, 4) pushes, each row executed from `state` -> (K, H + 1, 4 n)."""
        start = self._checked(state)
        pushes = as_controls("Pushes", (None, None, 4), controls, PUSH_BOUND)
        K, H, _ = pushes.shape
        states = np.empty((K, H + 1, self.state_size))
        states[:, 0] = start
        for k, h in np.ndindex(K, H):
            states[k, h + 1] = self._pushed(states[k, h], pushes[k, h])
        return states

    def judge(self, goal: npt.ArrayLike, states: npt.ArrayLike) -> tuple[Bools, Floats]:
        """(..., 4 n) final states -> success and task cost; success is cost < 1.

        Velocities and the identity of grains do not count.
        """
        end, final = as_ends(self.state_size, goal, states)
        cost = self._cost(places(final), places(end))
        return cost < 1.0, cost

    def render(
        self,
        states: npt.ArrayLike,
        size: int = 112,
        goal: npt.ArrayLike | None = None,
        look: GranularLook | None = None,
    ) -> Frames:
        """(..., 4 n) states -> (..., size, size, 3); `goal` (4 n,) or (..., 4 n) lies beneath."""
        from djepa.worlds.granular_draw import draw_granular

        def draw(flat: Tensor, goals: Tensor | None) -> Tensor:
            marks = None if goals is None else places(goals)
            return draw_granular(places(flat), self.radius, size, marks, look)

        return draw_states(draw, as_states(self.state_size, states), goal)

    def _pushed(self, state: Floats, push: Floats) -> Floats:
        """One push from a state (4 n,), in a fresh space."""
        grains = np.hstack([*state.reshape(2, -1, 2)])
        after = run_push(grains, self.radius, push)
        return np.concatenate([after[:, :2].ravel(), after[:, 2:].ravel()])

    def _checked(self, state: npt.ArrayLike) -> Floats:
        array = np.array(state, dtype=np.float64)
        if array.shape != (self.state_size,):
            raise DjepaError(
                f"A state of {self.particles} grains has {self.state_size} numbers, "
                f"got an array of shape {array.shape}."
            )
        if not (np.abs(array) <= FAR).all():  # also false for NaN
            raise DjepaError(f"A granular state must be finite and within ±{FAR:g}.")
        return array


def places(states: Any) -> Any:
    """(..., 4 n) states -> (..., n, 2) positions of the grains."""
    n = states.shape[-1] // 4
    return states[..., : 2 * n].reshape(*states.shape[:-1], n, 2)


def as_state(points: Floats) -> Floats:
    """(..., n, 2) places -> (..., 4 n) a state at rest."""
    flat = np.asarray(points, np.float64).reshape(*points.shape[:-2], -1)
    return np.concatenate([flat, np.zeros_like(flat)], axis=-1)


def grain_radius(particles: int) -> float:
    """Radius of a grain: it shrinks with their number, so that the pile keeps its size."""
    return THICK * PILE / _columns(particles) / 2


def _columns(particles: int) -> int:
    return math.isqrt(particles - 1) + 1


def reset_places(particles: int) -> Floats:
    """(n, 2) the pile that every episode begins with: a square patch about the middle."""
    side = _columns(particles)
    rows, columns = np.divmod(np.arange(particles), side)
    short = (side - np.bincount(rows)[rows]) / 2  # centres an incomplete last row
    patch = np.stack([columns + short, rows], axis=1) - [(side - 1) / 2, rows[-1] / 2]
    return np.asarray(patch * (PILE / side))
