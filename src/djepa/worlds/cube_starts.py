"""Starts of the cube world: a state, its context, its history and a place of the cube in reach.

A behaviour plays an episode; at some moment its numbers are taken. From there a fresh behaviour
drives H controls: the reference. Where the cube is then is the goal. Other segments driven from the
same state in the same way, that move the cube too, are decoys.
"""

import numpy as np

from djepa.worlds.behaviours import Controls, drive
from djepa.worlds.cube import CUBE, CubeWorld
from djepa.worlds.cube_behaviours import get_behaviour
from djepa.worlds.protocol import Floats
from djepa.worlds.starts import CONTEXT_STRIDE, DECOY_TRIES, HISTORY, Start

DROPS = ("solved", "lost", "replay", "decoy")  # why a drawn start may not be kept
LONGEST = 60  # controls before a start: time for the hand to reach the cube and take it
TABLE = np.array([[0.22, -0.38, 0.0], [0.63, 0.38, 0.4]])  # m, within OGBench's walls


def draw_start(
    world: CubeWorld, behaviour: str, rng: np.random.Generator, horizon: int, centres: int = 1
) -> tuple[Start, Controls] | str:
    """Draw one start and its (C, H, 5) centres, the first being the reference.

    Returns the reason instead if the draw is not to be kept.
    """
    before = int(rng.integers(HISTORY, LONGEST + 1))
    states, controls = _segment(world, initial_state(world, rng), behaviour, rng, before)
    state = states[-1]
    path, reference = _segment(world, state, behaviour, rng, horizon)
    reason = _fault(world, state, path)
    if reason is not None:
        return reason
    found = [reference]
    for _ in range(DECOY_TRIES):
        if len(found) == centres:
            break
        other, segment = _segment(world, state, behaviour, rng, horizon)
        if _fault(world, state, other) is None:
            found.append(segment)
    if len(found) < centres:
        return "decoy"
    context = states[-1 - HISTORY :: CONTEXT_STRIDE]
    return Start(state, path[-1], context, controls[-HISTORY:]), np.stack(found)


def initial_state(world: CubeWorld, rng: np.random.Generator) -> Floats:
    """(73,) arm and cube at rest, drawn as OGBench draws them for its own data."""
    return world.reset(int(rng.integers(2**31)))


def _fault(world: CubeWorld, state: Floats, path: Floats) -> str | None:
    """Why a segment teaches nothing, or cannot be seen."""
    if world.judge(path[-1], state)[0]:
        return "solved"
    low, high = TABLE
    places = path[:, CUBE]
    return None if ((places >= low) & (places <= high)).all() else "lost"


def _segment(
    world: CubeWorld, state: Floats, behaviour: str, rng: np.random.Generator, controls: int
) -> tuple[Floats, Controls]:
    """A fresh behaviour drives from the state: states (H + 1, 73) and controls (H, 5)."""
    world.restore(state)
    return drive(world, get_behaviour(behaviour, world, rng), controls)  # type: ignore[arg-type]
