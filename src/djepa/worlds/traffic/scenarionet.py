"""Reader of ScenarioNet pickles at 10 Hz.

Steps must be 0.1 s. The metadata say so as `sample_rate` (in s, or in Hz if above 1) or, without
it, as `ts` (s, one per step).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from djepa.errors import DjepaError
from djepa.worlds.traffic.lanes import lane_between, mark_crossings, ribbon, widened
from djepa.worlds.traffic.pickles import Packed, Steps
from djepa.worlds.traffic.plane import Array, evenly
from djepa.worlds.traffic.reading import KINDS, MOST_STATES, check_extent, reading
from djepa.worlds.traffic.recording import Recording
from djepa.worlds.traffic.scene import DT, Kind, Lane

STATE = ("position", "heading", "velocity", "valid", "length", "width")
WIDTH = 3.5  # m, of a lane that is given by its centre line alone
NEAR = 0.002  # s by which the given step may differ from 0.1 s
Features = dict[str, dict[str, Any]]


def read_scenarionet(path: Path) -> Recording:
    """One recording; a file with more than plain values and arrays is refused."""
    with reading(path):
        scenario = Steps().follow(path.read_bytes())
        _check_step(scenario.get("metadata", {}))
        lanes, ribbons = _lanes(scenario["map_features"])
        lanes = mark_crossings(lanes)
        ids, state, size, kind = _tracks(scenario["tracks"])
        return Recording(_text(scenario["id"]), lanes, widened(ribbons), state, size, kind, ids)


def _check_step(about: dict[str, Any]) -> None:
    """Refuse steps other than 0.1 s, and files that do not give the step."""
    if about.get("sample_rate") is not None:
        rate = _numbers(about["sample_rate"]).item()
        step = 1 / rate if rate > 1 else rate
    else:
        times = _numbers(about.get("ts", ())).reshape(-1)
        if len(times) < 2:
            raise DjepaError("its metadata have neither sample_rate nor ts, the time of its steps")
        step = float(np.median(np.diff(times)))
    if not abs(step - DT) <= NEAR:
        raise DjepaError(f"its steps are {step:.6g} s, not {DT} s")


def _text(value: object) -> str:
    """Text, or a number as text; others are refused: printing nested lists can take forever."""
    if not isinstance(value, str | int | float):
        raise DjepaError(f"{type(value).__name__} stands where a name should")
    return str(value)


def _numbers(value: object, deep: int = 2) -> Array:
    """Numbers of an array, or of lists at most `deep` deep."""
    if isinstance(value, Packed) and value.values.dtype.kind in "biuf":
        return value.values.astype(float)
    if isinstance(value, int | float):
        return np.array(value, float)
    if not isinstance(value, list | tuple) or not deep:
        raise DjepaError(f"{type(value).__name__} stands where numbers should")
    rows, many = [], 0
    for part in value:
        rows.append(_numbers(part, deep - 1))
        many += 1 + rows[-1].size
        if many > MOST_STATES:
            raise DjepaError("a list holds too many numbers")
    return np.array(rows, float)


def _points(value: object) -> Array:
    """(P, 2) of points with two or three coordinates."""
    points = _numbers(value)
    if points.ndim != 2 or points.shape[1] not in (2, 3):
        raise DjepaError(f"points of a lane have the shape {points.shape}, not (P, 2) or (P, 3)")
    return points[:, :2]


def _limit(road: dict[str, Any]) -> float:
    """The speed limit in m/s; NaN if it is not known."""
    limit = road.get("speed_limit_kmh")
    return np.nan if limit is None else _numbers(limit).item() / 3.6 or np.nan


def _lanes(features: Features) -> tuple[Sequence[Lane], list[Lane]]:
    """Lanes with their own polygons, and as ribbons of one width around their centre lines."""
    roads = {_text(k): f for k, f in features.items() if _text(f["type"]).startswith("LANE")}
    roads = {k: f for k, f in roads.items() if len(f["polyline"]) > 1}
    given = [() if (f := road.get("polygon")) is None else f for road in roads.values()]
    areas = [area if len(area) > 2 else () for area in given]
    if sum(len(f["polyline"]) for f in roads.values()) + sum(map(len, areas)) > MOST_STATES:
        raise DjepaError("its lanes have too many points")
    row = {k: i for i, k in enumerate(roads)}

    def rows(names: Any) -> tuple[int, ...]:
        ids = (_text(n["feature_id"] if isinstance(n, dict) else n) for n in names or ())
        return tuple(row[i] for i in ids if i in row)

    lanes, ribbons = [], []
    for road, area in zip(roads.values(), areas, strict=True):
        centre = _points(road["polyline"])
        after = rows(road.get("exit_lanes"))
        beside = (*rows(road.get("left_neighbor")), *rows(road.get("right_neighbor")))
        made = lane_between(*ribbon(evenly(centre, max(2, len(centre))), WIDTH), after, beside)
        ribbons.append(made)
        polygon = _points(area) if len(area) else made.polygon
        lanes.append(Lane(polygon, centre, after, beside, False, _limit(road)))
    return lanes, ribbons


def _tracks(
    tracks: Features,
) -> tuple[tuple[str, ...], Array, Array, NDArray[np.int64]]:
    steps = max((len(track["state"]["position"]) for track in tracks.values()), default=1)
    check_extent(len(tracks), steps)
    ids, states, sizes, kinds = [], [], [], []
    for name, track in tracks.items():
        part = {of: _numbers(track["state"][of]) for of in STATE}
        seen = part["valid"].reshape(-1) > 0
        if not seen.any():
            continue
        state = np.full((steps, 4), np.nan)
        rows = np.flatnonzero(seen)
        state[rows, :2] = part["position"][rows, :2]
        state[rows, 2] = part["heading"].reshape(-1)[rows]
        state[rows, 3] = np.hypot(*part["velocity"][rows, :2].T)
        ids.append(_text(name))
        states.append(state)
        sizes.append([part[side].reshape(-1)[rows[0]] for side in ("length", "width")])
        kinds.append(KINDS.get(_text(track["type"]).lower(), Kind.VEHICLE))
    shape = (len(ids), steps, 4)
    return (
        tuple(ids),
        np.array(states, float).reshape(shape),
        np.array(sizes, float).reshape(-1, 2),
        np.array(kinds, np.int64),
    )
