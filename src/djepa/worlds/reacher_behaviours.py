"""Behaviours of the reacher world, which drive its references.

As in `djepa.worlds.behaviours`, a behaviour maps a state to a control and draws every choice from
its generator, so a seed fixes a segment. Controls have float32 values. The arm is always the same,
so behaviours do not use the world.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from djepa.errors import check_name
from djepa.worlds import behaviours
from djepa.worlds.behaviours import Behaviour
from djepa.worlds.protocol import Floats, World
from djepa.worlds.reacher import WRIST_STOP

Maker = Callable[[World, np.random.Generator], Behaviour]


class Reach:
    """A noisy PD controller to random configurations; draws a new one on arrival or timeout."""

    def __init__(self, world: World, rng: np.random.Generator) -> None:
        self._rng, self._left = rng, 0
        self._target = np.zeros(2)

    def _aim(self, angles: Floats) -> None:
        rng = self._rng
        self._left = int(rng.integers(15, 41))
        self._target = np.array(
            [angles[0] + rng.uniform(-2.5, 2.5), rng.uniform(-0.95, 0.95) * WRIST_STOP]
        )
        self._stiffness, self._damping = rng.uniform(1.0, 3.0), rng.uniform(0.1, 0.3)
        self._strength = rng.uniform(0.4, 1.0)

    def act(self, state: Floats) -> Floats:
        """(4,) state -> (2,) control."""
        angles, velocities = state[:2], state[2:]
        if self._left == 0 or np.abs(self._target - angles).max() < 0.05:
            self._aim(angles)
        self._left -= 1
        pull = self._stiffness * (self._target - angles) - self._damping * velocities
        pull = np.clip(pull, -self._strength, self._strength)
        return _control(pull + self._rng.normal(0.0, 0.05, 2))


class Swing:
    """Smooth random torques: each approaches a level that is redrawn at random times."""

    def __init__(self, world: World, rng: np.random.Generator) -> None:
        self._rng, self._left = rng, 0
        self._torque = rng.uniform(-1.0, 1.0, 2)

    def act(self, state: Floats) -> Floats:
        """(4,) state -> (2,) control."""
        if self._left == 0:
            self._left = int(self._rng.integers(4, 13))
            self._level = self._rng.uniform(-1.0, 1.0, 2)
        self._left -= 1
        self._torque = 0.7 * self._torque + 0.3 * self._level
        return _control(self._torque + self._rng.normal(0.0, 0.02, 2))


BEHAVIOURS: dict[str, Maker] = {"reach": Reach, "swing": Swing}


Explorer: Maker = partial(behaviours.Explorer, hands=BEHAVIOURS)
"""Behaviour of training episodes, with the behaviours of this world."""


def get_behaviour(name: str, world: World, rng: np.random.Generator) -> Behaviour:
    """A fresh behaviour of that name, or an error that suggests the nearest one."""
    check_name("behaviour", name, BEHAVIOURS)
    return BEHAVIOURS[name](world, rng)


def _control(torques: Floats) -> Floats:
    """Torques clipped to ±1 and rounded to float32, as they are stored."""
    return np.clip(torques, -1.0, 1.0).astype(np.float32).astype(np.float64)
