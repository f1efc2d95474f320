"""Camera images of the arm world, drawn by MuJoCo without a window (`djepa.worlds.gl`)."""

import os
from functools import lru_cache

import numpy as np

from djepa.errors import check_name
from djepa.worlds.arms.scene import load_scene
from djepa.worlds.gl import Canvas
from djepa.worlds.protocol import Floats, Frames

CAMERAS = ("front", "top")


def render_states(task: str, states: Floats, size: int, camera: str = "front") -> Frames:
    """(..., S) states -> (..., size, size, 3)."""
    check_name("camera", camera, CAMERAS)
    flat = states.reshape(-1, states.shape[-1])
    canvas = _canvas(task, os.getpid())
    frames = np.empty((len(flat), size, size, 3), np.uint8)
    for frame, state in zip(frames, flat, strict=True):
        canvas.place(state[: canvas.model.nq])
        canvas.draw(camera, frame)
    return frames.reshape(*states.shape[:-1], size, size, 3)


def projection(camera: str, size: int) -> Floats:
    """(3, 4) matrix: (x, y, z, 1) in m -> w times (column, row, 1) of a frame of that size.

    Row 0 is the top of the frame. Needs no OpenGL.
    """
    check_name("camera", camera, CAMERAS)
    engine, model = load_scene("push")
    data = engine.MjData(model)
    engine.mj_forward(model, data)
    index = model.camera(camera).id
    turn = data.cam_xmat[index].reshape(3, 3).T
    focal = size / 2 / np.tan(np.deg2rad(model.cam_fovy[index]) / 2)
    lens = np.array([[focal, 0, -size / 2], [0, -focal, -size / 2], [0, 0, -1.0]])
    return np.asarray(lens @ np.column_stack([turn, -turn @ data.cam_xpos[index]]))


@lru_cache(maxsize=8)
def _canvas(task: str, process: int) -> Canvas:
    return Canvas(*load_scene(task), sites=False)
