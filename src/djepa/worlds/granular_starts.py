"""Starts of the granular world: a pile, its context, its history and a goal pile.

A behaviour spreads the reset pile with a few pushes; the result is the start. The goal pile is

    reached   the result of a hidden reference of H pushes, aimed at a scaled and shifted pile
    shaped    the reset pile itself, scaled and shifted: H pushes may not suffice to make it

Other segments from the same state, aimed at other piles, are decoys. `attempts` are segments aimed
at the goal with an error: a `granular_pool` transforms this recording.

Legend: n grains, H pushes, C centres.
"""

import numpy as np

from djepa.errors import check_name
from djepa.worlds.behaviours import Behaviour, Controls, drive
from djepa.worlds.chamfer import MAIN, chamfer
from djepa.worlds.granular import VIEW, GranularWorld, as_state, places, reset_places
from djepa.worlds.granular_behaviours import (
    Gather,
    Region,
    draw_change,
    get_behaviour,
    pile_region,
    region_of,
)
from djepa.worlds.protocol import Floats
from djepa.worlds.starts import CONTEXT_FRAMES, DECOY_TRIES, Start

PUSHES = 5  # of a candidate
CONTEXT_STRIDE = 1  # every push ends in a frame
HISTORY = (CONTEXT_FRAMES - 1) * CONTEXT_STRIDE
JITTER = 0.1  # of the reset pile, in radii of a grain
BLUR = 0.2  # error of an attempt's goal: deviation of its centre and half sides
GOALS = ("reached", "shaped")
DROPS = ("solved", "lost", "replay", "decoy")  # why a drawn start may not be kept


def draw_start(
    world: GranularWorld,
    behaviour: str,
    rng: np.random.Generator,
    horizon: int = PUSHES,
    centres: int = 1,
    goal: str = "",
) -> tuple[Start, Controls] | str:
    """Draw one start and its (C, H, 4) centres, the first one aimed at the goal.

    The behaviour first spreads the pile. If `goal` is empty, one of the world's kinds is drawn.
    Returns the reason instead if the draw is not kept.
    """
    kinds = (goal,) if goal else world.goals
    for kind in kinds:
        check_name("goal", kind, GOALS)
    goal = kinds[int(rng.integers(len(kinds)))] if len(kinds) > 1 else kinds[0]
    world.restore(initial_state(world, rng))
    hand = get_behaviour(behaviour, world, rng)
    before, history = _driven(world, hand, int(rng.integers(HISTORY, 7)))
    state, found, ends = before[-1], list[Controls](), list[Floats]()
    for _ in range(1 + DECOY_TRIES if centres > 1 else 1):
        scale, shift = draw_change(rng)
        region = pile_region(world.particles, scale, shift)
        path, pushes = _aimed(world, state, region, rng, horizon)
        reason = _fault(np.concatenate([before, path]), state, path[-1])
        if reason and not found:
            return reason
        if not reason:
            found.append(pushes)
            ends.append(path[-1] if goal == "reached" else _shaped(world, rng, scale, shift))
        if len(found) == centres:
            break
    if len(found) < centres:
        return "decoy"
    if _already(state, ends[0]):
        return "solved"
    return Start(state, ends[0], before[-CONTEXT_FRAMES:], history[-HISTORY:]), np.stack(found)


def attempts(
    world: GranularWorld, start: Start, rng: np.random.Generator, count: int = 4
) -> Controls:
    """(5 · count, 4) pushes: `count` segments from the start, aimed at its goal, concatenated.

    Four of them are the recording that `granular_pool` takes, at offsets 0, 5, 10, 15.
    """
    seen = region_of(places(start.goal))
    made = []
    for _ in range(count):
        centre, half = seen.centre + rng.normal(0.0, BLUR, 2), seen.half + rng.normal(0.0, BLUR, 2)
        region = Region(centre, np.maximum(half, world.radius))
        made.append(_aimed(world, start.state, region, rng, PUSHES)[1])
    return np.concatenate(made)


def initial_state(world: GranularWorld, rng: np.random.Generator) -> Floats:
    """(4 n,) the reset pile at rest, with a little noise in every position."""
    return as_state(_jittered(world, rng))


def _shaped(world: GranularWorld, rng: np.random.Generator, scale: Floats, shift: Floats) -> Floats:
    return as_state(_jittered(world, rng) * scale + shift)


def _jittered(world: GranularWorld, rng: np.random.Generator) -> Floats:
    noise = rng.normal(0.0, JITTER * world.radius, (world.particles, 2))
    return np.asarray(reset_places(world.particles) + noise)


def _aimed(
    world: GranularWorld, state: Floats, region: Region, rng: np.random.Generator, pushes: int
) -> tuple[Floats, Controls]:
    """States (H + 1, 4 n) and pushes (H, 4) of `Gather` towards a region."""
    world.restore(state)
    return _driven(world, Gather(world, rng, region), pushes)


def _driven(world: GranularWorld, hand: Behaviour, pushes: int) -> tuple[Floats, Controls]:
    return drive(world, hand, pushes)  # type: ignore[arg-type]  # it asks any world alike


def _fault(path: Floats, state: Floats, end: Floats) -> str | None:
    """Why a segment is dropped: it is already solved, or leaves the view; None if kept."""
    if _already(state, end):
        return "solved"
    return "lost" if np.abs(places(path)).max() > VIEW else None


def _already(state: Floats, goal: Floats) -> bool:
    """Whether the main threshold is met; not the world's rule, since all rules share starts."""
    return bool(chamfer(places(state), places(goal)) < MAIN)
