"""The live state of a world whose numbers are its whole state: snapshot, restore and copies."""

from typing import Any

import numpy.typing as npt

from djepa.worlds.checks import as_state
from djepa.worlds.protocol import Floats


class Restorable:
    """Gives a world its live state (S,); a copy is made anew and restored to the same numbers.

    `made_with` lists the arguments that the world was made with.
    """

    name: str
    state_size: int
    made_with: tuple[Any, ...]
    _state: Floats

    def restore(self, state: npt.ArrayLike) -> None:
        """Set the state to `state` (S,); no physics step is run."""
        self._state = as_state(self.name, self.state_size, state)

    def snapshot(self) -> Floats:
        """(S,) the live state."""
        return self._state.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.made_with, self._state)


def _restored(kind: type[Restorable], made_with: tuple[Any, ...], state: Floats) -> Restorable:
    world = kind(*made_with)
    world.restore(state)
    return world
