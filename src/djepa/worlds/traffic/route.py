"""The route of a recorded car: its lanes, and the centre line along which progress is measured.

Legend: S steps, P points.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from djepa.errors import DjepaError
from djepa.worlds.traffic.plane import (
    Areas,
    Array,
    along_line,
    lengths,
    project,
    spaced,
    wrap,
)
from djepa.worlds.traffic.scene import EVERY, Lane

REACH = 200.0  # m of the path ahead of the car
BACK = 20.0  # m of it behind
TURNED = np.deg2rad(60)  # lanes at a larger angle are not the car's


def lanes_of(lanes: Sequence[Lane], poses: Array) -> list[int | None]:
    """(N, 3+) x, y, heading -> row of the lane of each: of those under it, the best aligned."""
    under = Areas.of([lane.polygon for lane in lanes]).under(poses[:, :2])
    return [
        _aligned(lanes, pose, np.flatnonzero(row)) for pose, row in zip(poses, under, strict=True)
    ]


def _aligned(lanes: Sequence[Lane], pose: Array, rows: NDArray[np.intp]) -> int | None:
    found: list[tuple[float, int]] = []
    for i in rows.tolist():
        s, offset = project(pose[:2], lanes[i].centre)
        turn = abs(float(wrap(along_line(lanes[i].centre, s)[2] - pose[2])))
        if turn < TURNED:
            found.append((turn + 0.2 * abs(float(offset)), i))
    return min(found)[1] if found else None


def find_route(lanes: Sequence[Lane], track: Array) -> tuple[list[int], Array]:
    """(S, 4) the car's motion from now on -> rows of the route's lanes, (P, 2) centre line.

    The path starts in the car's lane; at each fork it follows the lane nearest to the motion.
    """
    track = track[np.isfinite(track).all(1)]
    visited = lanes_of(lanes, track[::EVERY])
    if visited[0] is None:
        raise DjepaError("The ego car is on no lane.")
    chain, s0 = [visited[0]], float(project(track[0, :2], lanes[visited[0]].centre)[0])
    ahead = lengths(lanes[visited[0]].centre)[-1] - s0
    wanted = {i for i in visited if i is not None}
    while ahead < REACH:
        following = [i for i in lanes[chain[-1]].next if i not in chain]
        if not following:
            break
        chain.append(min(following, key=lambda i: (i not in wanted, _away(lanes[i], track), i)))
        ahead += lengths(lanes[chain[-1]].centre)[-1]
    on_route = list(dict.fromkeys([*chain, *(i for i in visited if i is not None)]))
    on_route += [j for i in on_route for j in lanes[i].beside]
    return list(dict.fromkeys(on_route)), _joined([lanes[i].centre for i in chain])


def _away(lane: Lane, track: Array) -> float:
    """Mean distance of the last second of a track to a lane's centre line."""
    return float(np.abs(project(track[-2 * EVERY :, :2], lane.centre)[1]).mean())


def _joined(lines: list[Array]) -> Array:
    """One line through all, extended straight by 200 m at its end and 20 m at its start."""
    points = np.concatenate(lines)
    apart = np.hypot(*np.diff(points, axis=0).T) > 0.05
    line = spaced(points[np.concatenate([[True], apart])], 2.0)
    far = lengths(line)[-1]
    ends = along_line(line, np.array([-BACK, far + REACH]))[:, :2]
    return np.concatenate([ends[:1], line, ends[1:]])
