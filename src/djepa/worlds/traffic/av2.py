"""Reader of Argoverse 2 sensor logs: tracked boxes and ego poses (feather), vector map (json).

A log is a folder with `annotations.feather` or `annotations_with_ego.feather` (boxes in the frame
of the ego vehicle; the first is read if both exist), `city_SE3_egovehicle.feather` and
`map/log_map_archive_*.json`. Needs the extra `driving`.

Categories: an official signaler, a dog and any other animal count as pedestrians, since hitting
one is a full collision and none of them drives; a trailer with traffic lights is static; every
other category that `reading.KINDS` does not name is a vehicle. The size of a track is that of its
first box in time.
"""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from djepa.errors import DjepaError, MissingExtraError
from djepa.worlds.traffic.lanes import lane_between
from djepa.worlds.traffic.plane import Array, to_world
from djepa.worlds.traffic.reading import KINDS, MOST_BYTES, check_extent, reading, speeds
from djepa.worlds.traffic.recording import Recording
from djepa.worlds.traffic.scene import Kind, Lane

EGO, EGO_BOX, EGO_CENTRE = "ego", (4.877, 1.852), 1.422  # m; the box's centre is ahead of its axle
BOXES = ("annotations.feather", "annotations_with_ego.feather")
POSES, MAP = "city_SE3_egovehicle.feather", "log_map_archive_*.json"
TURN, PLACE = ("qw", "qx", "qy", "qz"), ("tx_m", "ty_m")
WORDS = ("track_uuid", "category")
OF_BOXES = ("timestamp_ns", *WORDS, "length_m", "width_m", *PLACE, *TURN)
OF_POSES = ("timestamp_ns", *PLACE, *TURN)
DICTIONARY, RECORDS = 2, 3  # kinds of Arrow messages
MOST_ROWS, LONGEST_WORD = 1_000_000, 64
KNOWN = KINDS | {
    "official_signaler": Kind.PEDESTRIAN,
    "dog": Kind.PEDESTRIAN,
    "animal": Kind.PEDESTRIAN,
    "traffic_light_trailer": Kind.STATIC,
}
Table = dict[str, NDArray[Any]]


def is_log(folder: Path) -> bool:
    """Whether a folder holds tracked boxes of Argoverse 2."""
    return any((folder / name).is_file() for name in BOXES)


def files_of_log(folder: Path) -> tuple[Path, ...]:
    """The files that are read: map, boxes, poses of the recording vehicle."""
    maps = sorted((folder / "map").glob(MAP))
    if len(maps) != 1:
        raise DjepaError(f"it needs exactly one map/{MAP}, and has {len(maps)}")
    boxes = next((folder / name for name in BOXES if (folder / name).is_file()), folder / BOXES[0])
    return maps[0], boxes, folder / POSES


def read_av2(folder: Path) -> Recording:
    """One recording, with the recording vehicle as track "ego"; errors name the file."""
    with reading(folder):
        archive, boxes, poses = files_of_log(folder)
    with reading(archive):
        lanes, drivable = _map(json.loads(archive.read_bytes()))
    tables = _table(boxes, OF_BOXES), _table(poses, OF_POSES)
    with reading(folder):
        ids, state, size, kind = _tracks(*tables)
        return Recording(folder.name, lanes, drivable, state, size, kind, ids)


def _table(path: Path, columns: tuple[str, ...]) -> Table:
    """The named columns of a file; its unpacked size is checked before it is read."""
    try:
        import pyarrow as pa
    except ImportError:
        raise MissingExtraError("Reading Argoverse 2 logs", "driving") from None
    with reading(path):
        data = pa.py_buffer(path.read_bytes())
        if data[:8].to_pybytes() != b"ARROW1\0\0":
            raise DjepaError("it is no Feather file of version 2")
        try:
            # Counted and read as a stream: the index at the end could point to other messages.
            messages = pa.ipc.MessageReader.open_stream(data[8:])
            if sum(_unpacked(bytes(m.metadata), m.body) for m in messages) > MOST_BYTES:
                raise DjepaError(f"it unpacks to more than {MOST_BYTES >> 20} MiB")
            table = pa.ipc.open_stream(data[8:]).read_all()
            if table.num_rows > MOST_ROWS:
                raise DjepaError(f"it has more than {MOST_ROWS} rows")
            table.validate(full=True)
            return {name: _column(name, table[name]) for name in columns}
        except pa.ArrowException as error:
            raise DjepaError((str(error) or type(error).__name__).splitlines()[0]) from None


