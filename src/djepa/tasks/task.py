"""A `Task`: everything the other packages need to know about a world.

Collecting, predicting, training and the studies need nothing else. A world of your own is one more
`Task`: name it as `package.module:TASK` wherever a command takes a world (docs/own-world.md).
Workers that execute need not import torch: only `observe` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from djepa.errors import DjepaError, unknown_name
from djepa.worlds.behaviours import Behaviour, Controls
from djepa.worlds.protocol import Floats
from djepa.worlds.sketch import Sketch, no_sketch
from djepa.worlds.starts import Start

if TYPE_CHECKING:
    from torch import Tensor

    from djepa.pools import Pool
    from djepa.pools.control import PoolSpec

Rng = np.random.Generator
Maker = Callable[[Any, Rng], Behaviour]
RGB = tuple[int, int, int]
PLAIN = "plain"  # the look that every world has
TASKS = {
    "push": "djepa.tasks.push:TASK",
    "reacher": "djepa.tasks.reacher:TASK",
    "granular": "djepa.tasks.granular:TASK",
    "cube": "djepa.tasks.cube:TASK",
    "arm": "djepa.tasks.arm:TASK",
}


@dataclass(frozen=True)
class Task:
    """A world, its starts, its pools and what a geometry sees of it."""

    name: str
    version: int
    engines: tuple[str, ...]  # packages on whose version the physics depends
    shapes: tuple[str, ...]  # variants of the world; the first is the default
    rules: tuple[str, ...]  # success rules; the first is the default
    profiles: tuple[str, ...]  # ways to make candidates; the first is the default
    make: Callable[[str, str], Any]  # shape, rule -> a `World`
    horizon: int  # controls of a candidate
    stride: int  # controls between two frames
    actions: int  # A
    behaviours: Mapping[str, Maker]  # that drive references
    explorer: Maker  # drives training episodes
    initial_state: Callable[[Any, Rng], Floats]  # where an episode begins, (S,)
    drops: tuple[str, ...]  # why a drawn start may not be kept
    draw_start: Callable[[Any, str, Rng, int, int], tuple[Start, Controls] | str]
    pool: Callable[[Any, Start, Controls, PoolSpec], Pool]  # world, start, (C, H, A) centres
    observe: Callable[[str, Tensor, int, str], tuple[Tensor, Tensor]]  # shape, states, side, look
    looks: tuple[str, ...] = (PLAIN,)  # ways of seeing it
    controls: Callable[[Tensor, str], Tensor] | None = None  # in a look, if it changes them
    limit: float = 1.0  # controls of a planner lie within ± this
    sketch: Callable[[Any], Sketch] = no_sketch  # world -> how a page draws its states
    key: Callable[[], Mapping[str, RGB]] = dict  # meaning -> colour in its frames
    # (N, S) states, (N, K, H, A) controls, (N, S) goals -> (N, K): distance of the end to the goal,
    # for a part of the state that follows from the controls alone, such as the pusher
    endpoint: Callable[[Floats, Floats, Floats], Floats] | None = None
    # For recorded data, which cannot be executed: world -> the world of validation episodes
    validating: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        if "replay" not in self.drops:
            raise DjepaError(f"The drops of '{self.name}' must name 'replay': collecting gives it.")


@dataclass(frozen=True)
class Scene:
    """What a geometry sees: a world in one of its shapes and one of its looks."""

    world: str = "push"
    shape: str = "T"
    look: str = PLAIN

    def observe(self, states: Tensor, image: int) -> tuple[Tensor, Tensor]:
        """States (..., S) -> uint8 frames (..., image, image, 3) and proprioception (..., 4)."""
        flat = states.reshape(-1, states.shape[-1])
        frames, proprio = get_task(self.world).observe(self.shape, flat, image, self.look)
        lead = states.shape[:-1]
        return frames.view(*lead, image, image, 3), proprio.view(*lead, -1)

    def controls(self, controls: Tensor) -> Tensor:
        """(..., A) controls in this look: seen from another side of the table, pushes turn too."""
        change = get_task(self.world).controls
        return controls if change is None else change(controls, self.look)


@lru_cache(maxsize=32)
def get_task(name: str) -> Task:
    """The task by name: a built-in one, `package.module:NAME`, or a folder of recorded episodes."""
    place = TASKS.get(name, name)
    if place == name and (Path(name) / "manifest.json").is_file():
        from djepa.tasks.recorded import recorded_task

        return recorded_task(Path(name))
    if ":" not in place:
        raise unknown_name("world", name, TASKS)
    module, _, attribute = place.partition(":")
    if not all(part.isidentifier() for part in module.split(".")):
        raise DjepaError(f"'{name}' names no world: write package.module:NAME.")
    try:
        found = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the missing module is one that it imports
        raise DjepaError(
            f"There is no module '{module}' for the world '{name}'. Is its folder on PYTHONPATH?"
        ) from None
    if not hasattr(found, attribute):
        raise DjepaError(f"The module '{module}' has no '{attribute}'.")
    task = getattr(found, attribute)
    if not isinstance(task, Task):
        raise DjepaError(f"{name} is a {type(task).__name__}, not a Task.")
    return task
