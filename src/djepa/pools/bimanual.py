"""Candidates of a bimanual start: the native chunk and 16 variants, as published (App. G).

    head image → chromatic support of every object → nine numbers each → standardised ridge
               → where both arms grasp (and place) → nearest demonstration as template
               → smooth warp → 4 x 4 offsets of the grasp targets, equal for both arms

    p̃_t = p_t + w_t (ĝ - g),   w_t = 3u² - 2u³,   u = min(t / t_g, 1)          (eq:robotwarp)

The paper writes this for a grasp. Our tasks also place the grasped object, so after the grasp the
correction changes as smoothly to that of the place target. The offset stays, so that an object
grasped off its centre is still put down at its target. Orientations and openings: the template's.

Legend: N starts, T templates, H commands, F = 9 numbers an object, P = 12 target coordinates: x, y,
z of left grasp, left place, right grasp, right place.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.errors import DjepaError
from djepa.worlds import aloha_expert as aloha
from djepa.worlds.bimanual import experts
from djepa.worlds.bimanual.experts import HORIZON
from djepa.worlds.bimanual.ik import POSE
from djepa.worlds.bimanual.scene import HUES, TASKS
from djepa.worlds.protocol import Floats, Frames

VIVID, NEAR = 0.3, 25.0  # least chroma, degrees of hue
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
ALONG, ACROSS = (0.0, 0.02, 0.04, 0.06), (-0.03, -0.01, 0.01, 0.03)  # m
VARIANTS = len(ALONG) * len(ACROSS)
TEMPLATES = 32  # per task, at most
F, P = 9, 12  # numbers of an object; coordinates of all targets
ANCHORS = experts.ANCHORS | aloha.ANCHORS
COLOURS = {task: tuple(item.colour for item in of) for task, of in TASKS.items()} | aloha.COLOURS
Layout = dict[str, tuple[str, tuple[int, ...]]]  # array -> type and shape


def support(image: Frames, colour: str) -> npt.NDArray[np.bool_]:
    """(h, w, 3) -> (h, w): pixels of that colour."""
    rgb = image.astype(np.float64) / 255
    top, low = rgb.max(-1), rgb.min(-1)
    chroma = top - low
    r, g, b = np.moveaxis(rgb, -1, 0)
    safe = np.maximum(chroma, 1e-9)
    hue = np.where(
        top == r, (g - b) / safe, np.where(top == g, 2 + (b - r) / safe, 4 + (r - g) / safe)
    )
    gap = (60 * hue - HUES[colour] + 180) % 360 - 180
    return np.asarray((chroma > VIVID) & (np.abs(gap) < NEAR))


def nine_numbers(mask: npt.NDArray[np.bool_]) -> Floats:
    """(h, w) -> (9,) centre, principal direction, extent and two end points, in image heights."""
    rows, columns = np.nonzero(mask)
    if len(rows) < 4:
        raise DjepaError(
            "The head camera does not see an object of this task: no pixel has its hue."
        )
    points = np.stack([columns, rows], 1) / mask.shape[0]
    centre = points.mean(0)
    spread = np.cov((points - centre).T)
    _, axes = np.linalg.eigh(spread)
    axis = axes[:, 1] * np.where(axes[0, 1] < 0, -1.0, 1.0)  # to the right
    along = (points - centre) @ axis
    ends = centre + np.outer([along.min(), along.max()], axis)
    return np.concatenate([centre, axis, [along.std()], ends.ravel()])


def features(task: str, image: Frames) -> Floats:
    """(F · objects,) the nine numbers of every object of the task in a head image."""
    return np.concatenate([nine_numbers(support(image, colour)) for colour in COLOURS[task]])


def targets_of(task: str, poses: Floats) -> Floats:
    """(..., H, 16) -> (..., P): where the arms are when they grasp and place."""
    arms = poses.reshape(*poses.shape[:-1], 2, POSE)[..., :3]
    found = [arms[..., at, i, :] for i, moments in enumerate(ANCHORS[task]) for at in moments]
    return np.concatenate(found, -1)


@dataclass(frozen=True)
class Proposer:
    """The ridge regression and the templates fitted on the demonstrations of one task."""

    task: str
    middle: Floats  # (F',) of the features,
    scale: Floats  # and their spread
    weights: Floats  # (F' + 1, P), the last row is the intercept
    ridge: float
    templates: Floats  # (T, H, 16) poses
    known: Floats  # (T, P) their targets

    def targets(self, image: Frames) -> Floats:
        """(P,) where the arms should grasp and place in this scene."""
        return self.read(features(self.task, image))

    def read(self, numbers: Floats) -> Floats:
        """(P,) the targets predicted from (F',) image features."""
        x = (numbers - self.middle) / self.scale
        return np.asarray(np.append(x, 1.0) @ self.weights)

    def template(self, targets: Floats) -> int:
        """The demonstration with the nearest targets, each coordinate in units of its spread."""
        spread = np.maximum(self.known.std(0), 1e-3)
        return int(np.square((self.known - targets) / spread).sum(1).argmin())

    def variants(self, targets: Floats) -> Floats:
        """(16, H, 16) poses; the offset along the table varies slowest."""
        which = self.template(targets)
        moved = np.tile(targets - self.known[which], (VARIANTS, 1)) + offsets(targets)
        return np.stack([warp(self.task, self.templates[which], by) for by in moved])


def offsets(targets: Floats) -> Floats:
    """(16, P) offsets along the line of grasps and across, equal for both arms, grasp and place."""
    line = targets[6:8] - targets[:2]
    along = line / max(float(np.linalg.norm(line)), 1e-9)
    across = np.array([-along[1], along[0]])
    steps = [a * along + c * across for a in ALONG for c in ACROSS]
    return np.tile(np.pad(np.array(steps), ((0, 0), (0, 1))), (1, 4))


def warp(task: str, poses: Floats, by: Floats) -> Floats:
    """(H, 16) poses whose targets are moved `by` (P,), smoothly before the grasp and after it."""
    found = poses.copy()
    steps = np.arange(1, len(poses) + 1)  # the first command already moves
    for arm, ((grasp, place), shift) in enumerate(
        zip(ANCHORS[task], by.reshape(2, 2, 3), strict=True)
    ):
        reach = _smooth(steps / (grasp + 1))
        carry = _smooth((steps - grasp - 1) / (place - grasp))
        way = np.outer(reach, shift[0]) + np.outer(carry, shift[1] - shift[0])
        found[:, arm * POSE : arm * POSE + 3] += way
    return found


def _smooth(u: Floats) -> Floats:
    u = np.clip(u, 0, 1)
    return np.asarray(3 * u**2 - 2 * u**3)


def fit_proposer(
    task: str, x: Floats, poses: Floats, held_x: Floats, held_poses: Floats
) -> tuple[Proposer, float]:
    """Fit a ridge on (N, F') features; λ has the least held-out error, which is returned, in m."""
    y, held = targets_of(task, poses), targets_of(task, held_poses)
    middle, scale = x.mean(0), np.maximum(x.std(0), 1e-6)
    z = (x - middle) / scale
    mean = y.mean(0)
    tried = []
    for ridge in RIDGES:
        w = np.linalg.solve(z.T @ z + ridge * len(z) * np.eye(z.shape[1]), z.T @ (y - mean))
        guess = (held_x - middle) / scale @ w + mean
        gap = np.linalg.norm((guess - held).reshape(len(held), 4, 3), axis=-1).mean()
        tried.append((float(gap), ridge, np.vstack([w, mean])))
    error, ridge, weights = min(tried, key=lambda one: one[:2])
    few = slice(0, TEMPLATES)
    return Proposer(task, middle, scale, weights, ridge, poses[few], y[few]), error


def arrays_of(proposers: Mapping[str, Proposer]) -> dict[str, npt.NDArray[Any]]:
    """The arrays to store: poses rounded to 16 bits, and targets of the rounded poses."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    for task, one in proposers.items():
        arrays |= {f"{task}/{name}": getattr(one, name) for name in ("middle", "scale", "weights")}
        arrays[f"{task}/ridge"] = np.array(one.ridge)
        arrays[f"{task}/templates"] = one.templates.astype(np.float16)
    return arrays


def read_proposers(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, Proposer]:
    """Task -> its `Proposer`, from the arrays stored at `path`; other arrays are refused."""
    layout: Layout = {}
    for task in TASKS:
        inputs = F * len(COLOURS[task])
        T = min(max(1, len(np.atleast_1d(arrays.get(f"{task}/templates", 0)))), TEMPLATES)
        layout |= {
            f"{task}/middle": ("float64", (inputs,)),
            f"{task}/scale": ("float64", (inputs,)),
            f"{task}/weights": ("float64", (inputs + 1, P)),
            f"{task}/ridge": ("float64", ()),
            f"{task}/templates": ("float16", (T, HORIZON, 2 * POSE)),
        }
    check_arrays(path, arrays, layout)
    found = {}
    for task in TASKS:
        middle, scale, weights = (arrays[f"{task}/{n}"] for n in ("middle", "scale", "weights"))
        templates = arrays[f"{task}/templates"].astype(np.float64)
        turns = templates.reshape(*templates.shape[:-1], 2, POSE)[..., 3:7]
        turns /= np.linalg.norm(turns, axis=-1, keepdims=True)
        known = targets_of(task, templates)
        ridge = float(arrays[f"{task}/ridge"])
        found[task] = Proposer(task, middle, scale, weights, ridge, templates, known)
    return found


def check_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]], layout: Layout) -> None:
    """Refuse names, types or shapes other than those of `layout`, and NaN or infinity."""
    odd = sorted(arrays.keys() ^ layout.keys())
    for name, (kind, shape) in layout.items():
        array = arrays.get(name, np.empty(0))
        if (array.dtype.name, array.shape) != (kind, shape) or not np.isfinite(array).all():
            odd.append(name)
    if odd:
        raise DjepaError(f"{path} is damaged: '{odd[0]}' is missing, foreign or of another kind.")
