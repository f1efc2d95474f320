"""The cube world as a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from djepa.errors import check_name
from djepa.pools.control import ANYWHERE, pool_of
from djepa.tasks.task import RGB, Task
from djepa.worlds.cube import CUBE, FINGERS, PINCH, RULES, CubeWorld
from djepa.worlds.cube_behaviours import BEHAVIOURS, Explorer
from djepa.worlds.cube_starts import DROPS, draw_start, initial_state
from djepa.worlds.sketch import Array, Part, Sketch, whole

if TYPE_CHECKING:
    from torch import Tensor


SHAPES = ("single",)  # one cube
CORNERS = ((-27.0, -27.0), (27.0, -27.0), (27.0, 27.0), (-27.0, 27.0))  # the cube in a sketch


def _make(shape: str, rule: str) -> CubeWorld:
    check_name("shape", shape, SHAPES)
    return CubeWorld(rule)


def _observe(shape: str, states: Tensor, image: int, look: str) -> tuple[Tensor, Tensor]:
    """(N, 73) -> frames; proprioception is position and closing of the fingers (N, 4)."""
    import torch

    from djepa.worlds.cube_draw import draw_cube

    felt = torch.cat([states[:, PINCH], states[:, FINGERS, None]], dim=-1).float()
    return draw_cube(states, image), felt


def _sketch(world: CubeWorld) -> Sketch:
    """Fingers and cube in the camera's image, in thousandths of its width."""

    def draw(states: Array, controls: Array) -> Array:
        import torch

        from djepa.worlds.cube_draw import project

        flat = torch.from_numpy(np.ascontiguousarray(states))
        places = [1000 * project(flat[..., part])[0].numpy() for part in (PINCH, CUBE)]
        return whole(np.concatenate([*places, np.zeros((*states.shape[:-1], 1))], axis=-1))

    parts = (
        Part("polygon", "cube", "block", (2, 3, 4), corners=CORNERS),
        Part("disc", "fingers", "pusher", (0, 1), 15, trail=True),
    )
    return Sketch(1000.0, parts, draw, pace=20.0)


def _key() -> dict[str, RGB]:
    from djepa.worlds.cube_draw import GOAL, PURPLE, RED

    return {"cube": RED, "fingers": PURPLE, "goal pose": GOAL}


TASK = Task(
    name=CubeWorld.name,
    version=CubeWorld.version,
    engines=("mujoco", "dm_control", "ogbench"),
    shapes=SHAPES,
    rules=RULES,
    profiles=ANYWHERE,
    make=_make,
    horizon=25,
    stride=5,
    actions=5,
    behaviours=BEHAVIOURS,
    explorer=Explorer,
    initial_state=initial_state,
    drops=DROPS,
    draw_start=draw_start,
    pool=pool_of,
    observe=_observe,
    sketch=_sketch,
    key=_key,
)
