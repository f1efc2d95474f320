"""Starts of the reacher world: a state, its context, its history and a reachable configuration.

A behaviour runs an episode, and the start is its state at a random step. From it a new behaviour
drives H controls: the reference. Its final state is the goal, of which only the two angles are
judged. Other segments driven from the same state in the same way are decoys.
"""

from functools import partial

import numpy as np

from djepa.worlds.behaviours import Controls
from djepa.worlds.protocol import Floats
from djepa.worlds.reacher import WRIST_STOP, ReacherWorld
from djepa.worlds.reacher_behaviours import get_behaviour
from djepa.worlds.starts import CONTEXT_STRIDE, HISTORY, Start, drive_from, with_decoys

DROPS = ("solved", "replay", "decoy")  # why a drawn start may not be kept


def draw_start(
    world: ReacherWorld, behaviour: str, rng: np.random.Generator, horizon: int, centres: int = 1
) -> tuple[Start, Controls] | str:
    """Draw one start and its (C, H, 2) centres, the first being the reference.

    Returns the reason instead if the draw is dropped.
    """
    before = int(rng.integers(HISTORY, 51))
    fresh = partial(get_behaviour, behaviour, world, rng)
    states, controls = drive_from(world, initial_state(world, rng), fresh, before)
    state = states[-1]
    path, reference = drive_from(world, state, fresh, horizon)
    if world.judge(path[-1], state)[0]:
        return "solved"
    again = partial(drive_from, world, state, fresh, horizon)
    found = with_decoys(reference, centres, again, lambda path: world.judge(path[-1], state)[0])
    if found is None:
        return "decoy"
    context = states[-1 - HISTORY :: CONTEXT_STRIDE]
    return Start(state, path[-1], context, controls[-HISTORY:]), found


def initial_state(world: ReacherWorld, rng: np.random.Generator) -> Floats:
    """(4,) the arm at rest in any configuration, drawn as dm_control draws it."""
    angles = rng.uniform(-1.0, 1.0, 2) * [np.pi, WRIST_STOP]
    return np.concatenate([angles, np.zeros(2)])
