"""One tiny recording, written in each of the formats that can be read."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from djepa.worlds.traffic.scene import DT

STEPS = 60
LEFT = np.array([[[-50.0, 7.0], [100.0, 7.0]], [[-50.0, 3.5], [100.0, 3.5]]])  # of lanes 0 and 1
RIGHT = LEFT - [0.0, 3.5]
SIZE = np.array([[4.5, 1.8], [4.0, 2.0], [0.6, 0.6]])
WORDS = ("car", "car", "pedestrian")


def states() -> np.ndarray:
    """(3, 60, 4): two cars that follow each other, one pedestrian who stands."""
    t = DT * np.arange(STEPS)
    rows = np.zeros((3, STEPS, 4))
    rows[0] = np.stack([5 * t, 0 * t + 1.75, 0 * t, 0 * t + 5], 1)
    rows[1] = np.stack([20 + 5 * t, 0 * t + 1.75, 0 * t, 0 * t + 5], 1)
    rows[2, :, :3] = (30.0, -2.0, 1.5)
    return rows


def npz_arrays() -> dict[str, Any]:
    none = np.zeros(0, np.int32)
    return {
        "lane_id": np.array([7, 8], np.int32),
        "lane_left": LEFT.reshape(-1, 2).astype(np.float32),
        "lane_right": RIGHT.reshape(-1, 2).astype(np.float32),
        "lane_offset": np.array([0, 2, 4], np.int32),
        "lane_next": none,
        "lane_next_offset": np.zeros(3, np.int32),
        "lane_prev": none,
        "lane_prev_offset": np.zeros(3, np.int32),
        "lane_beside_left": np.array([-1, 0], np.int32),
        "lane_beside_right": np.array([1, -1], np.int32),
        "lane_beside_left_same": np.array([False, True]),
        "lane_beside_right_same": np.array([True, False]),
        "lane_speed_limit": np.full(2, 12.0, np.float32),
        "lane_type": np.array(["urban", "urban"]),
        "lane_intersection": np.array([False, False]),
        "track_id": np.array([1, 2, 3], np.int32),
        "track_class": np.array(WORDS),
        "track_length": SIZE[:, 0].astype(np.float32),
        "track_width": SIZE[:, 1].astype(np.float32),
        "track_first": np.zeros(3, np.int32),
        "track_offset": STEPS * np.arange(4, dtype=np.int32),
        "track_state": states().reshape(-1, 4).astype(np.float32),
        "track_flag": np.zeros(3, np.uint8),
        "dt": np.float64(0.1),
        "take": np.array("tiny"),
    }


def write_npz(path: Path, **changes: Any) -> Path:
    np.savez(path, **{k: v for k, v in (npz_arrays() | changes).items() if v is not None})
    return path


def write_xml(path: Path, name: str = "tiny", extra: str = "") -> Path:
    def bound(name: str, points: np.ndarray) -> str:
        rows = "".join(f"<point><x>{x}</x><y>{y}</y></point>" for x, y in points)
        return f"<{name}>{rows}</{name}>"

    def state(tag: str, step: int, row: np.ndarray) -> str:
        x, y, h, v = row
        return (
            f"<{tag}><position><point><x>{x}</x><y>{y}</y></point></position>"
            f"<orientation><exact>{h}</exact></orientation><time><exact>{step}</exact></time>"
            f"<velocity><exact>{v}</exact></velocity></{tag}>"
        )

    lanes = "".join(
        f'<lanelet id="{7 + i}">{bound("leftBound", LEFT[i])}{bound("rightBound", RIGHT[i])}'
        f'<adjacent{side} ref="{8 - i}" drivingDir="same"/><speedLimit>12</speedLimit></lanelet>'
        for i, side in enumerate(("Right", "Left"))
    )
    tracks = "".join(
        f'<obstacle id="{i + 1}"><role>dynamic</role><type>{WORDS[i]}</type><shape><rectangle>'
        f"<length>{SIZE[i, 0]}</length><width>{SIZE[i, 1]}</width></rectangle></shape>"
        f"{state('initialState', 0, rows[0])}<trajectory>"
        f"{''.join(state('state', s, row) for s, row in enumerate(rows) if s)}</trajectory>"
        "</obstacle>"
        for i, rows in enumerate(states())
    )
    path.write_text(
        f'<commonRoad timeStepSize="0.1" benchmarkID="{name}">{lanes}{tracks}{extra}</commonRoad>'
    )
    return path


def scenario() -> dict[str, Any]:
    features = {
        f"{7 + i}": {
            "type": "LANE_SURFACE_STREET",
            "polyline": (LEFT[i] + RIGHT[i]) / 2,
            "polygon": np.concatenate([LEFT[i], RIGHT[i][::-1]]),
            "exit_lanes": [],
            "left_neighbor": ["7"] if i else [],
            "right_neighbor": [] if i else ["8"],
            "speed_limit_kmh": 43.2,
        }
        for i in range(2)
    }
    tracks = {
        str(i + 1): {
            "type": WORDS[i].upper() if i == 2 else "VEHICLE",
            "state": {
                "position": np.pad(rows[:, :2], ((0, 0), (0, 1))),
                "heading": rows[:, 2],
                "velocity": rows[:, 3:] * [1.0, 0.0],
                "valid": np.ones(STEPS, bool),
                "length": np.full(STEPS, SIZE[i, 0]),
                "width": np.full((STEPS, 1), SIZE[i, 1]),
            },
        }
        for i, rows in enumerate(states())
    }
    about = {"ts": DT * np.arange(STEPS)}
    return {"id": "tiny", "tracks": tracks, "map_features": features, "metadata": about}


def write_pickle(path: Path, **changes: Any) -> Path:
    path.write_bytes(pickle.dumps(scenario() | changes))
    return path


def write_av2(folder: Path, boxes: str = "annotations.feather", **changes: Any) -> Path:
    """The ego vehicle stands at (-20, 0) and looks along x. Changes are columns of the boxes."""
    import pyarrow as pa
    from pyarrow import feather

    (folder / "map").mkdir(parents=True)
    stamps = 10**8 * np.arange(STEPS) + 5
    rows = states()

    def pose(x: Any, y: Any, h: Any) -> dict[str, Any]:
        half = np.asarray(h) / 2
        zero = np.zeros_like(half)
        quaternion = dict(
            zip(("qw", "qx", "qy", "qz"), (np.cos(half), zero, zero, np.sin(half)), strict=True)
        )
        return quaternion | {"tx_m": np.asarray(x), "ty_m": np.asarray(y), "tz_m": zero}

    def repeat(values: Any) -> np.ndarray:
        return np.repeat(np.array(values), STEPS)

    columns = {
        "timestamp_ns": np.tile(stamps, 3),
        "track_uuid": repeat(["1", "2", "3"]),
        "category": repeat(["REGULAR_VEHICLE", "REGULAR_VEHICLE", "PEDESTRIAN"]),
        "length_m": repeat(SIZE[:, 0]),
        "width_m": repeat(SIZE[:, 1]),
        **pose(rows[..., 0].ravel() + 20, rows[..., 1].ravel(), rows[..., 2].ravel()),
    }
    feather.write_feather(pa.table(columns | changes), folder / boxes)
    ego = {"timestamp_ns": stamps, **pose(np.full(STEPS, -20.0), np.zeros(STEPS), np.zeros(STEPS))}
    feather.write_feather(pa.table(ego), folder / "city_SE3_egovehicle.feather")

    def line(points: np.ndarray) -> list[dict[str, float]]:
        return [{"x": x, "y": y, "z": 0.0} for x, y in points.tolist()]

    segments = {
        str(7 + i): {
            "id": 7 + i,
            "is_intersection": False,
            "left_lane_boundary": line(LEFT[i]),
            "right_lane_boundary": line(RIGHT[i]),
            "successors": [],
            "left_neighbor_id": 7 if i else None,
            "right_neighbor_id": None if i else 8,
        }
        for i in range(2)
    }
    area = np.array([[-50.0, 0.0], [100.0, 0.0], [100.0, 7.0], [-50.0, 7.0]])
    archive = {"lane_segments": segments, "drivable_areas": {"1": {"area_boundary": line(area)}}}
    (folder / "map/log_map_archive_tiny.json").write_text(json.dumps(archive))
    return folder


def older(pickled: bytes) -> bytes:
    """The names of numpy 1; a length stands before them from protocol 4 on."""
    for part in (b"multiarray", b"numeric"):
        new, old = b"numpy._core." + part, b"numpy.core." + part
        with_length = pickled.replace(bytes([len(new)]) + new, bytes([len(old)]) + old)
        pickled = with_length.replace(new, old)
    return pickled


def forged(dtype: bytes, state: bytes, shape: bytes = b"I1\nt", size: int = 8) -> bytes:
    """A pickle of one array whose type has a state of its own."""
    kind = b"cnumpy\ndtype\n(X\2\0\0\0" + dtype + b"I00\nI01\ntR" + state
    begun = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntC\1btR"
    return (
        b"\x80\3"
        + begun
        + b"(I1\n("
        + shape
        + kind
        + b"I00\nC"
        + bytes([size])
        + bytes(size)
        + b"tb."
    )


OBJECT = b"cnumpy\ndtype\n(X\2\0\0\0O8I00\nI01\ntR"
FIELDS = b"(X\4\0\0\0typet}X\4\0\0\0type(" + OBJECT + b"I0\nts"
NUMBERS = b"(I3\nX\1\0\0\0<NNNI-1\nI-1\nI0\ntb"
HOSTILE = {
    "type with a field of objects": forged(b"V8", b"(I3\nX\1\0\0\0|N" + FIELDS + b"I8\nI1\nI0\ntb"),
    "fields in a plain type": forged(b"f8", b"(I3\nX\1\0\0\0<N" + FIELDS + b"I8\nI1\nI0\ntb"),
    "subarray": forged(
        b"f8", b"(I3\nX\1\0\0\0<(cnumpy\ndtype\n(X\2\0\0\0f8tRI9\ntNNI-1\nI-1\nI0\ntb"
    ),
    "flags of objects": forged(b"f8", b"(I3\nX\1\0\0\0<NNNI-1\nI-1\nI63\ntb"),
    "size of its own": forged(b"f8", b"(I3\nX\1\0\0\0<NNNI800\nI-1\nI0\ntb"),
    "objects": forged(b"O8", b""),
    "negative shape": forged(b"f8", NUMBERS, b"I-1\nI-1\nt"),
    "huge shape": forged(b"f8", NUMBERS, b"L4611686018427387905L\nI4\nt"),
    "too few bytes": forged(b"f8", NUMBERS, b"I2\nt"),
    "too many bytes": forged(b"f8", NUMBERS, size=16),
    "array called": b"\x80\3cnumpy\nndarray\n(I9\ntR.",
    "array made new": b"\x80\3cnumpy\nndarray\n)\x81.",
    "type changed": b"\x80\3cnumpy\ndtype\n}X\1\0\0\0aI1\nsb.",
    "deep key": b"\x80\2}N" + 10**6 * b"\x85" + b"Ns.",
    "huge memo": b"\x80\2}r\xff\xff\xff\x7f.",
    "huge bytes": b"\x80\5\x96\xff\xff\xff\xff\xff\0\0\0.",
    "nothing below": b"\x80\2\x87.",
    "no end": b"\x80\2}",
}


def obstacle(shape: str, word: str, heading: float = 0.0) -> str:
    return (
        f'<staticObstacle id="9"><type>{word}</type><shape>{shape}</shape><initialState><position>'
        f"<point><x>10</x><y>20</y></point></position><orientation><exact>{heading}</exact>"
        "</orientation><time><exact>0</exact></time></initialState></staticObstacle>"
    )


def polygon(*points: tuple[float, float]) -> str:
    return (
        f"<polygon>{''.join(f'<point><x>{x}</x><y>{y}</y></point>' for x, y in points)}</polygon>"
    )


RECTANGLE = (
    "<rectangle><length>4</length><width>2</width><orientation>0.5</orientation>"
    "<center><x>1</x><y>0</y></center></rectangle>"
)
