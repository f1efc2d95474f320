"""The push world: a disc under PD control pushes a block on a 512-unit table.

State (10 numbers): pusher x y, block x y, block angle (raw, not wrapped), pusher velocity x y,
block velocity x y, block angular velocity. Physics runs in float64 whatever the controls' dtype.

A running episode also carries contact impulses from step to step, which the ten numbers omit. So
reference, goal and candidates are all executed from the restored ten numbers in a fresh space, and
agree bit for bit.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pymunk
from pymunk._chipmunk_cffi import lib as chipmunk

from djepa.worlds.checks import as_controls, as_ends, as_state, as_states, draw_states
from djepa.worlds.protocol import Bools, Floats, Frames
from djepa.worlds.rules import get_rule
from djepa.worlds.shapes import Shape, get_shape, turned

if TYPE_CHECKING:
    from djepa.worlds.draw import Appearance

CANVAS = 512.0
WALLS = (((5, 506), (5, 5)), ((5, 5), (506, 5)), ((506, 5), (506, 506)), ((5, 506), (506, 506)))
WALL_RADIUS = 2.0
WALL_FACES = (5 + WALL_RADIUS, 506 - WALL_RADIUS)  # inner bounds of the table
PUSHER_RADIUS = 15.0
KP, KV = 100.0, 20.0
DT, SUBSTEPS = 0.01, 10  # ten integrations per control: 10 Hz
ACTION_SCALE = 100.0
# Poses of the bodies in a fresh space before they are moved to the restored state. The engine's
# broad phase remembers them, and they affect the order in which simultaneous contacts are solved:
# with other poses up to 1 % of rollouts end with other last bits. These are the defaults of
# stable-worldmodel's PushT.
PUSHER_ENTRY, BLOCK_ENTRY = (256.0, 400.0), (400.0, 100.0)


class PushWorld:
    """One block on the table. Cheap to make; holds one live state for `step`."""

    name = "push"
    version = 1
    state_size = 10
    action_size = 2

    def __init__(self, shape: str = "T", rule: str = "push.v1") -> None:
        self.shape = get_shape(shape)
        self.variant = self.shape.name
        self.rule = rule
        self._cost = get_rule(rule)
        middle = CANVAS / 2
        self.restore([middle, 400.0, middle, middle, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])

    def restore(self, state: npt.ArrayLike) -> None:
        """Build a fresh space in `state` (10,); no physics step is run."""
        self._state = as_state("push", 10, state)
        self._space, self._pusher, self._block = _build(self.shape, self._state.tolist())

    def __getstate__(self) -> dict[str, Any]:
        return {"shape": self.shape.name, "rule": self.rule, "state": self._state}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        """A copy is the world restored to the same ten numbers."""
        self.__init__(saved["shape"], saved["rule"])  # type: ignore[misc]
        self.restore(saved["state"])

    def snapshot(self) -> Floats:
        """(10,) the live state. Straight after `restore` it is the restored one, bit for bit.

        The engine stores a body's centre of gravity, and conversion from the origin and back may
        round the last bit; so the given ten numbers are returned until a control runs.
        """
        return self._state.copy()

    def step(self, control: npt.ArrayLike) -> Floats:
        """Execute one control (2,): the pusher is pulled towards position + 100 · control."""
        ax, ay = as_controls("Push controls", (2,), control).tolist()
        x, y = self._pusher.position
        tx, ty = x + ax * ACTION_SCALE, y + ay * ACTION_SCALE
        for _ in range(SUBSTEPS):
            (x, y), (vx, vy) = self._pusher.position, self._pusher.velocity
            vx += (KP * (tx - x) + KV * (0.0 - vx)) * DT
            vy += (KP * (ty - y) + KV * (0.0 - vy)) * DT
            self._pusher.velocity = (vx, vy)
            self._space.step(DT)
        self._state = np.array(
            (
                *self._pusher.position,
                *self._block.position,
                self._block.angle,
                *self._pusher.velocity,
                *self._block.velocity,
                self._block.angular_velocity,
            )
        )
        return self._state.copy()

    def execute(self, state: npt.ArrayLike, controls: npt.ArrayLike) -> Floats:
        """(K, H, 2) controls, each executed from `state` in a fresh space -> (K, H + 1, 10)."""
        start = as_state("push", 10, state)
        actions = as_controls("Push controls", (None, None, 2), controls)
        K, H, _ = actions.shape
        states = np.empty((K, H + 1, 10))
        states[:, 0] = start
        places, velocities = pusher_path(start, actions)
        states[:, 1:, 0:2] = places[:, SUBSTEPS - 1 :: SUBSTEPS]
        states[:, 1:, 5:7] = velocities[:, SUBSTEPS - 1 :: SUBSTEPS]
        numbers = start.tolist()
        for k in range(K):
            block = _run(self.shape, numbers, velocities[k].tolist())
            states[k, 1:, 2:5] = block[:, 0:3]
            states[k, 1:, 7:10] = block[:, 3:6]
        return states

    def judge(self, goal: npt.ArrayLike, states: npt.ArrayLike) -> tuple[Bools, Floats]:
        """(..., 10) final states -> success and task cost; success is cost < 1."""
        ends = as_ends(10, goal, states)
        cost = self._cost(self.shape, *ends)
        return cost < 1.0, cost

    def render(
        self,
        states: npt.ArrayLike,
        size: int = 112,
        goal: npt.ArrayLike | None = None,
        appearance: Appearance | None = None,
    ) -> Frames:
        """(..., 10) states -> (..., size, size, 3); `goal` (10,) or (..., 10) is drawn beneath."""
        from djepa.worlds.draw import draw_push

        return draw_states(
            lambda flat, marks: draw_push(self.shape, flat, size, marks, appearance),
            as_states(10, states),
            goal,
        )

    def block_vertices(self, states: npt.ArrayLike) -> Floats:
        """(..., 10) states -> (..., P, 4, 2) canvas vertices of the block's parts."""
        poses: Floats = np.asarray(states, np.float64)
        return turned(self.shape.vertices, poses[..., 4, None, None]) + poses[..., None, None, 2:4]

    def block_centre(self, states: npt.ArrayLike) -> Floats:
        """(..., 10) states -> (..., 2) centre of gravity of the block."""
        poses: Floats = np.asarray(states, np.float64)
        return turned(self.shape.centre, poses[..., 4]) + poses[..., 2:4]

    def wall_penetration(self, states: npt.ArrayLike) -> Floats:
        """(..., 10) states -> (...) how deep the block lies in a wall, 0 if it does not."""
        corners = self.block_vertices(states)
        low, high = WALL_FACES
        depth = np.maximum(low - corners, corners - high).max(axis=(-1, -2, -3))
        return np.asarray(np.maximum(depth, 0.0))


