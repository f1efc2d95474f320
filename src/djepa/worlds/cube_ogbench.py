"""OGBench's cube environment, third party and unchanged, which needs the extra `cube`."""

import os
import warnings
from functools import lru_cache
from typing import Any

from djepa.errors import DjepaError, MissingExtraError


@lru_cache(maxsize=1)
def load_env() -> tuple[Any, Any]:
    """MuJoCo and an environment with one cube, made once per process. No OpenGL is needed."""
    try:
        with warnings.catch_warnings(action="ignore"):  # it warns without a display
            import mujoco
            from ogbench.manipspace.envs.cube_env import CubeEnv
    except ImportError as error:
        raise MissingExtraError("The cube world", "cube") from error
    except Exception as error:  # MUJOCO_GL names a missing library
        library = os.environ.get("MUJOCO_GL", "")
        raise DjepaError(
            f"MuJoCo does not load with MUJOCO_GL='{library}' ({error}). Unset it."
        ) from error
    env = CubeEnv("single", mode="data_collection", terminate_at_goal=False, visualize_info=False)
    env.reset(seed=0)
    # Diverged physics must be refused, not reset to the initial state.
    env.model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
    return mujoco, env
