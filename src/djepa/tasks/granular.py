"""The granular world as a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from djepa.errors import check_name
from djepa.pools.control import PoolSpec
from djepa.pools.granular import granular_pool
from djepa.seeds import generator
from djepa.tasks.task import RGB, Task
from djepa.worlds.behaviours import Controls
from djepa.worlds.chamfer import RULES
from djepa.worlds.granular import VIEW, GranularWorld, grain_radius, places
from djepa.worlds.granular_behaviours import BEHAVIOURS, Explorer
from djepa.worlds.granular_space import BOARD
from djepa.worlds.granular_starts import (
    CONTEXT_STRIDE,
    DROPS,
    PUSHES,
    attempts,
    draw_start,
    initial_state,
)
from djepa.worlds.sketch import Array, Part, Sketch, whole
from djepa.worlds.starts import Start

if TYPE_CHECKING:
    from torch import Tensor

    from djepa.pools import Pool

SHAPES = {  # number of grains, and the kinds of goals
    "grains-100": (100, ("reached",)),
    "grains-200": (200, ("reached",)),
    "piles-200": (200, ("reached", "shaped")),
}
TURNS = {"plain": 0, "turned-90": 1, "turned-180": 2, "turned-270": 3}  # the table seen from a side


def _particles(shape: str) -> int:
    check_name("shape", shape, SHAPES)
    return SHAPES[shape][0]


def _make(shape: str, rule: str) -> GranularWorld:
    particles = _particles(shape)
    return GranularWorld(particles, rule, SHAPES[shape][1])


def _pool(world: GranularWorld, start: Start, centres: Controls, spec: PoolSpec) -> Pool:
    """63 transformations of a recorded attempt; the hashed ones depend on the start's name."""
    recorded = attempts(world, start, generator("attempts", spec.seed))
    name = start.identity(world).hex()[:16]
    return granular_pool(recorded, name, f"{name}-goal", offset=0)


def _observe(shape: str, states: Tensor, image: int, look: str) -> tuple[Tensor, Tensor]:
    """(N, 4 n) -> frames; the board is up between pushes, so proprioception is (N, 4) zeros."""
    from djepa.worlds.granular_draw import draw_granular

    n = states.shape[-1] // 4
    points = _turned(states[:, : 2 * n].unflatten(-1, (n, 2)), TURNS[look])
    frames = draw_granular(points, grain_radius(_particles(shape)), image)
    return frames, states.new_zeros(len(states), 4).float()


def _controls(controls: Tensor, look: str) -> Tensor:
    """(..., 4) pushes in the coordinates of the turned table."""
    return _turned(controls.unflatten(-1, (2, 2)), TURNS[look]).flatten(-2)


def _turned(points: Tensor, quarters: int) -> Tensor:
    """(..., 2) points turned by `quarters` quarter turns."""
    import torch

    for _ in range(quarters):
        points = torch.stack([-points[..., 1], points[..., 0]], dim=-1)
    return points


def _sketch(world: GranularWorld) -> Sketch:
    """Every grain, then the last push, in thousandths of a unit."""
    n = world.particles

    def on_table(points: Array) -> Array:
        return whole(1000 * (points + VIEW))

    def draw(states: Array, controls: Array) -> Array:
        lead = states.shape[:-2]
        pushes = np.concatenate([np.zeros((*lead, 1, 4)), controls], axis=-2)
        grains = places(states).reshape(*states.shape[:-1], 2 * n)
        return np.concatenate([on_table(grains), on_table(pushes)], axis=-1)

    parts = (
        Part("disc", "grains", "block", (0, 1), 1000 * world.radius, many=n),
        Part("board", "board", "pusher", tuple(range(2 * n, 2 * n + 4)), 500 * BOARD),
    )
    return Sketch(2000 * VIEW, parts, draw, pace=1.0)


def _key() -> dict[str, RGB]:
    from djepa.worlds.granular_draw import GranularLook

    look = GranularLook()
    return {"grains": look.grain, "goal": look.goal}


TASK = Task(
    name=GranularWorld.name,
    version=GranularWorld.version,
    engines=("pymunk",),
    shapes=tuple(SHAPES),
    rules=tuple(RULES),
    profiles=("replay",),
    make=_make,
    horizon=PUSHES,
    stride=CONTEXT_STRIDE,
    actions=4,
    behaviours=BEHAVIOURS,
    explorer=Explorer,
    initial_state=initial_state,
    drops=DROPS,
    draw_start=draw_start,
    pool=_pool,
    observe=_observe,
    looks=tuple(TURNS),
    controls=_controls,
    limit=VIEW,
    sketch=_sketch,
    key=_key,
)
