"""OpenGL without a window, for MuJoCo's cameras: EGL, or OSMesa."""

import atexit
import os
from functools import lru_cache
from importlib import import_module
from typing import Any

from djepa.errors import DjepaError

LIBRARIES = ("egl", "osmesa")
LARGEST = (640, 640)  # width and height that can be drawn


@lru_cache(maxsize=1)
def open_gl(process: int) -> Any:
    """A context to draw in, by the first library that works; one for the process."""
    problems, before = [], os.environ.get("PYOPENGL_PLATFORM")
    for library in LIBRARIES:
        os.environ["PYOPENGL_PLATFORM"] = library
        try:
            context = import_module(f"mujoco.{library}").GLContext(*LARGEST)
            context.make_current()
            atexit.register(context.free)  # before Python takes the library away
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
