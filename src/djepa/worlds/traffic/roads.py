"""Roads drawn at random: straight, curved, merge, junction; with parked cars and crossings.

A layout holds lanes for the map and lines for its drivers: a line is one path through the layout,
along a lane and the lanes that follow.

Legend: L lanes, P points.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from djepa.worlds.traffic.lanes import lane_between, ribbon, widened
from djepa.worlds.traffic.plane import Array, along_line, lengths, spaced, to_world
from djepa.worlds.traffic.scene import Lane

HALF = 170.0  # m, of a road
ARM = 120.0  # m, of a junction's arm
CURB = 0.3  # m of road beside a lane


@dataclass(frozen=True)
class Line:
    """A path for drivers; distances along neighbouring lines are nearly equal."""

    points: Array  # (P, 2), about 1 m apart
    entry: int  # lines with the same entry begin on one lane
    left: int | None = None  # line of the lane to the left, of the same direction
    right: int | None = None
    stop: float = np.inf  # m along it: where a junction begins
    clear: float = np.inf  # m along it: where the junction ends
    arm: int = 0  # of a junction
    connector: int = -1  # row of its lane through the junction
    merge: float = np.inf  # m along it: where it joins another line


@dataclass(frozen=True)
class Layout:
    """A road without traffic."""

    family: str
    lanes: tuple[Lane, ...]
    drivable: tuple[Array, ...]
    lines: tuple[Line, ...]
    limit: float  # m/s
    signals: bool = False
    parked: Array = field(default_factory=lambda: np.zeros((0, 3)))  # (n, 3) poses of parked cars
    cones: Array = field(default_factory=lambda: np.zeros((0, 3)))
    crossings: tuple[tuple[Array, Array], ...] = ()  # end points of pedestrian crossings


def straight(rng: np.random.Generator) -> Layout:
    """One to three lanes each way."""
    return _road("straight", np.array([[-HALF, 0.0], [HALF, 0.0]]), rng)


def curved(rng: np.random.Generator) -> Layout:
    """A bend between two straight pieces, or two bends one after the other."""
    return _road("curved", _bent(rng), rng)


def parked(rng: np.random.Generator) -> Layout:
    """A narrow street with parked cars on both sides, cones, and sometimes a bend."""
    axis = _bent(rng) if rng.random() < 0.4 else np.array([[-HALF, 0.0], [HALF, 0.0]])
    return _road("parked", axis, rng, kerb=True)


def crossing(rng: np.random.Generator) -> Layout:
    """A street with one or two pedestrian crossings; half of them with parked cars."""
    axis = _bent(rng) if rng.random() < 0.3 else np.array([[-HALF, 0.0], [HALF, 0.0]])
    return _road(
        "crossing", axis, rng, kerb=bool(rng.random() < 0.5), crossings=int(rng.integers(1, 3))
    )


def merge(rng: np.random.Generator) -> Layout:
    """One-way lanes that a ramp joins from the right."""
    count, width = int(rng.integers(2, 4)), rng.uniform(3.4, 3.8)
    join, limit = rng.uniform(-30, 40), rng.uniform(15, 24)
    x = np.arange(-HALF, HALF + 1, 2.0)
    rows = [np.stack([x, np.full_like(x, (k + 0.5) * width)], 1) for k in range(count)]
    u = np.clip((join - x) / rng.uniform(70, 110), 0, 1)  # 0 at the join
    aside = rng.uniform(12, 20) * (3 * u**2 - 2 * u**3)
    ramp = np.stack([x, width / 2 - aside], 1)[(x <= join)]
    before, after = rows[0][x <= join], rows[0][x >= join - 2]
    pieces = [before, after, *rows[1:], ramp]
    following = [(1,), (), *[()] * (count - 1), (1,)]
    beside = [(2,), (2,), *[(k - 1, k + 1) for k in range(2, count + 1)], ()]
    beside[2] = (0, 1, *((3,) if count > 2 else ()))
    beside[count] = tuple(k for k in beside[count] if k <= count)
    shared = [False, False, *[False] * (count - 1), False]
    lanes = _lanes(pieces, width, following, beside, shared, limit)
    tip = lengths(ramp)[-1]
    lines = [
        Line(spaced(row, 1.0), k, k + 1 if k + 1 < count else None, k - 1 if k else None)
        for k, row in enumerate(rows)
    ]
    lines[0] = Line(lines[0].points, 0, 1, merge=lengths(before)[-1])
    joined = np.concatenate([ramp, after[1:]])
    lines.append(Line(spaced(joined, 1.0), count, merge=float(tip)))
    return Layout("merge", lanes, widened(lanes, 1.0), tuple(lines), limit)


def junction(rng: np.random.Generator, signals: bool = False) -> Layout:
    """Four arms; every arm continues straight, left and right."""
    count, width = int(rng.integers(1, 3)), rng.uniform(3.3, 3.7)
    reach = count * width + rng.uniform(5, 9)  # of the stop lines from the centre
    turn = np.arange(4) * np.pi / 2 + rng.uniform(-0.2, 0.2, 4)
    limit = rng.uniform(9, 15)
    pieces: list[Array] = []
    beside: list[tuple[int, ...]] = []
    for angle in turn:  # lanes 0 .. 2n - 1 of an arm: n towards the centre, n away from it
        for k in range(count):
            aside = (k + 0.5) * width
            # Seen from the centre, traffic towards it keeps to the left of the arm's axis.
            pieces.append(_ray(angle, aside, reach, ARM)[::-1])
            beside.append(_others(len(pieces) - 1, k, count))
        for k in range(count):
            pieces.append(_ray(angle, -(k + 0.5) * width, reach, ARM))
            beside.append(_others(len(pieces) - 1, k, count))
    following: list[tuple[int, ...]] = [() for _ in pieces]
    lines = []
    for arm in range(4):
        for k in range(count):
            start = arm * 2 * count + k
            for exit_arm, at in _exits(arm, k, count):
                end = exit_arm * 2 * count + count + at
                curve = _between(pieces[start], pieces[end])
                following[start] = (*following[start], len(pieces))
                pieces.append(curve)
                following.append((end,))
                beside.append(())
                whole = np.concatenate([pieces[start], curve[1:], pieces[end][1:]])
                stop = float(lengths(pieces[start])[-1])
                clear = stop + float(lengths(curve)[-1])
                lines.append(
                    Line(spaced(whole, 1.0), start, None, None, stop, clear, arm, len(pieces) - 1)
                )
    shared = [i >= 8 * count for i in range(len(pieces))]
    lanes = _lanes(pieces, width, following, beside, shared, limit)
    ends = []  # of the arms' lanes, at the junction
    for i, lane in enumerate(lanes[: 8 * count]):
        half = len(lane.polygon) // 2
        ends.append(lane.polygon[[half - 1, half] if i % (2 * count) < count else [0, -1]])
    box = np.concatenate(ends)
    order = np.argsort(np.arctan2(box[:, 1], box[:, 0]))
    drivable = (*widened(lanes, CURB), box[order])
    name = "signals" if signals else "junction"
    return Layout(name, lanes, drivable, tuple(lines), limit, signals)


def signalled(rng: np.random.Generator) -> Layout:
    """A four-way junction with traffic lights."""
    return junction(rng, signals=True)


FAMILIES: dict[str, Callable[[np.random.Generator], Layout]] = {
    "straight": straight,
    "curved": curved,
    "merge": merge,
    "junction": junction,
    "signals": signalled,
    "parked": parked,
    "crossing": crossing,
}


def _road(
    family: str, axis: Array, rng: np.random.Generator, kerb: bool = False, crossings: int = 0
) -> Layout:
    """Lanes on both sides of an axis; parking strips and crossings as requested."""
    count = 1 if kerb else int(rng.integers(1, 3 if crossings else 4))
    width = rng.uniform(3.2, 3.7)
    limit = rng.uniform(8, 14) if kerb or crossings else rng.uniform(11, 20)
    axis = spaced(axis, 2.0)
    far = lengths(axis)[-1]
    pieces: list[Array] = []
    lines: list[Line] = []
    for way in (axis, axis[::-1]):
        first = len(lines)
        for k in range(count):  # to the right of the axis, the innermost first
            s = np.linspace(0, far, len(axis))
            row = along_line(way, s, -(k + 0.5) * width)[:, :2]
            pieces.append(row)
            left, right = (first + k - 1 if k else None, first + k + 1 if k + 1 < count else None)
            lines.append(Line(spaced(row, 1.0), len(lines), left, right))
    beside = [_others(i, i % count, count) for i in range(2 * count)]
    lanes = _lanes(pieces, width, [()] * len(pieces), beside, [False] * len(pieces), limit)
    drivable = list(widened(lanes, CURB))
    cars, cones = [], []
    edge = count * width
    if kerb:
        for way in (axis, axis[::-1]):
            strip = ribbon(along_line(way, lengths(way), -(edge + 1.25))[:, :2], 2.5)
            drivable.append(np.concatenate([strip[0], strip[1][::-1]]))
            s = np.arange(10, far - 10, rng.uniform(6.2, 9)) + rng.uniform(-0.3, 0.3)
            s = s[rng.random(len(s)) < rng.uniform(0.4, 0.9)]
            cars.append(along_line(way, s, -(edge + rng.uniform(0.75, 1.2, len(s)))))
        s = rng.uniform(0.3, 0.7) * far + 2.5 * np.arange(4)
        cone = along_line(axis, s, np.full(4, -edge + rng.uniform(0.0, 0.3)))
        away = np.hypot(*np.moveaxis(np.concatenate(cars)[:, None, :2] - cone[:, :2], -1, 0))
        cones.append(cone[away.min(0, initial=np.inf) > 3.5])
    middle = far * np.sort(rng.uniform(0.35, 0.65, crossings))
    ways = tuple(
        (along_line(axis, s, edge + 3.5)[:2], along_line(axis, s, -edge - 3.5)[:2]) for s in middle
    )
    if ways and cars:  # no parking on a crossing
        gaps = [
            [np.hypot(*(c[:2] - (a + b) / 2)) > edge + 9 for a, b in ways]
            for c in np.concatenate(cars)
        ]
        cars = [np.concatenate(cars)[np.array(gaps).all(1)]]
    empty = np.zeros((0, 3))
    return Layout(
        family,
        lanes,
        tuple(drivable),
        tuple(lines),
        limit,
        False,
        np.concatenate([empty, *cars]),
        np.concatenate([empty, *cones]),
        ways,
    )


def _bent(rng: np.random.Generator) -> Array:
    """An axis of successive arcs of constant curvature, in 2 m pieces."""
    bends = rng.uniform(1 / 120, 1 / 35, 2) * rng.choice([-1, 1], 2)
    turn = rng.uniform(0.4, 1.3, 2)  # rad
    if rng.random() < 0.5:
        turn[1] = 0.0
    long = turn / np.abs(bends)
    gap = rng.uniform(10, 50)
    ends = np.cumsum([HALF - long[0], long[0], gap, long[1], HALF - long[1]])
    s = np.arange(0, ends[-1], 2.0)
    which = np.searchsorted(ends, s, side="right")
    curvature = np.array([0.0, bends[0], 0.0, bends[1], 0.0])[np.minimum(which, 4)]
    heading = np.cumsum(curvature) * 2.0
    return np.cumsum(np.stack([np.cos(heading), np.sin(heading)], 1) * 2.0, 0)


def _lanes(
    pieces: list[Array],
    width: float,
    following: list[tuple[int, ...]],
    beside: list[tuple[int, ...]],
    shared: list[bool],
    limit: float,
) -> tuple[Lane, ...]:
    return tuple(
        lane_between(*ribbon(spaced(piece, 2.0), width), after, near, crossing, limit)
        for piece, after, near, crossing in zip(pieces, following, beside, shared, strict=True)
    )


def _others(row: int, k: int, count: int) -> tuple[int, ...]:
    """Rows of the other lanes of the same direction, if `row` is its k-th of `count`."""
    return tuple(row - k + i for i in range(count) if i != k)


def _ray(angle: float, aside: float, near: float, far: float) -> Array:
    """Points of an arm's lane from the centre outwards, `aside` to the left of the arm's axis."""
    r = np.arange(near, far + 1, 2.0)
    poses = np.stack([r, np.full_like(r, aside), np.zeros_like(r)], 1)
    return to_world(np.array([0.0, 0.0, angle]), poses)[:, :2]


def _exits(arm: int, k: int, count: int) -> list[tuple[int, int]]:
    """Exits of lane k (0 is nearest to the axis) of an arm: (arm, lane) pairs."""
    ways = [((arm + 2) % 4, k)]
    if k == 0:
        ways.append(((arm + 3) % 4, 0))  # left: the arms go counter-clockwise, seen from inside
    if k == count - 1:
        ways.append(((arm + 1) % 4, count - 1))
    return ways


def _between(start: Array, end: Array) -> Array:
    """A smooth curve from the end of one lane to the start of another."""
    p, q = start[-1], end[0]
    a, b = start[-1] - start[-2], end[1] - end[0]
    long = np.hypot(*(q - p)) * 0.45
    a, b = a / np.hypot(*a) * long, b / np.hypot(*b) * long
    t = np.linspace(0, 1, 15)[:, None]
    control = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3)
    return sum(c * x for c, x in zip(control, (p, p + a, q - b, q), strict=True))
