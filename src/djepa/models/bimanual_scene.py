"""Where both arms should grasp and place, read from the whole head view and the joints.

    targets = W (nine numbers of every object, R directions of 15 x 20 grey patches, joints, 1)

The proposals of the paper read colours alone, and so err when the head camera moves. Patches of the
table's edge and of the arms move with it: a ridge map that also reads them does not. It is fitted
on demonstrations, never on outcomes. Legend: N images, P target coordinates.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from djepa.errors import DjepaError
from djepa.files import naming
from djepa.pools.bimanual import RIDGES, features, targets_of
from djepa.worlds.bimanual.scene import TASKS
from djepa.worlds.protocol import Floats, Frames

DIRECTIONS, PATCH = 60, 4  # pixels of a patch's side, at 60 x 80
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
    """Directions from the training images of all tasks, a map for each; λ and errors in m by the
    calibration episodes.
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


def save_scene(path: Path, scene: SceneMap) -> None:
    """One compressed file of 32-bit floats."""
    arrays = {f"weights/{task}": w for task, w in scene.weights.items()}
    arrays |= {"middle": scene.middle, "directions": scene.directions}
    with naming(path):
        np.savez_compressed(path, **{n: a.astype(np.float32) for n, a in arrays.items()})  # type: ignore[arg-type]


def load_scene(path: Path) -> SceneMap:
    """As it was saved."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name].astype(np.float64) for name in stored.files}
        weights = {task: arrays[f"weights/{task}"] for task in TASKS}
        return SceneMap(arrays["middle"], arrays["directions"], weights)
    except (OSError, ValueError, KeyError) as error:
        raise DjepaError(f"{path} does not hold a map of scenes: {error}") from None
