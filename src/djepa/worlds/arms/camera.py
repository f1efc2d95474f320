"""Camera images of the arm world, drawn by MuJoCo without a window (EGL, else OSMesa).

No shadows, no anti-aliasing: repeated images of one state are the same bytes. A machine
without either library runs everything except camera images, and the error says so.
"""

import os
from functools import lru_cache

import numpy as np

from djepa.errors import check_name
from djepa.worlds.arms.scene import load_scene
from djepa.worlds.gl import open_gl
from djepa.worlds.protocol import Floats, Frames

CAMERAS = ("front", "top")


def render_states(task: str, states: Floats, size: int, camera: str = "front") -> Frames:
    """(..., S) states -> (..., size, size, 3)."""
    check_name("camera", camera, CAMERAS)
    flat = states.reshape(-1, states.shape[-1])
    canvas = _canvas(task, size, os.getpid())
    frames = np.stack([canvas.draw(state, camera) for state in flat]) if len(flat) else None
    if frames is None:
        frames = np.zeros((0, size, size, 3), np.uint8)
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


class Canvas:
    """One model at one size."""

    def __init__(self, task: str, size: int) -> None:
        self._engine, self._model = load_scene(task)
        open_gl(os.getpid())
        e = self._engine
        self._data = e.MjData(self._model)
        self._scene, self._camera = e.MjvScene(self._model, maxgeom=200), e.MjvCamera()
        self._scene.flags[e.mjtRndFlag.mjRND_SHADOW] = 0
        self._scene.flags[e.mjtRndFlag.mjRND_REFLECTION] = 0
        self._option = e.MjvOption()
        self._option.sitegroup[:] = 0
        self._context = e.MjrContext(self._model, e.mjtFontScale.mjFONTSCALE_100)
        e.mjr_setBuffer(e.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        self._view = e.MjrRect(0, 0, size, size)
        self._pixels = np.empty((size, size, 3), np.uint8)

    def draw(self, state: Floats, camera: str) -> Frames:
        """(S,) -> (size, size, 3)."""
        e = self._engine
        self._data.qpos[:] = state[: self._model.nq]
        e.mj_kinematics(self._model, self._data)
        e.mj_camlight(self._model, self._data)
        self._camera.type = e.mjtCamera.mjCAMERA_FIXED
        self._camera.fixedcamid = self._model.camera(camera).id
        flags = e.mjtCatBit.mjCAT_ALL
        e.mjv_updateScene(
            self._model, self._data, self._option, None, self._camera, flags, self._scene
        )
        e.mjr_render(self._view, self._scene, self._context)
        e.mjr_readPixels(self._pixels, None, self._view, self._context)
        return self._pixels[::-1].copy()


@lru_cache(maxsize=8)
def _canvas(task: str, size: int, process: int) -> Canvas:
    return Canvas(task, size)
