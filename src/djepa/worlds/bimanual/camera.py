"""Pictures by MuJoCo, which needs OpenGL without a window: EGL, or else OSMesa.

Without shadows, reflections and anti-aliasing, one state always gives the same bytes. A machine
without either library runs everything except pictures, and the error says so.
"""

import atexit
import os
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial.transform import Rotation

from djepa.errors import DjepaError, check_name
from djepa.worlds.bimanual.scene import CAMERAS
from djepa.worlds.bimanual.world import CAMERA, COMMAND, load_model
from djepa.worlds.gl import open_gl
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
        canvas.draw(state, camera, frame)
    return frames


class _Canvas:
    """What draws one task's scene."""

    def __init__(self, task: str) -> None:
        open_gl(os.getpid())
        self.engine, self.model = e, model = load_model(task)
        self.data, self.option, self.camera = e.MjData(model), e.MjvOption(), e.MjvCamera()
        self.scene = e.MjvScene(model, maxgeom=400)
        for flag in (e.mjtRndFlag.mjRND_SHADOW, e.mjtRndFlag.mjRND_REFLECTION):
            self.scene.flags[flag] = 0
        self.context = e.MjrContext(model, e.mjtFontScale.mjFONTSCALE_100)
        e.mjr_setBuffer(e.mjtFramebuffer.mjFB_OFFSCREEN, self.context)
        atexit.register(self.context.free)

    def draw(self, state: Floats, camera: str, out: Frames) -> None:
        e, model, data = self.engine, self.model, self.data
        data.qpos[:] = state[: model.nq]
        e.mj_kinematics(model, data)
        e.mj_camlight(model, data)
        which = model.camera(camera).id
        if camera == "head":
            shift, turn = np.split(state[-COMMAND - CAMERA : -COMMAND], 2)
            matrix = data.cam_xmat[which].reshape(3, 3) @ Rotation.from_rotvec(turn).as_matrix()
            data.cam_xpos[which] += shift
            data.cam_xmat[which] = matrix.ravel()
        self.camera.type, self.camera.fixedcamid = e.mjtCamera.mjCAMERA_FIXED, which
        parts = e.mjtCatBit.mjCAT_ALL
        e.mjv_updateScene(model, data, self.option, None, self.camera, parts, self.scene)
        where = e.MjrRect(0, 0, out.shape[1], out.shape[0])
        e.mjr_render(where, self.scene, self.context)
        upside_down = np.empty_like(out)
        e.mjr_readPixels(upside_down, None, where, self.context)
        out[:] = upside_down[::-1]


@lru_cache(maxsize=8)
def _canvas(task: str, process: int) -> _Canvas:
    return _Canvas(task)
