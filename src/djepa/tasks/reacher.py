"""The reacher world as a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from djepa.errors import check_name
from djepa.pools.control import ANYWHERE, pool_of
from djepa.tasks.task import RGB, Task
from djepa.worlds.reacher import RULES, ReacherWorld, joints
from djepa.worlds.reacher_behaviours import BEHAVIOURS, Explorer
from djepa.worlds.reacher_starts import DROPS, draw_start, initial_state
from djepa.worlds.sketch import Array, Part, Sketch, whole

if TYPE_CHECKING:
    from torch import Tensor


MIDDLE = 310.0  # of the table, in mm
SHAPES = {"arm": 2, "arm-fast": 1}  # integration steps per control: 0.04 s, 0.02 s


def _make(shape: str, rule: str) -> ReacherWorld:
    check_name("shape", shape, SHAPES)
    return ReacherWorld(rule, SHAPES[shape])


def _observe(shape: str, states: Tensor, image: int, look: str) -> tuple[Tensor, Tensor]:
    """(N, 4) -> frames; proprioception is the state of the joints (N, 4)."""
    from djepa.worlds.reacher_draw import draw_reacher

    return draw_reacher(states, image), states.float()


def _sketch(world: ReacherWorld) -> Sketch:
    """Shoulder, wrist and finger in mm, as in the camera's image, y up."""

    def draw(states: Array, controls: Array) -> Array:
        points = np.concatenate([np.zeros((*states.shape[:-1], 1, 2)), joints(states)], axis=-2)
        return whole(MIDDLE + 1000 * points * (1, -1)).reshape(*states.shape[:-1], 6)

    parts = (
        Part("bar", "arm", "block", (0, 1, 2, 3), 10),
        Part("bar", "arm", "block", (2, 3, 4, 5), 10),
        Part("disc", "finger", "pusher", (4, 5), 10, trail=True),
    )
    return Sketch(2 * MIDDLE, parts, draw)


def _key() -> dict[str, RGB]:
    from djepa.worlds.reacher_draw import ArmAppearance

    look = ArmAppearance()
    return {"finger": look.finger, "arm": look.arm, "goal": look.goal}


TASK = Task(
    name=ReacherWorld.name,
    version=ReacherWorld.version,
    engines=("mujoco", "dm_control"),
    shapes=tuple(SHAPES),
    rules=RULES,
    profiles=ANYWHERE,
    make=_make,
    horizon=25,
    stride=5,
    actions=2,
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