def pusher_path(start: Floats, actions: Floats) -> tuple[Floats, Floats]:
    """(10,) start, (K, H, 2) actions -> pusher positions and velocities (K, H · 10, 2).

    The pusher is kinematic, so its path follows from the controls alone. Operations are in the
    engine's order and so give its bits.
    """
    K, H, _ = actions.shape
    place, velocity = np.tile(start[0:2], (K, 1)), np.tile(start[5:7], (K, 1))
    places, velocities = np.empty((K, H * SUBSTEPS, 2)), np.empty((K, H * SUBSTEPS, 2))
    for h in range(H):
        target = place + actions[:, h] * ACTION_SCALE
        for i in range(h * SUBSTEPS, (h + 1) * SUBSTEPS):
            velocity = velocity + (KP * (target - place) + KV * (0.0 - velocity)) * DT
            place = place + velocity * DT
            velocities[:, i], places[:, i] = velocity, place
    return places, velocities


def pusher_endpoint(states: Floats, actions: Floats, goals: Floats) -> Floats:
    """(N, 10), (N, K, H, 2), (N, 10) -> (N, K): final distance of the pusher from its goal."""
    ends = [pusher_path(s, a)[0][:, -1] for s, a in zip(states, actions, strict=True)]
    return np.asarray(np.linalg.norm(np.array(ends) - goals[:, None, :2], axis=-1))


def _run(shape: Shape, numbers: list[float], velocities: list[list[float]]) -> Floats:
    """Drive the pusher through its velocities; (H, 6) block x y angle, velocity x y, turning rate.

    This is the hot loop: it calls the engine directly, which spares pymunk's bookkeeping per step.
    """
    space, pusher, block = _build(shape, numbers)
    s, p, b = space._space, pusher._body, block._body
    set_velocity, step = chipmunk.cpBodySetVelocity, chipmunk.cpSpaceStep
    rows = []
    for i, velocity in enumerate(velocities, 1):
        set_velocity(p, velocity)
        step(s, DT)
        if i % SUBSTEPS == 0:
            at, v = chipmunk.cpBodyGetPosition(b), chipmunk.cpBodyGetVelocity(b)
            turn, spin = chipmunk.cpBodyGetAngle(b), chipmunk.cpBodyGetAngularVelocity(b)
            rows.append((at.x, at.y, turn, v.x, v.y, spin))
    return np.array(rows).reshape(-1, 6)


def _build(shape: Shape, numbers: list[float]) -> tuple[pymunk.Space, pymunk.Body, pymunk.Body]:
    """A fresh space in the given state. Bodies and shapes are added in the original's order."""
    space = pymunk.Space()
    space.damping = 0
    space.add(*[pymunk.Segment(space.static_body, a, b, WALL_RADIUS) for a, b in WALLS])

    pusher = pymunk.Body(body_type=pymunk.Body.KINEMATIC)
    pusher.position = PUSHER_ENTRY
    space.add(pusher, pymunk.Circle(pusher, PUSHER_RADIUS))

    block = pymunk.Body(1, _moment(shape))
    parts = [pymunk.Poly(block, part) for part in shape.parts]
    centres = [part.center_of_gravity for part in parts]
    block.center_of_gravity = sum(centres, pymunk.Vec2d.zero()) / len(centres)
    block.position = BLOCK_ENTRY
    space.add(block, *parts)

    pusher.velocity, pusher.position = (numbers[5], numbers[6]), (numbers[0], numbers[1])
    block.angle = numbers[4]  # before the position, which is stored for the centre of gravity
    block.position = (numbers[2], numbers[3])
    block.velocity, block.angular_velocity = (numbers[7], numbers[8]), numbers[9]
    return space, pusher, block


@lru_cache
def _moment(shape: Shape) -> float:
    return sum(pymunk.moment_for_poly(1, shape.parts[part]) for part in shape.inertia)
