"""OpenGL without a window, for MuJoCo's cameras: EGL, or OSMesa.

Without shadows, reflections and anti-aliasing, a state always gives the same bytes. Without either
library everything except pictures works, and the error says so.
"""

import atexit
import os
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from djepa.errors import DjepaError
from djepa.worlds.protocol import Floats, Frames

LIBRARIES = ("egl", "osmesa")
LARGEST = (640, 640)  # width and height that can be drawn


@lru_cache(maxsize=1)
def open_gl(process: int) -> Any:
    """A context to draw in, by the first library that works; one per process."""
    problems, before = [], os.environ.get("PYOPENGL_PLATFORM")
    for library in LIBRARIES:
        os.environ["PYOPENGL_PLATFORM"] = library
        try:
            context = import_module(f"mujoco.{library}").GLContext(*LARGEST)
            context.make_current()
            atexit.register(context.free)  # before Python unloads the library
            return context
        except Exception as error:  # each library fails in its own way
            problems.append(f"{library}: {error}")
    if before is None:
        del os.environ["PYOPENGL_PLATFORM"]
    else:
        os.environ["PYOPENGL_PLATFORM"] = before
    raise DjepaError(
        "Camera images need OpenGL without a window, and neither library works here "
        f"({'; '.join(problems)}). Install libegl1 and libegl-mesa0, or libosmesa6. "
        "Physics, pools and outcomes need no images."
    )


class Canvas:
    """Draws one MuJoCo model: `place` sets the joints, `draw` renders a camera's view."""

    def __init__(self, engine: Any, model: Any, sites: bool = True) -> None:
        open_gl(os.getpid())
        self.engine, self.model = e, _ = engine, model
        self.data, self.option, self.camera = e.MjData(model), e.MjvOption(), e.MjvCamera()
        self.camera.type = e.mjtCamera.mjCAMERA_FIXED
        if not sites:
            self.option.sitegroup[:] = 0
        self.scene = e.MjvScene(model, maxgeom=400)
        for flag in (e.mjtRndFlag.mjRND_SHADOW, e.mjtRndFlag.mjRND_REFLECTION):
            self.scene.flags[flag] = 0
        self.context = e.MjrContext(model, e.mjtFontScale.mjFONTSCALE_100)
        e.mjr_setBuffer(e.mjtFramebuffer.mjFB_OFFSCREEN, self.context)
        atexit.register(self.context.free)

    def place(self, positions: Floats) -> None:
        """Set the positions (nq,) of all joints."""
        self.data.qpos[:] = positions
        self.engine.mj_kinematics(self.model, self.data)
        self.engine.mj_camlight(self.model, self.data)

    def move(self, camera: str, by: Floats) -> None:
        """Shift and turn a camera by (6,): m, then a rotation vector."""
        which, (shift, turn) = self.model.camera(camera).id, np.split(by, 2)
        matrix = self.data.cam_xmat[which].reshape(3, 3) @ Rotation.from_rotvec(turn).as_matrix()
        self.data.cam_xpos[which] += shift
        self.data.cam_xmat[which] = matrix.ravel()

    def draw(self, camera: str, out: Frames) -> None:
        """Render into `out` (height, width, 3)."""
        e, parts = self.engine, self.engine.mjtCatBit.mjCAT_ALL
        e.mjr_setBuffer(e.mjtFramebuffer.mjFB_OFFSCREEN, self.context)  # another may be current
        self.camera.fixedcamid = self.model.camera(camera).id
        e.mjv_updateScene(self.model, self.data, self.option, None, self.camera, parts, self.scene)
        where = e.MjrRect(0, 0, out.shape[1], out.shape[0])
        e.mjr_render(where, self.scene, self.context)
        upside_down = np.empty_like(out)
        e.mjr_readPixels(upside_down, None, where, self.context)
        out[:] = upside_down[::-1]
