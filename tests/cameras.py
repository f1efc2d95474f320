"""Skip, by name, what needs camera images where nothing can draw them."""

import os

import pytest

from djepa.errors import DjepaError


def needs_camera() -> None:
    """MuJoCo, and OpenGL without a window."""
    pytest.importorskip("mujoco", reason="extra arms")
    from djepa.worlds.gl import open_gl

    try:
        open_gl(os.getpid())
    except DjepaError as error:
        pytest.skip(str(error))
