"""Candidates for driving: 32 trajectories from a vocabulary of recorded motions.

A vocabulary is clustered on 4 s motions of fitting scenes. A scene gets entries whose start speed
is near its own, as different from each other as possible, and eight that brake or stop.

Legend: N motions, V entries, 8 poses (x, y, heading) at 0.5 s each.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from djepa.errors import DjepaError
from djepa.worlds.traffic.plane import Array, along_line, lengths
from djepa.worlds.traffic.recording import Recording, motion_of, rear_axle
from djepa.worlds.traffic.scene import AHEAD, DT, EVERY, POSES, Kind, Scene

COUNT = 32
ENTRIES = 1024  # of a vocabulary
NEAR = 128  # entries nearest in start speed, from which dissimilar ones are selected
TURN = 5.0  # m per radian of heading
MEDIUM, SIDES = (1.0, 2.0, 3.0, 4.5), (2.0, 3.5)  # m/s², brakings straight on, and to each side
PLAIN = COUNT - len(MEDIUM) - 2 * len(SIDES)
ROUNDS = 20  # of k-means, at most
SECOND = round(1 / DT)  # steps


@dataclass(frozen=True)
class Vocabulary:
    """Motions in the frame of their own start."""

    motions: Array  # (V, 8, 3)
    speed: Array  # (V,) m/s, at the start

    def __post_init__(self) -> None:
        V = len(self.speed)
        if self.motions.shape != (V, POSES, 3) or self.speed.shape != (V,) or V < PLAIN:
            raise DjepaError(f"a vocabulary holds at least {PLAIN} motions (V, {POSES}, 3)")


def read_vocabulary(path: Path, arrays: Mapping[str, NDArray[Any]]) -> Vocabulary:
    """The vocabulary in the arrays stored at `path`; errors name the file."""
    try:
        if {*arrays} != {"motions", "speed"}:
            raise DjepaError("a vocabulary is two arrays, motions and speed")
        for name, array in arrays.items():
            if array.dtype != np.float64 or not array.ndim or not np.isfinite(array).all():
                raise DjepaError(f"'{name}' is no array of finite 64-bit floats")
        return Vocabulary(arrays["motions"], arrays["speed"])
    except DjepaError as error:
        raise DjepaError(f"{path} is damaged: {error}.") from None


def motions_in(recording: Recording) -> tuple[Array, Array]:
    """(N, 8, 3) motions and (N,) start speeds of all vehicles, one every second."""
    motions, speed = [np.zeros((0, POSES, 3))], []
    usable = recording.kind == Kind.VEHICLE
    if recording.clean is not None:
        usable &= recording.clean
    for row in np.flatnonzero(usable):
        axle = rear_axle(recording.state[row])
        for start in range(0, len(axle) - AHEAD, SECOND):
            if np.isfinite(axle[start : start + POSES * EVERY + 1]).all():
                motions.append(motion_of(axle, start)[None])
                speed.append(axle[start, 3])
    return np.concatenate(motions), np.array(speed)


def fit_vocabulary(
    logs: Iterable[Recording], rng: np.random.Generator, entries: int = ENTRIES
) -> Vocabulary:
    """Cluster the motions of fitting logs; each entry is the recorded motion nearest to a mean."""
    found = [(np.zeros((0, POSES, 3)), np.zeros(0)), *map(motions_in, logs)]
    motions = np.concatenate([m for m, _ in found])
    speed = np.concatenate([s for _, s in found])
    if len(speed) < PLAIN:
        raise DjepaError(f"{len(speed)} motions are too few for a vocabulary; record more traffic.")
    rows = _cluster(features(motions, speed), min(entries, len(speed)), rng)
    return Vocabulary(motions[rows], speed[rows])


def features(motions: Array, speed: Array) -> Array:
    """(N, 25) positions, headings and start speed, all as distances in m."""
    scaled = motions * np.array([1.0, 1.0, TURN])
    return np.concatenate([scaled.reshape(len(motions), -1), 2.0 * speed[:, None]], 1)


def _cluster(points: Array, count: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """K-means; rows of the points nearest to the means, in ascending order."""
    means = points[np.sort(rng.choice(len(points), count, replace=False))]
    owner = np.full(len(points), -1)
    for _ in range(ROUNDS):
        new = _squares(points, means).argmin(1)
        if (new == owner).all():
            break
        owner = new
        total = np.zeros_like(means)
        np.add.at(total, owner, points)
        size = np.bincount(owner, minlength=count)[:, None]
        means = np.where(size > 0, total / np.maximum(size, 1), means)
    return np.unique(_squares(means, points).argmin(1))


def _squares(a: Array, b: Array) -> Array:
    """(n, f), (m, f) -> (n, m) squared distances."""
    return (a**2).sum(1)[:, None] - 2 * a @ b.T + (b**2).sum(1)


def propose(vocabulary: Vocabulary, scene: Scene) -> Array:
    """(32, 8, 3) candidates; the row of a candidate is its ID."""
    speed = float(scene.ego[3])
    off = np.abs(vocabulary.speed - speed)
    near = np.argsort(off, kind="stable")[:NEAR]
    near = near[off[near] <= max(1.0, off[near[PLAIN - 1]])]
    motions = vocabulary.motions[near]
    plain = motions[spread(features(motions, np.zeros(len(near))), PLAIN)]
    ahead = plain[np.abs(plain[:, -1, 2]).argmin()]
    left, right = plain[plain[:, -1, 2].argmax()], plain[plain[:, -1, 2].argmin()]
    braked = [braking(ahead, speed, rate) for rate in MEDIUM]
    braked += [braking(way, speed, rate) for way in (left, right) for rate in SIDES]
    return np.concatenate([plain, np.stack(braked)])


def spread(points: Array, count: int) -> NDArray[np.intp]:
    """Rows of points far from each other: first the most central, then the farthest in turn."""
    chosen = [int(_squares(points, points.mean(0)[None])[:, 0].argmin())]
    away = _squares(points, points[chosen])[:, 0]
    for _ in range(count - 1):
        chosen.append(int(away.argmax()))
        away = np.minimum(away, _squares(points, points[chosen[-1:]])[:, 0])
    return np.sort(np.array(chosen))


def braking(way: Array, speed: float, rate: float) -> Array:
    """(8, 3) poses along the path of a motion, from `speed` at deceleration `rate` to a stop."""
    t = np.minimum(EVERY * DT * np.arange(1, POSES + 1), speed / rate)
    s = speed * t - rate * t**2 / 2
    line = np.concatenate([np.zeros((1, 2)), way[:, :2]])
    line = line[np.concatenate([[True], np.hypot(*np.diff(line, axis=0).T) > 0.05])]
    if len(line) < 2:
        line = np.array([[0.0, 0.0], [1.0, 0.0]])
    poses = along_line(np.concatenate([line, line[-1:] + (line[-1] - line[-2])]), s)
    poses[:, 2] *= np.minimum(s / max(lengths(line)[1], 0.1), 1.0)  # the first pose is straight
    return poses
