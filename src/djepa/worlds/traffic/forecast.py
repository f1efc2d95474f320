"""Forecasts of traffic from the present and the past, by simple rules.

    straight   all tracks keep the present velocity
    lanes      vehicles keep to their lanes and distances; their acceleration fades

PDMS computed in a forecast is a score that needs no model and no outcome. Staying on the road,
comfort and distance driven are exact, since the road and the car are known; what other road users
do is not. Legend: T tracks, P points.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from djepa.worlds.traffic.idm import FREE, Style, idm
from djepa.worlds.traffic.plane import Array, along_line, lengths, project, unit, wrap
from djepa.worlds.traffic.reference import constant_velocity
from djepa.worlds.traffic.route import lanes_of
from djepa.worlds.traffic.scene import AHEAD, BEHIND, DT, EVERY, H, Kind, Lane, Scene, V

FADING = 1.0  # s in which an acceleration falls to 1/e
MOVING, NEAR = 0.1, 60.0  # m/s; m from the car
REACH, BEFORE = 90.0, 10.0  # m of a path ahead and behind
LOOK = 5  # steps between two searches for leaders
BRAKE, GAS = -6.0, 3.0  # m/s², bounds of a present acceleration
HARDEST = -8.0  # m/s², hardest braking
DRIVER = Style(speed=1e3, gap=2.0, headway=1.2, accel=2.0, brake=2.5)  # no limit of speed


def straight(scene: Scene) -> Scene:
    """The scene with a future at constant velocity; the recorded future is not used."""
    now = scene.past[:, BEHIND:]
    return replace(scene, future=constant_velocity(np.repeat(now, AHEAD + 1, 1)), driven=None)


def lanes(scene: Scene) -> Scene:
    """The scene with a future in which vehicles near the car keep to their lanes and distances.

    At a fork they take the straightest lane. Their acceleration fades; they brake behind others and
    at a red light as the intelligent driver model does.
    """
    found = straight(scene)
    now, before = scene.past[:, BEHIND], scene.past[:, BEHIND - EVERY]
    away = np.hypot(*(now[:, :2] - scene.ego[:2]).T)
    vehicle = (scene.kind == Kind.VEHICLE) & (np.nan_to_num(away, nan=np.inf) < NEAR)
    rows = np.flatnonzero(vehicle & (np.nan_to_num(now[:, V]) > MOVING))
    if not len(rows):
        return found
    change = (now[rows, V] - before[rows, V]) / (EVERY * DT)
    accel, speed = np.nan_to_num(np.clip(change, BRAKE, GAS)), now[rows, V].copy()
    ways = [
        _way(scene, pose, own) for pose, own in zip(now[rows], _lanes(scene, rows), strict=True)
    ]
    s = np.array([way.start for way in ways])
    history = [(s, speed)]
    for t in range(1, AHEAD + 1):
        if t % LOOK == 1:
            states = found.future[:, t - 1].copy()
            for row, way, at in zip(rows, ways, s, strict=True):
                states[row, :3] = along_line(way.line, at, way.offset)
            states[rows, V] = speed
            gap, leader = _leaders(scene, states, rows, ways, s)
        free = accel * np.exp(-DT * t / FADING)
        following = idm(DRIVER, speed, gap, leader)
        new = np.maximum(speed + DT * np.maximum(np.minimum(free, following), HARDEST), 0.0)
        s, gap = s + DT * (speed + new) / 2, gap + DT * (leader - (speed + new) / 2)
        speed = new
        history.append((s, speed))
    for i, (row, way) in enumerate(zip(rows, ways, strict=True)):
        along, speeds = (np.array([of[i] for of in part]) for part in zip(*history, strict=True))
        found.future[row, :, :3] = along_line(way.line, along, way.offset)
        found.future[row, :, V] = speeds
    return found


@dataclass(frozen=True)
class _Way:
    """The path of a vehicle."""

    line: Array  # (P, 2)
    start: float  # m along it, now
    offset: float  # m to its left
    stop: float  # m along it to a red light


def _lanes(scene: Scene, rows: NDArray[np.intp]) -> list[int | None]:
    return lanes_of(scene.lanes, scene.past[rows, BEHIND])


def _way(scene: Scene, pose: Array, own: int | None) -> _Way:
    """The path along the lanes ahead, or straight on without a lane."""
    if own is None:
        line = pose[:2] + np.array([[0.0], [REACH]]) * unit(pose[H])
        return _Way(line, 0.0, 0.0, np.inf)
    s, offset = project(pose[:2], scene.lanes[own].centre)
    line, begins = _ahead(scene.lanes, own, float(s) + REACH)
    along = lengths(line)
    first = max(int(np.searchsorted(along, s - BEFORE)) - 1, 0)  # the far part is not needed
    last = int(np.searchsorted(along, s + REACH)) + 2
    red = [at for i, at in begins.items() if i in scene.red and at > s]
    begin = along[first]
    stop = min(red, default=np.inf) - begin
    return _Way(line[first:last], float(s - begin), float(offset), float(stop))


def _leaders(
    scene: Scene, states: Array, rows: NDArray[np.intp], ways: Sequence[_Way], s: Array
) -> tuple[Array, Array]:
    """(T, 4) states -> free distance ahead of each vehicle, and the speed of its leader."""
    here = np.flatnonzero(np.isfinite(states).all(1))
    close = np.hypot(*(states[here, :2] - scene.ego[:2]).T) < NEAR + REACH
    here, gap, speed = here[close], np.full(len(rows), FREE), np.zeros(len(rows))
    for i, (row, way) in enumerate(zip(rows, ways, strict=True)):
        along, offset = project(states[here, :2], way.line)
        turn = np.cos(states[here, H] - states[row, H])
        wide = (scene.size[here, 1] + scene.size[row, 1]) / 2
        ahead = (along > s[i]) & (np.abs(offset - way.offset) < wide) & (here != row)
        room = along - s[i] - (scene.size[here, 0] + scene.size[row, 0]) / 2
        room = np.where(ahead, np.maximum(room, 0.1), FREE)
        j = int(room.argmin())
        if room[j] < FREE:
            gap[i], speed[i] = room[j], states[here[j], V] * max(turn[j], 0.0)
        if 0 < (stop := way.stop - s[i] - scene.size[row, 0] / 2) < gap[i]:
            gap[i], speed[i] = stop, 0.0
    return gap, speed


FORECASTS = {"straight": straight, "lanes": lanes}


def _ahead(known: Sequence[Lane], own: int, far: float) -> tuple[Array, dict[int, float]]:
    """(P, 2) centre line of a lane and those after it, and the distance at which each begins."""
    begins, length, last = {own: 0.0}, lengths(known[own].centre)[-1], own
    while length < far:
        following = [i for i in known[last].next if i not in begins]
        if not following:
            break
        last = min(following, key=lambda i: (_turn(known[i]), i))
        begins[last] = length
        length += lengths(known[last].centre)[-1]
    points = np.concatenate([known[i].centre for i in begins])
    apart = np.hypot(*np.diff(points, axis=0).T) > 0.05
    return points[np.concatenate([[True], apart])], begins


def _turn(lane: Lane) -> float:
    """Angle between the beginning and the end of a lane."""
    first, last = lane.centre[1] - lane.centre[0], lane.centre[-1] - lane.centre[-2]
    return abs(float(wrap(np.arctan2(last[1], last[0]) - np.arctan2(first[1], first[0]))))
