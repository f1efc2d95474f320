"""The interface between physics and everything else: a world with exact restore."""

from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Frames = npt.NDArray[np.uint8]


@runtime_checkable
class World(Protocol):
    """Physics that can be restored to a recorded state and run again, bit for bit.

    `djepa.testing.check_world` tests an implementation.
    """

    name: str
    version: int
    variant: str  # distinguishes worlds of one name: a shape, a number of grains
    rule: str
    state_size: int
    action_size: int

    def restore(self, state: npt.ArrayLike) -> None:
        """Set the state to `state` (S,). Runs no physics; `snapshot` then returns the same bits."""

    def snapshot(self) -> Floats:
        """(S,) the complete state, which determines the future."""

    def step(self, control: npt.ArrayLike) -> Floats:
        """Execute one control (A,) and return the new state (S,)."""

    def execute(self, state: npt.ArrayLike, controls: npt.ArrayLike) -> Floats:
        """Execute (K, H, A) controls, each from `state`: (K, H + 1, S) states, the first = `state`.

        Does not change the live state of `step`.
        """

    def judge(self, goal: npt.ArrayLike, states: npt.ArrayLike) -> tuple[Bools, Floats]:
        """(..., S) final states -> success (...) and task cost (...), by the rule named `rule`."""

    def render(
        self, states: npt.ArrayLike, size: int = 112, goal: npt.ArrayLike | None = None
    ) -> Frames:
        """(..., S) states -> (..., size, size, 3) frames; a `goal` (S,) lies beneath."""
