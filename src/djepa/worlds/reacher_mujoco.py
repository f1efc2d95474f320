"""What the reacher world asks of MuJoCo: the model, and its own pictures.

Everything here needs the extra `mujoco`; the pictures need OpenGL as well.
"""

import copy
import importlib.util
import os
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from djepa.errors import DjepaError, MissingExtraError
from djepa.worlds.protocol import Floats, Frames


@lru_cache(maxsize=1)
def load_model() -> tuple[Any, Any]:
    """MuJoCo and the model in dm_control's file, which is read without importing dm_control."""
    try:
        import mujoco
        import mujoco.rollout
    except ImportError as error:
        raise MissingExtraError("The reacher world", "mujoco") from error
    except Exception as error:  # MUJOCO_GL names a library that is not there
        library = os.environ.get("MUJOCO_GL", "")
        raise DjepaError(
            f"MuJoCo does not load with MUJOCO_GL='{library}' ({error}). Unset it: "
            "only MuJoCo's own pictures need OpenGL."
        ) from error
    found = importlib.util.find_spec("dm_control")
    if found is None or not found.submodule_search_locations:
        raise MissingExtraError("The reacher world", "mujoco")
    file = Path(found.submodule_search_locations[0]) / "suite" / "reacher.xml"
    model = mujoco.MjModel.from_xml_path(str(file))
    # A start must not remember what ran before it, and a state that explodes must not become 0.
    off = mujoco.mjtDisableBit
    model.opt.disableflags |= off.mjDSBL_WARMSTART | off.mjDSBL_AUTORESET
    return mujoco, model


def mujoco_frames(engine: Any, model: Any, states: Floats, size: int) -> Frames:
    """(..., 4) arrays -> (..., size, size, 3) from the camera `fixed`, the target hidden."""
    own = copy.copy(model)
    own.vis.global_.offwidth = own.vis.global_.offheight = size
    target = own.geom("target")
    target.matid[:], target.rgba[3] = -1, 0.0
    data, flat = engine.MjData(own), states.reshape(-1, 4)
    drawn = np.empty((len(flat), size, size, 3), np.uint8)
    try:
        with warnings.catch_warnings(action="ignore"):  # the window library speaks in warnings
            renderer = engine.Renderer(own, size, size)
    except Exception as error:  # each library has an error of its own
        raise DjepaError(
            f"MuJoCo cannot draw here: no OpenGL context ({error}). Set MUJOCO_GL=egl or osmesa "
            'before Python starts, where that library is installed, or leave out renderer="mujoco".'
        ) from error
    with renderer:
        for i, state in enumerate(flat):
            data.qpos[:], data.qvel[:] = state[:2], state[2:]
            engine.mj_forward(own, data)
            renderer.update_scene(data, camera="fixed")
            drawn[i] = renderer.render()
    return drawn.reshape(*states.shape[:-1], size, size, 3)
