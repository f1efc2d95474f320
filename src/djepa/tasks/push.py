"""The push world as a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from djepa.pools.control import CONTROL_PROFILES, PIXELS, PoolSpec, pool_around
from djepa.tasks.task import RGB, Task
from djepa.worlds.behaviours import BEHAVIOURS, Controls, Explorer
from djepa.worlds.looks import LOOKS
from djepa.worlds.outline import outline
from djepa.worlds.push import ACTION_SCALE, CANVAS, PUSHER_RADIUS, PushWorld, pusher_endpoint
from djepa.worlds.rules import RULES
from djepa.worlds.shapes import SHAPES
from djepa.worlds.sketch import ANGLE, Part, Sketch, whole
from djepa.worlds.starts import DROPS, Start, draw_start, initial_state

if TYPE_CHECKING:
    from torch import Tensor

    from djepa.pools import Pool


def _pool(world: PushWorld, start: Start, centres: Controls, spec: PoolSpec) -> Pool:
    """The profile's pool; `visual-shape` takes displacements in pixels, as its recordings do."""
    scale = np.float32(ACTION_SCALE if spec.profile == PIXELS else 1)
    return pool_around(centres * scale, spec)


def _observe(shape: str, states: Tensor, image: int, look: str) -> tuple[Tensor, Tensor]:
    """(N, 10) -> frames, and the pusher's position and velocity (N, 4).

    The goal is a separate frame. The goal marker of the original world is drawn in some looks only.
    """
    import torch

    from djepa.worlds.conditions import draw_look
    from djepa.worlds.shapes import get_shape

    felt = torch.cat([states[:, 0:2], states[:, 5:7]], dim=-1).float()
    return draw_look(get_shape(shape), states, image, look), felt


def _sketch(world: PushWorld) -> Sketch:
    """Pusher x y, block x y, angle."""
    parts = (
        Part("polygon", "block", "block", (2, 3, 4), corners=tuple(outline(world.shape))),
        Part("disc", "pusher", "pusher", (0, 1), PUSHER_RADIUS, trail=True),
    )
    return Sketch(CANVAS, parts, lambda states, controls: whole(states[..., :5] * _UNITS))


_UNITS = (1, 1, 1, 1, ANGLE)


def _key() -> dict[str, RGB]:
    from djepa.worlds.draw import Appearance

    look = Appearance()
    return {"pusher": look.pusher, "block": look.block, "goal pose": look.goal}


TASK = Task(
    name=PushWorld.name,
    version=PushWorld.version,
    engines=("pymunk",),
    shapes=tuple(SHAPES),
    rules=tuple(RULES),
    profiles=CONTROL_PROFILES,
    make=PushWorld,
    horizon=25,
    stride=5,
    actions=2,
    behaviours=BEHAVIOURS,
    explorer=Explorer,
    initial_state=initial_state,
    drops=DROPS,
    draw_start=draw_start,
    pool=_pool,
    observe=_observe,
    looks=LOOKS,
    sketch=_sketch,
    endpoint=pusher_endpoint,
    key=_key,
)
