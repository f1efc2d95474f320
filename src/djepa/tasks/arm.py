"""The arm world as a task: two tasks at one table, seen by two cameras."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from djepa.pools.control import ANYWHERE, pool_of
from djepa.tasks.task import PLAIN, Task
from djepa.worlds.arms.camera import render_states
from djepa.worlds.arms.rules import RULE, yaw
from djepa.worlds.arms.scene import CUBE, MIDDLE, PIECES
from djepa.worlds.arms.starts import (
    CONTROLS,
    DROPS,
    Expert,
    Explorer,
    draw_start,
    initial_state,
    tool,
)
from djepa.worlds.arms.table import ACTIONS, SECONDS, TASKS, ArmWorld, poses
from djepa.worlds.sketch import ANGLE, Array, Part, Sketch, whole

if TYPE_CHECKING:
    from torch import Tensor


LOOKS = {PLAIN: "front", "top": "top"}  # look -> camera
SIDE = 600.0  # mm of the table that a page draws


def _observe(shape: str, states: Tensor, image: int, look: str) -> tuple[Tensor, Tensor]:
    """(N, S) -> camera frames, and proprioception: the tool's pose and the gripper (N, 7)."""
    import torch

    rows = states.double().cpu().numpy()
    frames = torch.from_numpy(render_states(shape, rows, image, LOOKS[look]))
    felt = torch.from_numpy(poses(rows)).float()
    return frames.to(states.device), felt.to(states.device)


def _sketch(world: ArmWorld) -> Sketch:
    """The table from above, in mm, with the arm at the lower edge."""

    def on_table(points: Array) -> Array:
        x, y = np.moveaxis(points - np.array(MIDDLE), -1, 0)
        return whole(SIDE / 2 - 1000 * np.stack([y, x], axis=-1))

    def draw(states: Array, controls: Array) -> Array:
        angle = whole(-ANGLE * yaw(states))[..., None]
        things = [on_table(states[..., 8:10]), angle]
        if world.task == "stack":
            things = [on_table(states[..., 15:17]), whole(0 * angle), *things]
        return np.concatenate([*things, on_table(tool(states)[..., :2])], axis=-1)

    at, parts = 0, []
    shapes = ("lower", "upper") if world.task == "stack" else ("bar", "stem")
    for i, name in enumerate(shapes):
        size = (CUBE, CUBE) if world.task == "stack" else PIECES[i][1]
        middle = (0.0, 0.0) if world.task == "stack" else PIECES[i][0]
        corners = tuple(
            (-1000 * (middle[1] + b * size[1] / 2), -1000 * (middle[0] + a * size[0] / 2))
            for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))
        )
        at = 3 * i if world.task == "stack" else 0
        parts.append(Part("polygon", name, "block", (at, at + 1, at + 2), corners=corners))
    parts.append(Part("disc", "gripper", "pusher", (at + 3, at + 4), 11, trail=True))
    return Sketch(SIDE, tuple(parts), draw, pace=1 / SECONDS)


TASK = Task(
    name=ArmWorld.name,
    version=ArmWorld.version,
    engines=("mujoco",),
    shapes=TASKS,
    rules=(RULE,),
    profiles=ANYWHERE,
    make=ArmWorld,
    horizon=CONTROLS,
    stride=1,
    actions=ACTIONS,
    behaviours={"expert": Expert},
    explorer=Explorer,
    initial_state=initial_state,
    drops=DROPS,
    draw_start=draw_start,
    pool=pool_of,
    observe=_observe,
    looks=tuple(LOOKS),
    sketch=_sketch,
)
