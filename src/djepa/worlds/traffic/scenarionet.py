"""Reader of ScenarioNet pickles through an unpickler that builds numpy arrays and nothing else."""

import io
import pickle
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from djepa.errors import DjepaError
from djepa.worlds.traffic.lanes import evenly, lane_between, mark_crossings, ribbon, widened
from djepa.worlds.traffic.plane import Array
from djepa.worlds.traffic.reading import KINDS, check_extent, reading
from djepa.worlds.traffic.recording import Recording
from djepa.worlds.traffic.scene import Kind, Lane

WIDTH = 3.5  # m, of a lane that is given by its centre line alone
Features = dict[str, dict[str, Any]]


def _array(kind: object, shape: object, dtype: object) -> NDArray[Any]:
    """An empty array to be filled by its state; of no other class."""
    if kind is not np.ndarray or shape != (0,):
        raise pickle.UnpicklingError("an array of an unexpected kind")
    return np.ndarray((0,), "b")


def _scalar(dtype: np.dtype[Any], data: bytes) -> Any:
    if dtype.hasobject:
        raise pickle.UnpicklingError("a scalar that holds an object")
    return np.frombuffer(data, dtype)[0]


def _counter(*_: object) -> defaultdict[Any, int]:
    return defaultdict(int)


ADMITTED = {
    ("multiarray", "_reconstruct"): _array,
    ("multiarray", "scalar"): _scalar,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("collections", "defaultdict"): _counter,
    ("builtins", "int"): int,
}


class ArraysOnly(pickle.Unpickler):
    """Admits what a numpy array needs; every other name is refused."""

    def find_class(self, module: str, name: str) -> Any:
        """Only by exact name; nothing is imported."""
        known = {"numpy.core.multiarray": "multiarray", "numpy._core.multiarray": "multiarray"}
        found = ADMITTED.get((known.get(module, module), name))
        if found is None:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return found


def read_scenarionet(path: Path) -> Recording:
    """One recording; a file that is not one, or that asks for more than arrays, is refused."""
    with reading(path):
        try:
            scenario = ArraysOnly(io.BytesIO(path.read_bytes())).load()
        except pickle.UnpicklingError as error:
            raise DjepaError(f"{error}; only numpy arrays are admitted") from None
        lanes, ribbons = _lanes(scenario["map_features"])
        lanes = mark_crossings(lanes)
        ids, state, size, kind = _tracks(scenario["tracks"])
        return Recording(str(scenario["id"]), lanes, widened(ribbons), state, size, kind, ids)


def _lanes(features: Features) -> tuple[Sequence[Lane], list[Lane]]:
    """Lanes with their own polygons, and as ribbons of one width around their centre lines."""
    roads = {str(k): f for k, f in features.items() if str(f["type"]).startswith("LANE")}
    roads = {k: f for k, f in roads.items() if len(np.asarray(f["polyline"])) > 1}
    row = {k: i for i, k in enumerate(roads)}

    def rows(names: Any) -> tuple[int, ...]:
        ids = (str(n.get("feature_id")) if isinstance(n, dict) else str(n) for n in names or ())
        return tuple(row[i] for i in ids if i in row)

    lanes, ribbons = [], []
    for road in roads.values():
        centre = np.asarray(road["polyline"], float)[:, :2]
        after = rows(road.get("exit_lanes"))
        beside = (*rows(road.get("left_neighbor")), *rows(road.get("right_neighbor")))
        made = lane_between(*ribbon(evenly(centre, max(2, len(centre))), WIDTH), after, beside)
        ribbons.append(made)
        area = np.asarray(road.get("polygon", ()), float)
        polygon = area[:, :2] if area.ndim == 2 and len(area) > 2 else made.polygon
        limit = float(road.get("speed_limit_kmh") or np.nan) / 3.6
        lanes.append(Lane(polygon, centre, after, beside, False, limit))
    return lanes, ribbons


def _tracks(
    tracks: Features,
) -> tuple[tuple[str, ...], Array, Array, NDArray[np.int64]]:
    steps = max((len(track["state"]["position"]) for track in tracks.values()), default=1)
    check_extent(len(tracks), steps)
    ids, states, sizes, kinds = [], [], [], []
    for name, track in tracks.items():
        part = {k: np.asarray(v, float) for k, v in track["state"].items()}
        seen = part["valid"].reshape(-1) > 0
        if not seen.any():
            continue
        state = np.full((steps, 4), np.nan)
        rows = np.flatnonzero(seen)
        state[rows, :2] = part["position"][rows, :2]
        state[rows, 2] = part["heading"].reshape(-1)[rows]
        state[rows, 3] = np.hypot(*part["velocity"][rows, :2].T)
        ids.append(str(name))
        states.append(state)
        sizes.append([part[side].reshape(-1)[rows[0]] for side in ("length", "width")])
        kinds.append(KINDS.get(str(track["type"]).lower(), Kind.VEHICLE))
    shape = (len(ids), steps, 4)
    return (
        tuple(ids),
        np.array(states, float).reshape(shape),
        np.array(sizes, float).reshape(-1, 2),
        np.array(kinds, np.int64),
    )
