"""Reader of recorded scenes as plain arrays: one .npz with lanes and tracks at 10 Hz.

`lane_left`, `lane_right` (P, 2) and `lane_offset` (L + 1) are the lanes' bounds as ragged arrays;
`lane_next` with its offsets, `lane_beside_left` and `lane_beside_right` are rows of lanes;
`track_state` (S, 4) with `track_offset` and `track_first` are the tracks.
"""

import zipfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from djepa.errors import DjepaError
from djepa.worlds.traffic.lanes import lane_between, widened
from djepa.worlds.traffic.reading import KINDS, MOST_BYTES, check_extent, reading
from djepa.worlds.traffic.recording import Recording
from djepa.worlds.traffic.scene import DT, Kind, Lane

Ragged = list[NDArray[Any]]


def read_npz(path: Path) -> Recording:
    """One recording; errors name the file."""
    with reading(path):
        _check_size(path)
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        if abs(float(arrays["dt"]) - DT) > 1e-6:
            raise DjepaError(f"its steps are {float(arrays['dt'])} s, not {DT} s")
        return _recording(arrays, path.stem)


def _check_size(path: Path) -> None:
    """Refuse a file that would unpack to a huge one."""
    with zipfile.ZipFile(path) as archive:
        if sum(item.file_size for item in archive.infolist()) > MOST_BYTES:
            raise DjepaError(f"it unpacks to more than {MOST_BYTES >> 20} MiB")


def _recording(arrays: dict[str, NDArray[Any]], name: str) -> Recording:
    lanes = _lanes(arrays)
    first = arrays["track_first"].astype(int)
    rows = ragged(arrays["track_state"], arrays["track_offset"], len(first))
    if any(f < 0 for f in first):
        raise DjepaError("a track begins before step 0")
    steps = max((f + len(r) for f, r in zip(first, rows, strict=True)), default=1)
    check_extent(len(rows), int(steps))
    state = np.full((len(rows), steps, 4), np.nan)
    for track, f, row in zip(state, first, rows, strict=True):
        track[f : f + len(row)] = row
    kind = [KINDS.get(str(word).lower(), Kind.VEHICLE) for word in arrays["track_class"]]
    gone = arrays.get("removed_state", np.zeros((0, 4)))
    return Recording(
        log=str(arrays["take"]) if "take" in arrays else name,
        lanes=lanes,
        drivable=widened(lanes),
        state=state,
        size=np.stack([arrays["track_length"], arrays["track_width"]], 1).astype(float),
        kind=np.array(kind, np.int64),
        ids=tuple(str(i) for i in arrays["track_id"]),
        clean=arrays["track_flag"] == 0,
        gone=gone.reshape(-1, 4).astype(float),
    )


def _lanes(arrays: dict[str, NDArray[Any]]) -> tuple[Lane, ...]:
    count = len(arrays["lane_id"])
    left = ragged(arrays["lane_left"], arrays["lane_offset"], count)
    right = ragged(arrays["lane_right"], arrays["lane_offset"], count)
    following = ragged(arrays["lane_next"], arrays["lane_next_offset"], count)
    lanes = []
    for i in range(count):
        beside = tuple(
            int(arrays[f"lane_beside_{side}"][i])
            for side in ("left", "right")
            if arrays[f"lane_beside_{side}_same"][i]
        )
        lanes.append(
            lane_between(
                left[i].astype(float),
                right[i].astype(float),
                tuple(following[i].tolist()),
                beside,
                bool(arrays["lane_intersection"][i]),
                float(arrays["lane_speed_limit"][i]),
            )
        )
    return tuple(lanes)


def ragged(values: NDArray[Any], offset: NDArray[Any], count: int) -> Ragged:
    """A ragged array, whose row i is values[offset[i]:offset[i + 1]]."""
    ends = offset.astype(int)
    whole = len(ends) == count + 1 and ends[0] == 0 and ends[-1] == len(values)
    if not whole or (np.diff(ends) < 0).any():
        raise DjepaError("offsets of a ragged array do not fit its values")
    return [values[a:b] for a, b in pairwise(ends)]
