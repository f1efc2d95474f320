"""One push of a flat board through grains, in a new physics space.

Nothing is kept between two pushes: a space is built from positions and velocities, the board
sweeps, is lifted, the grains come to rest, and the space is freed. The result is therefore a
function of those numbers and of the push, to the last bit, whatever ran before.

Grains do not roll (infinite moment), so position and velocity are their complete state. They enter
the space one by one at their positions, which fixes the engine's order of contacts.

Legend: n grains. Lengths are table units, times seconds.
"""

import math
from typing import Any

import numpy as np
from pymunk._chipmunk_cffi import lib as chipmunk

from djepa.worlds.protocol import Floats

BOARD = 1.2  # width of the board's straight face
BOARD_RADIUS = 0.04  # half its thickness; its ends are round
FRICTION = 0.4  # coefficient of every surface; a contact has the product of both
DT = 0.02
SPEED = 1.25  # of the board: at most 0.025 in one integration, less than the board is thick
DAMPING = 1e-6  # share of speed left after a second: a grain released at board speed slides 0.06
SLOP = 0.002  # overlap that the engine does not correct
OVERLAP_LEFT = 0.8  # share of any other overlap left after one integration
CHECK = 5  # integrations between two checks whether the grains rest
REST = 5e-4  # they rest if none moved further than this between two checks
MAX_SETTLE = 100  # most integrations until rest; then the grains stay where they are
SHORTEST = 1e-6  # a shorter push has no direction; the board stays up


def run_push(grains: Floats, radius: float, push: Floats) -> Floats:
    """(n, 4) places and velocities x y vx vy, (4,) push from x y to x y -> (n, 4) afterwards."""
    space = _Space(grains, radius)
    try:
        if math.dist(push[:2], push[2:]) >= SHORTEST:
            space.sweep(push[:2], push[2:])
        return space.settle()
    finally:
        space.free()


def integrations(length: float) -> int:
    """How many integrations a push of that length takes."""
    return max(1, math.ceil(length / (SPEED * DT)))


class _Space:
    """A space of the engine, without pymunk's objects: making those takes longer than a push."""

    def __init__(self, grains: Floats, radius: float) -> None:
        self._space = chipmunk.cpSpaceNew()
        chipmunk.cpSpaceSetDamping(self._space, DAMPING)
        chipmunk.cpSpaceSetCollisionSlop(self._space, SLOP)
        chipmunk.cpSpaceSetCollisionBias(self._space, OVERLAP_LEFT ** (1 / DT))
        self._bodies: list[Any] = []
        self._shapes: list[Any] = []
        for x, y, vx, vy in grains.tolist():
            body = chipmunk.cpBodyNew(1.0, math.inf)
            chipmunk.cpBodySetPosition(body, (x, y))
            chipmunk.cpBodySetVelocity(body, (vx, vy))
            self._add(body, chipmunk.cpCircleShapeNew(body, radius, (0.0, 0.0)))

    def _add(self, body: Any, shape: Any) -> None:
        chipmunk.cpShapeSetFriction(shape, FRICTION)
        chipmunk.cpSpaceAddBody(self._space, body)
        chipmunk.cpSpaceAddShape(self._space, shape)
        self._bodies.append(body)
        self._shapes.append(shape)

    def sweep(self, start: Floats, end: Floats) -> None:
        """Lower the board at `start`, across the way to `end`, move it there and lift it."""
        (x, y), (dx, dy) = start.tolist(), (end - start).tolist()
        length = math.hypot(dx, dy)
        side = (-dy / length * BOARD / 2, dx / length * BOARD / 2)
        steps = integrations(length)
        board = chipmunk.cpBodyNewKinematic()
        chipmunk.cpBodySetPosition(board, (x, y))
        chipmunk.cpBodySetVelocity(board, (dx / (steps * DT), dy / (steps * DT)))
        other = (-side[0], -side[1])
        self._add(board, chipmunk.cpSegmentShapeNew(board, side, other, BOARD_RADIUS))
        self._run(steps)
        shape, board = self._shapes.pop(), self._bodies.pop()
        chipmunk.cpSpaceRemoveShape(self._space, shape)
        chipmunk.cpSpaceRemoveBody(self._space, board)
        chipmunk.cpShapeFree(shape)
        chipmunk.cpBodyFree(board)

    def settle(self) -> Floats:
        """Run until no grain moves, or MAX_SETTLE integrations; (n, 4) places and velocities."""
        before = self._places()
        for _ in range(MAX_SETTLE // CHECK):
            self._run(CHECK)
            places = self._places()
            moved = np.abs(places - before).max(initial=0.0)
            before = places
            if moved < REST:
                break
        return np.hstack([before, self._read(chipmunk.cpBodyGetVelocity)])

    def _run(self, steps: int) -> None:
        space, step = self._space, chipmunk.cpSpaceStep
        for _ in range(steps):
            step(space, DT)

    def _places(self) -> Floats:
        return self._read(chipmunk.cpBodyGetPosition)

    def _read(self, get: Any) -> Floats:
        """(n, 2) a vector of every grain."""
        vectors = map(get, self._bodies)
        return np.array([(v.x, v.y) for v in vectors]).reshape(-1, 2)

    def free(self) -> None:
        """Free the memory; the engine's space does not own its bodies and shapes."""
        chipmunk.cpSpaceFree(self._space)
        for shape in self._shapes:
            chipmunk.cpShapeFree(shape)
        for body in self._bodies:
            chipmunk.cpBodyFree(body)