def _column(name: str, values: Any) -> NDArray[Any]:
    """Text of at most 64 bytes a row, or numbers."""
    from pyarrow import compute, types

    if values.null_count:
        raise DjepaError(f"{name} has gaps")
    if name in WORDS:
        words = [c.dictionary if types.is_dictionary(c.type) else c for c in values.chunks]
        if any((compute.max(compute.binary_length(w)).as_py() or 0) > LONGEST_WORD for w in words):
            raise DjepaError(f"{name} has text of more than {LONGEST_WORD} bytes")
        return values.to_numpy(zero_copy_only=False).astype(str)
    if not (types.is_integer(values.type) or types.is_floating(values.type)):
        raise DjepaError(f"{name} holds no numbers")
    return values.to_numpy(zero_copy_only=False)


def _unpacked(header: bytes, body: Any) -> int:
    """Bytes that an Arrow message takes once it is unpacked; its header is a FlatBuffer.

    A compressed buffer begins with the number of bytes it unpacks to, -1 if it is stored as it is.
    The header gives the positions of the buffers.
    """
    message = _Fields(header, 0)
    kind, more = message.number(1, "B"), message.at(4)
    if kind not in (DICTIONARY, RECORDS):
        return 0
    batch = message.inner(2)
    batch = batch.inner(1) if kind == DICTIONARY else batch
    packed = bool(batch.at(3)) or bool(more)  # old files name their compression in the metadata
    total = 0
    for start, length in batch.pairs(2):
        said = struct.unpack_from("<q", body, start)[0] if packed and length else 0
        total += max(said, length)
    return total


class _Fields:
    """A table of a FlatBuffer, found through the offset stored at `start`."""

    def __init__(self, data: bytes, start: int) -> None:
        self.data = data
        self.start = start + self._read("I", start)
        self.index = self.start - self._read("i", self.start)

    def _read(self, code: str, at: int) -> int:
        return int(struct.unpack_from(f"<{code}", self.data, at)[0])

    def at(self, field: int) -> int:
        """Position of a field; 0 if it is absent."""
        place = 4 + 2 * field
        if place >= self._read("H", self.index):
            return 0
        offset = self._read("H", self.index + place)
        return self.start + offset if offset else 0

    def number(self, field: int, code: str) -> int:
        """The number in a field; 0 if it is absent."""
        at = self.at(field)
        return self._read(code, at) if at else 0

    def inner(self, field: int) -> "_Fields":
        """The table in a field."""
        return _Fields(self.data, self.at(field))

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """The vector of pairs of int64 in a field."""
        if at := self.at(field):
            at += self._read("I", at)
            rows = self.data[at + 4 : at + 4 + 16 * self._read("I", at)]
            yield from struct.iter_unpack("<qq", rows)


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
    """The lane with only the neighbours of its own direction; the map lists both directions."""
    way = lane.centre[-1] - lane.centre[0]
    beside = tuple(i for i in lane.beside if (lanes[i].centre[-1] - lanes[i].centre[0]) @ way > 0)
    return Lane(lane.polygon, lane.centre, lane.next, beside, lane.intersection, lane.limit)


def _line(points: list[dict[str, float]]) -> Array:
    return np.array([[p["x"], p["y"]] for p in points], float).reshape(-1, 2)


def _tracks(boxes: Table, poses: Table) -> tuple[tuple[str, ...], Array, Array, NDArray[np.int64]]:
    order = np.argsort(boxes["timestamp_ns"], kind="stable")
    boxes = {name: column[order] for name, column in boxes.items()}
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
    names = boxes["track_uuid"]
    words = boxes["category"]
    mine = words == "EGO_VEHICLE"
    ids, first, which = np.unique(names[~mine], return_index=True, return_inverse=True)
    check_extent(len(ids) + 1, len(times))
    pose = np.full((len(ids) + 1, len(times), 3), np.nan)
    pose[which, step[~mine]] = world[~mine]
    centre = np.array([EGO_CENTRE, 0.0, 0.0])
    pose[-1] = to_world(ego, centre)
    size = np.stack([boxes["length_m"], boxes["width_m"]], 1).astype(float)[~mine][first]
    kind = [KNOWN.get(word.lower(), Kind.VEHICLE) for word in words[~mine][first]]
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
