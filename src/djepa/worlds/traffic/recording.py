"""A recording of traffic, read or generated, and the scenes that can be cut from it.

Any car recorded for the next 5.1 s can be the ego: it is removed, the others are replayed.

Legend: L lanes, T tracks, S steps at 10 Hz.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from djepa.errors import DjepaError
from djepa.worlds.traffic.plane import Array, Mask, boxes_meet, corners, to_frame, wrap
from djepa.worlds.traffic.route import find_route, lanes_of
from djepa.worlds.traffic.scene import (
    AHEAD,
    BEHIND,
    DT,
    EGO_SIZE,
    EVERY,
    POSES,
    TO_CENTRE,
    WHEEL_BASE,
    Kind,
    Lane,
    Scene,
)

RADIUS = 100.0  # m, of the map and the traffic kept around the ego
SLOW = 1.0  # m/s; below it the heading rate does not determine the steering angle
LONGEST = 100.0  # m, of any road user


@dataclass(frozen=True)
class Recording:
    """Lanes and the tracks of all road users."""

    log: str  # recordings of one log may share road users
    lanes: tuple[Lane, ...]
    drivable: tuple[Array, ...]
    state: Array  # (T, S, 4) x, y of the box's centre, heading, speed; NaN where not seen
    size: Array  # (T, 2) length, width
    kind: NDArray[np.int64]  # (T,)
    ids: tuple[str, ...]  # (T,) names of the tracks
    red: Mask | None = None  # (S, L) lanes closed by a red light
    clean: Mask | None = None  # (T,) tracks good enough to be an ego; all if None
    gone: Array = field(
        default_factory=lambda: np.zeros((0, 4))
    )  # cars at step 0 with unknown path
    name: str = ""  # unique among the recordings of its log; if empty, the name of the log

    def __post_init__(self) -> None:
        T = len(self.ids)
        if not self.lanes:
            raise DjepaError("there are no lanes")
        if self.state.ndim != 3 or self.state.shape[::2] != (T, 4) or self.state.shape[1] < 1:
            raise DjepaError(f"states of {T} tracks are {self.state.shape}, not (T, S, 4)")
        if self.size.shape != (T, 2) or self.kind.shape != (T,):
            raise DjepaError("sizes or kinds do not belong to the tracks")
        if np.isinf(self.state).any() or (np.abs(np.nan_to_num(self.state)) > 1e8).any():
            raise DjepaError("a track state is infinite or absurdly large")
        if not ((self.size > 0) & (self.size < LONGEST)).all():
            raise DjepaError(f"a size of a track is not between 0 and {LONGEST:.0f} m")
        if not np.isin(self.kind, list(Kind)).all():
            raise DjepaError("a track is of no known kind")
        for i, lane in enumerate(self.lanes):
            if len(lane.polygon) < 3 or len(lane.centre) < 2:
                raise DjepaError(f"lane {i} has too few points")
            if not (np.isfinite(lane.polygon).all() and np.isfinite(lane.centre).all()):
                raise DjepaError(f"lane {i} holds a NaN or an infinity")
            if any(not 0 <= j < len(self.lanes) for j in (*lane.next, *lane.beside)):
                raise DjepaError(f"lane {i} leads to a lane that is not there")


def egos(recording: Recording, start: int = 0) -> list[int]:
    """Tracks that can be the ego from step `start`."""
    return [row for row in range(len(recording.ids)) if is_ego(recording, row, start)]


def is_ego(recording: Recording, row: int, start: int = 0) -> bool:
    """Whether the track is a clean vehicle, on a lane, and recorded for 5.1 s.

    False if its box (of the ego's size) meets another at the start, or if a car with an unknown
    path is near.
    """
    span = recording.state[row, start : start + AHEAD + 1]
    clean = recording.clean is None or bool(recording.clean[row])
    if recording.kind[row] != Kind.VEHICLE or not clean or len(span) <= AHEAD:
        return False
    if not np.isfinite(span).all() or lanes_of(recording.lanes, span[:1])[0] is None:
        return False
    pose = recording.state[row, start]
    others = np.delete(recording.state[:, start], row, 0)
    here = np.isfinite(others).all(1)
    boxes = corners(others[:, :2], others[:, 2], np.delete(recording.size, row, 0))[here]
    if boxes_meet(corners(pose[:2], pose[2], EGO_SIZE)[None], boxes).any():
        return False
    if start or not len(recording.gone):
        return True
    ahead, aside = np.abs(to_frame(pose[:3], recording.gone[:, :3])[:, :2]).T
    front = to_frame(pose[:3], recording.gone[:, :3])[:, 0] > 0
    return not ((front & (ahead < 40) & (aside < 2.5)) | ((ahead < 10) & (aside < 6))).any()


def cut(recording: Recording, row: int, start: int = 0) -> Scene:
    """The scene in which track `row` is the ego from step `start`."""
    track = recording.state[row]
    if not np.isfinite(track[start : start + AHEAD + 1]).all() or start + AHEAD >= len(track):
        raise DjepaError(f"Track {recording.ids[row]} is not there for 5.1 s from step {start}.")
    axle = rear_axle(track)
    ego = np.concatenate([axle[start, :3], track[start, 3:], _motion(track, start)])
    keep = _around(recording, row, start)
    past = np.full((len(keep), BEHIND + 1, 4), np.nan)
    known = min(start, BEHIND)
    past[:, BEHIND - known :] = recording.state[keep, start - known : start + 1]
    on_route, path = find_route(recording.lanes, track[start:])
    lanes, drivable, route, red = _local_map(recording, ego, on_route, start)
    return Scene(
        name=f"{recording.name or recording.log}/{recording.ids[row]}@{start}",
        log=recording.log,
        lanes=lanes,
        drivable=drivable,
        route=route,
        path=path,
        ego=ego,
        past=past,
        future=recording.state[keep, start : start + AHEAD + 1],
        size=recording.size[keep],
        kind=recording.kind[keep],
        red=red,
        driven=motion_of(axle, start),
    )


def rear_axle(track: Array) -> Array:
    """(S, 4) states of a box's centre -> those of the rear axle of an ego car there."""
    moved = track.copy()
    moved[:, 0] -= TO_CENTRE * np.cos(track[:, 2])
    moved[:, 1] -= TO_CENTRE * np.sin(track[:, 2])
    return moved


def motion_of(axle: Array, start: int) -> Array:
    """(S, 4) rear axle -> (8, 3) poses of the next 4 s in its frame at `start`."""
    rows = start + EVERY * np.arange(1, POSES + 1)
    return to_frame(axle[start, :3], axle[rows, :3])


def _motion(track: Array, start: int) -> Array:
    """(2,) acceleration and steering angle, from the half second before; 0 if unknown."""
    before = start - EVERY
    if before < 0 or not np.isfinite(track[before]).all():
        return np.zeros(2)
    accel = (track[start, 3] - track[before, 3]) / (EVERY * DT)
    speed = (track[start, 3] + track[before, 3]) / 2
    turn = float(wrap(track[start, 2] - track[before, 2])) / (EVERY * DT)
    steer = np.arctan(WHEEL_BASE * turn / speed) if speed > SLOW else 0.0
    return np.array([np.clip(accel, -6, 4), np.clip(steer, -0.6, 0.6)])


def _around(recording: Recording, row: int, start: int) -> NDArray[np.intp]:
    """Other tracks that come within the map's radius during the scene."""
    span = recording.state[:, start : start + AHEAD + 1, :2]
    away = np.hypot(*np.moveaxis(span - recording.state[row, start, :2], -1, 0))
    near = np.asarray((np.where(np.isfinite(away), away, np.inf) < RADIUS).any(1))
    near[row] = False
    return np.flatnonzero(near)


def _local_map(
    recording: Recording, ego: Array, route: list[int], start: int
) -> tuple[tuple[Lane, ...], tuple[Array, ...], tuple[int, ...], tuple[int, ...]]:
    """Lanes and areas within the radius, with rows renumbered."""

    def close(polygon: Array) -> bool:
        low, high = ego[:2] - RADIUS, ego[:2] + RADIUS
        return bool((polygon.max(0) > low).all() and (polygon.min(0) < high).all())

    kept = [i for i, lane in enumerate(recording.lanes) if close(lane.polygon)]
    new = {old: i for i, old in enumerate(kept)}

    def rows(old: tuple[int, ...] | list[int]) -> tuple[int, ...]:
        return tuple(new[i] for i in old if i in new)

    lanes = tuple(
        Lane(
            lane.polygon,
            lane.centre,
            rows(lane.next),
            rows(lane.beside),
            lane.intersection,
            lane.limit,
        )
        for lane in (recording.lanes[i] for i in kept)
    )
    drivable = tuple(area for area in recording.drivable if close(area))
    red = [] if recording.red is None else np.flatnonzero(recording.red[start]).tolist()
    return lanes, drivable, rows(route), rows(red)
