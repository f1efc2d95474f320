"""Starts of the cube world: a state, its context, its history and a reachable cube position.

A behaviour runs an episode, and the start is its state at a random step. From it a new behaviour
drives H controls: the reference. The cube's final position is the goal. Other segments driven from
the same state in the same way, that also move the cube, are decoys.
"""

from functools import partial

import numpy as np

from djepa.worlds.behaviours import Controls
from djepa.worlds.cube import CUBE, CubeWorld
from djepa.worlds.cube_behaviours import get_behaviour
from djepa.worlds.protocol import Floats
from djepa.worlds.starts import CONTEXT_STRIDE, HISTORY, Start, drive_from, with_decoys

DROPS = ("solved", "lost", "replay", "decoy")  # why a drawn start may not be kept
LONGEST = 60  # controls before a start: time for the hand to reach and grasp the cube
TABLE = np.array([[0.22, -0.38, 0.0], [0.63, 0.38, 0.4]])  # m, within OGBench's walls


def draw_start(
    world: CubeWorld, behaviour: str, rng: np.random.Generator, horizon: int, centres: int = 1
) -> tuple[Start, Controls] | str:
    """Draw one start and its (C, H, 5) centres, the first being the reference.

    Returns the reason instead if the draw is dropped.
    """
    before = int(rng.integers(HISTORY, LONGEST + 1))
    fresh = partial(get_behaviour, behaviour, world, rng)
    states, controls = drive_from(world, initial_state(world, rng), fresh, before)
    state = states[-1]
    path, reference = drive_from(world, state, fresh, horizon)
    reason = _fault(world, state, path)
    if reason is not None:
        return reason
    again = partial(drive_from, world, state, fresh, horizon)
    found = with_decoys(reference, centres, again, lambda path: _fault(world, state, path))
    if found is None:
        return "decoy"
    context = states[-1 - HISTORY :: CONTEXT_STRIDE]
    return Start(state, path[-1], context, controls[-HISTORY:]), found


def initial_state(world: CubeWorld, rng: np.random.Generator) -> Floats:
    """(73,) arm and cube at rest, drawn as OGBench draws them for its own data."""
    return world.reset(int(rng.integers(2**31)))


def _fault(world: CubeWorld, state: Floats, path: Floats) -> str | None:
    """Why a segment is dropped: it is already solved, or leaves the view; None if kept."""
    if world.judge(path[-1], state)[0]:
        return "solved"
    low, high = TABLE
    places = path[:, CUBE]
    return None if ((places >= low) & (places <= high)).all() else "lost"
