"""The model of the reacher world, which needs the extra `mujoco`."""

import importlib.util
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from djepa.errors import DjepaError, MissingExtraError


@lru_cache(maxsize=1)
def load_model() -> tuple[Any, Any]:
    """MuJoCo and the model in dm_control's file, which is read without importing dm_control."""
    try:
        import mujoco
        import mujoco.rollout
    except ImportError as error:
        raise MissingExtraError("The reacher world", "mujoco") from error
    except Exception as error:  # MUJOCO_GL names a missing library
        library = os.environ.get("MUJOCO_GL", "")
        raise DjepaError(
            f"MuJoCo does not load with MUJOCO_GL='{library}' ({error}). Unset it."
        ) from error
    found = importlib.util.find_spec("dm_control")
    if found is None or not found.submodule_search_locations:
        raise MissingExtraError("The reacher world", "mujoco")
    file = Path(found.submodule_search_locations[0]) / "suite" / "reacher.xml"
    model = mujoco.MjModel.from_xml_path(str(file))
    # A rollout must not depend on earlier ones, and diverged physics must not be reset.
    off = mujoco.mjtDisableBit
    model.opt.disableflags |= off.mjDSBL_WARMSTART | off.mjDSBL_AUTORESET
    return mujoco, model
