"""Starts of the push world: a restored state, its context, its history and a reachable goal.

A behaviour runs an episode, and the start is its state at a random step. From that restored state a
new behaviour drives H controls: the reference. Its final state is the goal. Other segments driven
from the same state in the same way are decoys: only the goal distinguishes them from the reference.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.worlds.behaviours import Behaviour, Controls, drive, get_behaviour
from djepa.worlds.protocol import Floats, World
from djepa.worlds.push import CANVAS, PUSHER_RADIUS, PushWorld
from djepa.worlds.rules import ANGLE_TOLERANCE, POSITION_TOLERANCE, angle_error

CONTEXT_FRAMES, CONTEXT_STRIDE = 3, 5
HISTORY = (CONTEXT_FRAMES - 1) * CONTEXT_STRIDE
MAX_PENETRATION = 2.0  # px; physics is chaotic if the block is deeper in a wall
DROPS = ("unmoved", "wall", "solved", "replay", "decoy")  # why a drawn start may not be kept
DECOY_TRIES = 32


@dataclass(frozen=True)
class Start:
    """What a decision may know of a start."""

    state: Floats  # (S,) restored state
    goal: Floats  # (S,) state to reach
    context: Floats  # (3, S) states a stride of controls apart, the last one = `state`
    history: Controls  # (2 strides, A) controls between the first and the last context state

    def identity(self, world: World) -> bytes:
        """32 bytes that identify this start: SHA-256 of the world and of all fields."""
        digest = hashlib.sha256(f"{world.name}.{world.version}:{world.variant}".encode())
        for array in (self.state, self.goal, self.context, self.history):
            digest.update(np.ascontiguousarray(array, dtype="<f8").tobytes())
        return digest.digest()


def draw_start(
    world: PushWorld, behaviour: str, rng: np.random.Generator, horizon: int, centres: int = 1
) -> tuple[Start, Controls] | str:
    """Draw one start and its (C, H, 2) centres, the first being the reference.

    Returns the reason instead if the draw is dropped.
    """
    world.restore(initial_state(world, rng))
    before = int(rng.integers(HISTORY, 51))
    states, controls = drive(world, get_behaviour(behaviour, world, rng), before)
    state, fresh = states[-1], partial(get_behaviour, behaviour, world, rng)
    path, reference = drive_from(world, state, fresh, horizon)
    reason = _fault(world, path)
    if reason is not None:
        return reason
    goal = path[-1]
    if world.judge(goal, state)[0]:
        return "solved"
    again = partial(drive_from, world, state, fresh, horizon)
    found = with_decoys(reference, centres, again, lambda path: _fault(world, path))
    if found is None:
        return "decoy"
    context = states[-1 - HISTORY :: CONTEXT_STRIDE]
    return Start(state, goal, context, controls[-HISTORY:]), found


def drive_from(
    world: Any, state: Floats, fresh: Callable[[], Behaviour], controls: int
) -> tuple[Floats, Controls]:
    """A fresh behaviour drives from the restored state: states (H + 1, S), controls (H, A)."""
    world.restore(state)
    return drive(world, fresh(), controls)


def with_decoys(
    reference: Controls,
    centres: int,
    again: Callable[[], tuple[Floats, Controls]],
    fault: Callable[[Floats], object],
) -> Controls | None:
    """(C, H, A): the reference, and other segments whose paths have no fault; None if too few."""
    found = [reference]
    for _ in range(DECOY_TRIES):
        if len(found) == centres:
            break
        path, segment = again()
        if not fault(path):
            found.append(segment)
    return np.stack(found) if len(found) == centres else None


def replays(world: World, start: Start, reference: npt.ArrayLike) -> bool:
    """Whether the stored reference (H, A), executed from the restored state, reaches the goal."""
    final = world.execute(start.state, np.asarray(reference)[None])[0, -1]
    return bool(world.judge(start.goal, final)[0])


def _fault(world: PushWorld, path: Floats) -> str | None:
    """Why a segment is dropped: the block did not move, or is in a wall; None if kept."""
    moved = np.linalg.norm(path[-1, 2:4] - path[0, 2:4]) > POSITION_TOLERANCE
    turned = angle_error(path[-1, 4], path[0, 4]) > ANGLE_TOLERANCE
    if not (moved or turned):
        return "unmoved"
    if (world.wall_penetration(path) >= MAX_PENETRATION).any():
        return "wall"
    return None


def initial_state(world: PushWorld, rng: np.random.Generator) -> Floats:
    """Block and pusher at rest, inside the walls and apart from each other."""
    clear = world.shape.girth + PUSHER_RADIUS
    while True:
        state = np.zeros(10)
        state[2:4] = rng.uniform(80.0, CANVAS - 80.0, 2)
        state[4] = rng.uniform(-np.pi, np.pi)
        state[0:2] = rng.uniform(30.0, CANVAS - 30.0, 2)
        apart = np.linalg.norm(state[0:2] - world.block_centre(state)) > clear
        if apart and world.wall_penetration(state) == 0.0:
            return state
