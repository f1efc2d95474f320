"""Starts of the reacher world: a state, its context, its history and a configuration in reach.

A behaviour plays an episode; at some moment its four numbers are taken. From there a fresh
behaviour drives H controls: the reference. Where it ends is the goal, of which only the two angles
are judged. Other segments driven from the same state in the same way are decoys.
"""

import numpy as np

from djepa.worlds.behaviours import Controls, drive
from djepa.worlds.protocol import Floats
from djepa.worlds.reacher import WRIST_STOP, ReacherWorld
from djepa.worlds.reacher_behaviours import get_behaviour
from djepa.worlds.starts import CONTEXT_STRIDE, DECOY_TRIES, HISTORY, Start

DROPS = ("solved", "replay", "decoy")  # why a drawn start may not be kept


def draw_start(
    world: ReacherWorld, behaviour: str, rng: np.random.Generator, horizon: int, centres: int = 1
) -> tuple[Start, Controls] | str:
    """Draw one start and its (C, H, 2) centres, the first being the reference.

    Returns the reason instead if the draw is not to be kept.
    """
    before = int(rng.integers(HISTORY, 51))
    states, controls = _segment(world, initial_state(world, rng), behaviour, rng, before)
    state = states[-1]
    path, reference = _segment(world, state, behaviour, rng, horizon)
    if world.judge(path[-1], state)[0]:
        return "solved"
    found = [reference]
    for _ in range(DECOY_TRIES):
        if len(found) == centres:
            break
        other, segment = _segment(world, state, behaviour, rng, horizon)
        if not world.judge(other[-1], state)[0]:
            found.append(segment)
    if len(found) < centres:
        return "decoy"
    context = states[-1 - HISTORY :: CONTEXT_STRIDE]
    return Start(state, path[-1], context, controls[-HISTORY:]), np.stack(found)


def initial_state(world: ReacherWorld, rng: np.random.Generator) -> Floats:
    """(4,) the arm at rest in any configuration, drawn as dm_control draws it."""
    angles = rng.uniform(-1.0, 1.0, 2) * [np.pi, WRIST_STOP]
    return np.concatenate([angles, np.zeros(2)])


def _segment(
    world: ReacherWorld, state: Floats, behaviour: str, rng: np.random.Generator, controls: int
) -> tuple[Floats, Controls]:
    """A fresh behaviour drives from the state: states (H + 1, 4) and controls (H, 2)."""
    world.restore(state)
    acting = get_behaviour(behaviour, world, rng)
    return drive(world, acting, controls)  # type: ignore[arg-type]
