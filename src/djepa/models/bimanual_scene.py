"""Where both arms should grasp and place, read from the whole head view and the joints.

    targets = W (nine numbers of every object, R directions of 15 x 20 grey patches, joints, 1)

The proposals of the paper read colours alone, and so are biased when the head camera moves. Patches
of the table's edge and of the arms move with the camera, so a ridge map that also reads them can
correct for it. It is fitted on demonstrations only. Legend: N images, P target coordinates.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.pools.bimanual import (
    COLOURS,
    RIDGES,
    F,
    Layout,
    P,
    check_arrays,
    features,
    targets_of,
)
from djepa.worlds.bimanual.scene import TASKS
from djepa.worlds.bimanual.world import COMMAND
from djepa.worlds.protocol import Floats, Frames

DIRECTIONS, PATCH, PATCHES = 60, 4, 300  # pixels of a patch's side, and patches at 60 x 80
VIVID, TABLE = 0.2, 0.78  # pixels more colourful than this are painted as grey as the table
Demonstrations = dict[str, dict[str, npt.NDArray[np.float64]]]  # task -> name -> array


@dataclass(frozen=True)
class SceneMap:
    """What was fitted for all tasks."""

    middle: Floats  # (300,) mean patches
    directions: Floats  # (R, 300)
    weights: dict[str, Floats]  # task -> (inputs + 1, P)

    def targets(self, task: str, image: Frames, small: Frames, joints: Floats) -> Floats:
        """(P,) of a head image, the same at 60 x 80, and (14,) joints."""
        x = self.inputs(features(task, image)[None], small[None], joints[None])
        return np.asarray((x @ self.weights[task])[0])

    def inputs(self, numbers: Floats, small: Frames, joints: Floats) -> Floats:
        """(N, inputs + 1)."""
        seen = (patches(small) - self.middle) @ self.directions.T
        return np.concatenate([numbers, seen, joints, np.ones((len(numbers), 1))], 1)


def patches(images: Frames) -> Floats:
    """(N, 60, 80, 3) -> (N, 300) mean grey of patches, without the coloured objects."""
    x = images.astype(np.float64) / 255
    vivid = x.max(-1) - x.min(-1) > VIVID
    grey = np.where(vivid, TABLE, x.mean(-1))
    N, h, w = grey.shape
    return grey.reshape(N, h // PATCH, PATCH, w // PATCH, PATCH).mean((2, 4)).reshape(N, -1)


def fit_scene(train: Demonstrations, held: Demonstrations) -> tuple[SceneMap, dict[str, float]]:
    """Fit patch directions on the training images of all tasks, and one ridge map per task.

    The calibration episodes `held` choose λ; returns the map and its errors in m on them.
    """
    grey = np.concatenate([patches(of["image"]) for of in train.values()])  # type: ignore[arg-type]
    middle = grey.mean(0)
    directions = np.linalg.svd(grey - middle, full_matrices=False)[2][:DIRECTIONS]
    found, errors = SceneMap(middle, directions, {}), {}
    for task, of in train.items():
        x, y = _pairs(found, task, of)
        z, truth = _pairs(found, task, held[task])
        scale = np.append(np.maximum(x[:, :-1].std(0), 1e-6), 1.0)
        mean = np.append(x[:, :-1].mean(0), 0.0)
        a, b = (x - mean) / scale, (z - mean) / scale
        tried = []
        for ridge in RIDGES:
            penalty = ridge * len(a) * np.diag(np.append(np.ones(a.shape[1] - 1), 0.0))
            w = np.linalg.solve(a.T @ a + penalty, a.T @ y)
            gap = np.linalg.norm((b @ w - truth).reshape(len(b), 4, 3), axis=-1).mean()
            tried.append((float(gap), ridge, w))
        errors[task], _, w = min(tried, key=lambda one: one[:2])
        plain = w / scale[:, None]
        plain[-1] -= mean @ plain
        found.weights[task] = plain
    return found, errors


def _pairs(
    scene: SceneMap, task: str, of: dict[str, npt.NDArray[np.float64]]
) -> tuple[Floats, Floats]:
    x = scene.inputs(of["features"], of["image"], of["joints"])  # type: ignore[arg-type]
    return x, targets_of(task, of["poses"])


def scene_arrays(scene: SceneMap) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a scene map as stored, in float32."""
    arrays = {f"weights/{task}": w for task, w in scene.weights.items()}
    arrays |= {"middle": scene.middle, "directions": scene.directions}
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def read_scene(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> SceneMap:
    """A scene map from the arrays stored at `path`; invalid arrays raise an error."""
    R = len(np.atleast_1d(arrays.get("directions", 0)))
    layout: Layout = {"middle": ("float32", (PATCHES,)), "directions": ("float32", (R, PATCHES))}
    for task in TASKS:
        inputs = F * len(COLOURS[task]) + R + COMMAND
        layout[f"weights/{task}"] = ("float32", (inputs + 1, P))
    check_arrays(path, arrays, layout)
    whole = {name: array.astype(np.float64) for name, array in arrays.items()}
    weights = {task: whole[f"weights/{task}"] for task in TASKS}
    return SceneMap(whole["middle"], whole["directions"], weights)
