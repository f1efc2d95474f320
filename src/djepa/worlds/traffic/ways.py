"""Ways (possible paths) of vehicles: along their lane and the lanes that follow.

Legend: W ways, P points, 1 m apart; a vehicle begins BEFORE metres from the start of its ways.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from djepa.worlds.traffic.plane import (
    Array,
    Mask,
    along_line,
    lengths,
    project,
    unit,
    wrap,
)
from djepa.worlds.traffic.scene import H, Lane, Scene

BEFORE, REACH = 10, 90  # m
POINTS = BEFORE + REACH + 1
FORKS = 3  # ways of one vehicle at most
LATERAL, SLOWING = 2.5, 1.5  # m/s², in bends; before them
CLOSE, CROSSING = 3.0, np.deg2rad(20)  # m and angle at which ways through a junction conflict


@dataclass(frozen=True)
class Way:
    """A way of one vehicle; distances are from its first point."""

    poses: Array  # (P, 3)
    offset: float  # m to the left of it, now
    limit: float  # m/s, of the lane; NaN: unknown
    begins: dict[int, float]  # lane -> where it begins
    stop: float = np.inf  # where a junction begins, and where it ends
    clear: float = np.inf
    connector: int = -1  # its lane through the junction


@dataclass(frozen=True)
class Ways:
    """All ways of all vehicles."""

    poses: Array  # (W, P, 3)
    cap: Array  # (W, P) m/s, slow enough for the bends ahead
    offset: Array  # (W,)
    limit: Array  # (W,)
    stop: Array  # (W,)
    clear: Array  # (W,)
    connector: NDArray[np.int64]  # (W,)
    conflict: Mask  # (W, W) whether they cross in a junction
    merge: Array  # (W, W) where the first joins the second; infinite if nowhere

    @classmethod
    def of(cls, ways: Sequence[Way], lanes: Sequence[Lane]) -> "Ways":
        """All ways as arrays, with conflicts and merges of each pair."""
        poses = np.stack([way.poses for way in ways])
        offset, limit, stop, clear, connector = (
            np.array([getattr(way, name) for way in ways])
            for name in ("offset", "limit", "stop", "clear", "connector")
        )
        merge = np.array([[_merge(a, b, lanes) for b in ways] for a in ways])
        return cls(
            *(poses, _cap(poses[..., H]), offset, limit, stop, clear, connector),
            *(_conflicts(poses, stop, clear), merge),
        )


def ways_of(lanes: Sequence[Lane], pose: Array, own: int | None) -> list[Way]:
    """Up to three ways of a vehicle, the straightest first; straight on without a lane."""
    if own is None:
        s = np.arange(-BEFORE, REACH + 1.0)
        points = np.concatenate(
            [pose[:2] + s[:, None] * unit(pose[H]), np.full((POINTS, 1), pose[H])], 1
        )
        return [Way(points, 0.0, np.nan, {})]
    s0, offset = project(pose[:2], lanes[own].centre)
    return [
        _way(lanes, chain, float(s0), float(offset))
        for chain in _chains(lanes, own, float(s0) + REACH)
    ]


def route_way(scene: Scene) -> Way:
    """The ego car's way: of those from its lane, the one along its route."""
    every = ways_of(scene.lanes, scene.ego, scene.route[0])
    away = [np.abs(project(way.poses[BEFORE::4, :2], scene.path)[1]).mean() for way in every]
    return every[int(np.argmin(away))]


def _chains(lanes: Sequence[Lane], own: int, far: float) -> list[tuple[int, ...]]:
    """Chains of successive lanes, each at least `far` metres long if the lanes allow."""
    found = list[tuple[int, ...]]()
    open_: list[tuple[tuple[int, ...], float]] = [((own,), lengths(lanes[own].centre)[-1])]
    while open_ and len(found) < FORKS:
        chain, length = open_.pop(0)
        following = [i for i in lanes[chain[-1]].next if i not in chain]
        if length >= far or not following:
            found.append(chain)
            continue
        following.sort(key=lambda i: (_turn(lanes[i]), i))
        more = [((*chain, i), length + lengths(lanes[i].centre)[-1]) for i in following]
        open_ = more + open_
    return found


def _turn(lane: Lane) -> float:
    first, last = lane.centre[1] - lane.centre[0], lane.centre[-1] - lane.centre[-2]
    return abs(float(wrap(np.arctan2(last[1], last[0]) - np.arctan2(first[1], first[0]))))


def _way(lanes: Sequence[Lane], chain: tuple[int, ...], s0: float, offset: float) -> Way:
    points = np.concatenate([lanes[i].centre for i in chain])
    line = points[np.concatenate([[True], np.hypot(*np.diff(points, axis=0).T) > 0.05])]
    poses = along_line(line, s0 + np.arange(-BEFORE, REACH + 1.0))
    begins, at = dict[int, float](), BEFORE - s0
    stop = clear = np.inf
    connector = -1
    for i in chain:
        begins[i], end = at, at + lengths(lanes[i].centre)[-1]
        if lanes[i].intersection and end > BEFORE and (connector < 0 or at <= clear + 1):
            stop, clear, connector = min(stop, at), end, connector if connector >= 0 else i
        at = end
    return Way(poses, offset, lanes[chain[0]].limit, begins, stop, clear, connector)


def _cap(heading: Array) -> Array:
    """(W, P) highest speed at each metre that allows soft braking for the bends ahead."""
    bend = np.abs(np.gradient(np.unwrap(heading, axis=1), axis=1))
    wide = np.pad(bend, ((0, 0), (2, 2)), mode="edge")
    bend = sum(wide[:, k : k + bend.shape[1]] for k in range(5)) / 5 + 1e-4
    cap = np.sqrt(LATERAL / bend)
    for i in range(cap.shape[1] - 2, -1, -1):
        cap[:, i] = np.minimum(cap[:, i], np.sqrt(cap[:, i + 1] ** 2 + 2 * SLOWING))
    return cap


def _conflicts(poses: Array, stop: Array, clear: Array) -> Mask:
    """(W, W) whether ways cross inside a junction."""
    W, at = len(poses), np.arange(0, POINTS, 2)
    result = np.zeros((W, W), bool)
    inner = [at[(at >= stop[w]) & (at <= clear[w])] for w in range(W)]
    for w in range(W):
        for u in range(w):
            if len(inner[w]) and len(inner[u]):
                a, b = poses[w, inner[w]], poses[u, inner[u]]
                near = np.hypot(*np.moveaxis(a[:, None, :2] - b[None, :, :2], -1, 0)) < CLOSE
                turn = np.abs(wrap(a[:, None, H] - b[None, :, H]))
                result[w, u] = result[u, w] = bool((near & (turn > CROSSING)).any())
    return result


def _merge(a: Way, b: Way, lanes: Sequence[Lane]) -> float:
    """Where `a` enters a lane that `b` enters from another one, not out of a junction."""
    of_a, of_b = list(a.begins), list(b.begins)
    if not of_a or not of_b or of_a[0] == of_b[0]:
        return np.inf
    for before, lane in pairwise(of_a):
        if lane in of_b[1:] and a.begins[lane] > BEFORE and b.begins[lane] > BEFORE:
            other = of_b[of_b.index(lane) - 1]
            if other == before or lanes[before].intersection or lanes[other].intersection:
                return np.inf
            return a.begins[lane]
    return np.inf
