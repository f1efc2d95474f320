"""Reader of Argoverse 2 sensor logs: tracked boxes and ego poses (feather), vector map (json).

A log is a folder with `annotations.feather` (boxes in the frame of the ego vehicle),
`city_SE3_egovehicle.feather` and `map/log_map_archive_*.json`. Needs the extra `driving`.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from djepa.errors import DjepaError, MissingExtraError
from djepa.worlds.traffic.lanes import lane_between
from djepa.worlds.traffic.plane import Array, to_world
from djepa.worlds.traffic.reading import KINDS, check_extent, reading, speeds
from djepa.worlds.traffic.recording import Recording
from djepa.worlds.traffic.scene import Kind, Lane

EGO, EGO_BOX, EGO_CENTRE = "ego", (4.877, 1.852), 1.422  # m; the box's centre is ahead of its axle
Table = dict[str, NDArray[Any]]


def read_av2(folder: Path) -> Recording:
    """One recording, with the recording vehicle as track "ego"; else refused by name."""
    with reading(folder):
        maps = sorted((folder / "map").glob("log_map_archive_*.json"))
        if len(maps) != 1:
            raise DjepaError("it needs exactly one map/log_map_archive_*.json")
        with reading(maps[0]):
            lanes, drivable = _map(json.loads(maps[0].read_bytes()))
        boxes = _table(folder / "annotations.feather")
        poses = _table(folder / "city_SE3_egovehicle.feather")
        ids, state, size, kind = _tracks(boxes, poses)
        return Recording(folder.name, lanes, drivable, state, size, kind, ids)


def _table(path: Path) -> Table:
    try:
        from pyarrow import ArrowException, feather
    except ImportError:
        raise MissingExtraError("Reading Argoverse 2 logs", "driving") from None
    with reading(path):
        try:
            table = feather.read_table(path, memory_map=False)
        except ArrowException as error:
            raise DjepaError(str(error).splitlines()[0]) from None
        return {n: table[n].to_numpy(zero_copy_only=False) for n in table.column_names}


def _map(archive: dict[str, Any]) -> tuple[tuple[Lane, ...], tuple[Array, ...]]:
    segments = list(archive["lane_segments"].values())
    row = {int(s["id"]): i for i, s in enumerate(segments)}

    def rows(*ids: Any) -> tuple[int, ...]:
        return tuple(row[int(i)] for i in ids if i is not None and int(i) in row)

    lanes = tuple(
        lane_between(
            _line(s["left_lane_boundary"]),
            _line(s["right_lane_boundary"]),
            rows(*s["successors"]),
            rows(s.get("left_neighbor_id"), s.get("right_neighbor_id")),
            bool(s["is_intersection"]),
        )
        for s in segments
    )
    lanes = tuple(_same_way(lane, lanes) for lane in lanes)
    areas = archive["drivable_areas"].values()
    return lanes, tuple(_line(area["area_boundary"]) for area in areas)


def _same_way(lane: Lane, lanes: tuple[Lane, ...]) -> Lane:
    """Neighbours in the map may run the other way: keep those that do not."""
    way = lane.centre[-1] - lane.centre[0]
    beside = tuple(i for i in lane.beside if (lanes[i].centre[-1] - lanes[i].centre[0]) @ way > 0)
    return Lane(lane.polygon, lane.centre, lane.next, beside, lane.intersection, lane.limit)


def _line(points: list[dict[str, float]]) -> Array:
    return np.array([[p["x"], p["y"]] for p in points], float).reshape(-1, 2)


def _tracks(boxes: Table, poses: Table) -> tuple[tuple[str, ...], Array, Array, NDArray[np.int64]]:
    times = np.unique(boxes["timestamp_ns"])
    if len(times) < 2:
        raise DjepaError("it has fewer than two frames")
    if abs(float(np.median(np.diff(times))) - 1e8) > 2e7:
        raise DjepaError("its frames are not 0.1 s apart")
    order = np.argsort(poses["timestamp_ns"])
    stamps = poses["timestamp_ns"][order]
    near = np.searchsorted(stamps, times).clip(0, len(stamps) - 1)
    if np.abs(stamps[near] - times).max() > 5e7:
        raise DjepaError("a frame has no ego pose")
    ego = np.stack([poses["tx_m"][order], poses["ty_m"][order], _yaw(poses)[order]], 1)[
        near
    ].astype(float)
    step = np.searchsorted(times, boxes["timestamp_ns"])
    local = np.stack([boxes["tx_m"], boxes["ty_m"], _yaw(boxes)], 1).astype(float)
    world = to_world(ego[step], local)
    names = boxes["track_uuid"].astype(str)
    words = boxes["category"].astype(str)
    mine = words == "EGO_VEHICLE"
    ids, first, which = np.unique(names[~mine], return_index=True, return_inverse=True)
    check_extent(len(ids) + 1, len(times))
    pose = np.full((len(ids) + 1, len(times), 3), np.nan)
    pose[which, step[~mine]] = world[~mine]
    centre = np.array([EGO_CENTRE, 0.0, 0.0])
    pose[-1] = to_world(ego, centre)
    size = np.stack([boxes["length_m"], boxes["width_m"]], 1).astype(float)[~mine][first]
    kind = [KINDS.get(word.lower(), Kind.VEHICLE) for word in words[~mine][first]]
    speed = np.stack([speeds(track[:, :2]) for track in pose])
    return (
        (*ids.tolist(), EGO),
        np.concatenate([pose, speed[..., None]], 2),
        np.concatenate([size, [EGO_BOX]]),
        np.array([*kind, Kind.VEHICLE], np.int64),
    )


def _yaw(table: Table) -> Array:
    """Heading of quaternions whose axis is nearly upright."""
    w, x, y, z = (table[f"q{axis}"].astype(float) for axis in "wxyz")
    return np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
