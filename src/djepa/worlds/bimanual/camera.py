"""The four cameras; the head camera is shifted and turned by numbers of the state."""

import os
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from djepa.errors import DjepaError, check_name
from djepa.worlds.bimanual.scene import CAMERAS
from djepa.worlds.bimanual.world import CAMERA, COMMAND, load_model
from djepa.worlds.gl import Canvas
from djepa.worlds.protocol import Floats, Frames

if TYPE_CHECKING:
    from djepa.worlds.bimanual.world import BimanualWorld

LARGEST = 640, 480  # as the model's offscreen buffer


def draw(world: "BimanualWorld", states: Floats, camera: str, height: int, width: int) -> Frames:
    """(N, S) states -> (N, height, width, 3)."""
    check_name("camera", camera, CAMERAS)
    if height > LARGEST[1] or width > LARGEST[0]:
        raise DjepaError(f"A picture is at most {LARGEST[0]} wide and {LARGEST[1]} high.")
    canvas = _canvas(world.variant, os.getpid())
    frames = np.empty((len(states), height, width, 3), np.uint8)
    for frame, state in zip(frames, states, strict=True):
        canvas.place(state[: world.positions])
        if camera == "head":
            canvas.move("head", state[-COMMAND - CAMERA : -COMMAND])
        canvas.draw(camera, frame)
    return frames


@lru_cache(maxsize=8)
def _canvas(task: str, process: int) -> Canvas:
    return Canvas(*load_model(task))
