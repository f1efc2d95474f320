"""Generated traffic: layouts, drivers and pedestrians from a seed; nothing is downloaded.

A log is one layout with one stretch of traffic. Splits never share a layout or a seed: both are
drawn from generators that are named by the split.
"""

from collections.abc import Iterator

import numpy as np

from djepa.errors import unknown_name
from djepa.seeds import generator
from djepa.worlds.traffic.drivers import Cars, Traffic
from djepa.worlds.traffic.idm import Style
from djepa.worlds.traffic.plane import Array, Mask, boxes_meet, corners
from djepa.worlds.traffic.recording import Recording, cut, is_ego
from djepa.worlds.traffic.roads import FAMILIES, Layout
from djepa.worlds.traffic.scene import AHEAD, BEHIND, DT, Kind, Scene

SPLITS = ("native", "fit", "calibration", "guarantee", "confirmation")  # first: the native model
WARM = 30  # steps before the recording begins
STEPS = 121  # of a log, 12 s
STARTS = tuple(range(BEHIND, STEPS - AHEAD, 15))  # steps at which scenes of a log begin
MOVING, NEAR = 2.0, 40.0  # m/s of an ego, m to the next road user
CAR, TRUCK, WALKER, CONE = (4.6, 1.9), (9.0, 2.4), (0.6, 0.6), (0.4, 0.4)  # m


def scenes(split: str, logs: int, per_log: int = 2, seed: int = 0) -> Iterator[Scene]:
    """Scenes of logs 0, 1, ...; families take turns, egos are drawn among eligible cars."""
    for number in range(logs):
        yield from scenes_of(make_log(split, number, seed), per_log)


def scenes_of(log: Recording, count: int = 2) -> list[Scene]:
    """Up to `count` scenes of one generated log."""
    rng = generator("traffic", log.log, "egos")
    return [cut(log, row, start) for start, row in _places(log, count, rng)]


def _places(log: Recording, count: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Starts and egos of `count` scenes, drawn among moving cars near another road user."""
    found: list[tuple[int, int]] = []
    cars = np.flatnonzero(np.ones(len(log.ids), bool) if log.clean is None else log.clean)
    every = [(start, row) for start in STARTS for row in cars.tolist()]
    for i in rng.permutation(len(every)).tolist():
        start, row = every[i]
        if len(found) < count and _alert(log, start, row) and is_ego(log, row, start):
            found.append((start, row))
    return sorted(found)


def make_log(split: str, number: int, seed: int = 0) -> Recording:
    """Log `number` of a split: layout, traffic, pedestrians."""
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    family = tuple(FAMILIES)[number % len(FAMILIES)]
    layout = FAMILIES[family](generator("traffic", split, seed, number, "layout"))
    rng = generator("traffic", split, seed, number, "drivers")
    return simulate(layout, rng, f"{split}-{seed}/{family}-{number:05d}")


def simulate(layout: Layout, rng: np.random.Generator, log: str) -> Recording:
    """Twelve seconds of traffic on a layout."""
    cars = _cars(layout, rng)
    traffic = Traffic(layout, cars, phase=float(rng.uniform(0, 20)))
    walks = _walks(layout, rng)  # (W, S, 4)
    states, red = [], []
    for t in range(WARM + STEPS):
        if t >= WARM:
            states.append(traffic.poses())
            red.append(_closed(layout, traffic.red()))
        now = walks[:, t]
        traffic.step(now[np.isfinite(now[:, 0])])
    walks = _unhurt(walks[:, WARM:], np.stack(states, 1), cars.size)
    still = np.concatenate([layout.parked, layout.cones])
    standing = np.repeat(np.pad(still, ((0, 0), (0, 1)))[:, None], STEPS, 1)
    state = np.concatenate([np.stack(states, 1), walks, standing])
    counts = (len(cars.s), len(walks), len(layout.parked), len(layout.cones))
    kinds = (Kind.VEHICLE, Kind.PEDESTRIAN, Kind.VEHICLE, Kind.STATIC)
    return Recording(
        log=log,
        lanes=layout.lanes,
        drivable=layout.drivable,
        state=state,
        size=np.concatenate(
            [
                cars.size,
                *(
                    np.tile(size, (n, 1))
                    for size, n in zip((WALKER, CAR, CONE), counts[1:], strict=True)
                ),
            ]
        ),
        kind=np.repeat(np.array(kinds, np.int64), counts),
        ids=tuple(str(i) for i in range(len(state))),
        red=np.stack(red),
        clean=np.arange(len(state)) < len(cars.s),
    )


def _cars(layout: Layout, rng: np.random.Generator) -> Cars:
    """A queue of cars on every entry, each with its line, size and style."""
    line, s, size = [], [], []
    entries: dict[int, list[int]] = {}
    for g, way in enumerate(layout.lines):
        entries.setdefault(way.entry, []).append(g)
    dense = rng.uniform(14, 45)  # m, mean distance of cars
    for ways in entries.values():
        room = min(min(layout.lines[g].stop - 8, len(layout.lines[g].points) - 60) for g in ways)
        at = rng.uniform(6, 20)
        while at < room:
            truck = not np.isfinite(layout.lines[ways[0]].stop) and rng.random() < 0.08
            box = np.array(TRUCK if truck else CAR) * rng.uniform(0.93, 1.07, 2)
            line.append(int(rng.choice(ways)))
            s.append(at)
            size.append(box)
            at += box[0] + 6 + rng.exponential(dense)
    n = len(s)
    speed = layout.limit * rng.uniform(0.7, 1.15, n)
    style = Style(
        speed=speed,
        gap=rng.uniform(1.5, 2.5, n),
        headway=rng.uniform(0.9, 1.8, n),
        accel=rng.uniform(1.0, 2.0, n),
        brake=rng.uniform(1.5, 3.0, n),
        power=4.0,
    )
    start = speed * rng.uniform(0.5, 0.9, n)
    return Cars(np.array(line), np.array(s), start, np.zeros(n), np.zeros(n), np.array(size), style)


def _walks(layout: Layout, rng: np.random.Generator) -> Array:
    """(W, S, 4) pedestrians who cross once, from either side."""
    total = WARM + STEPS
    walks = [np.zeros((0, total, 4))]
    for ends in layout.crossings:
        for _ in range(int(rng.integers(1, 4))):
            a, b = ends if rng.random() < 0.5 else ends[::-1]
            speed, begin = rng.uniform(1.0, 1.8), rng.uniform(1, total * DT - 5)
            way = b - a
            done = np.clip((np.arange(total) * DT - begin) * speed / np.hypot(*way), 0, 1)
            walk = np.empty((1, total, 4))
            walk[0, :, :2] = (
                a + done[:, None] * way + rng.uniform(-1, 1) * way[::-1] * [-1, 1] / np.hypot(*way)
            )
            walk[0, :, 2] = np.arctan2(way[1], way[0])
            walk[0, :, 3] = np.where((done > 0) & (done < 1), speed, 0.0)
            walks.append(walk)
    return np.concatenate(walks)


def _unhurt(walks: Array, cars: Array, size: Array) -> Array:
    """The pedestrians who do not walk into a car; real ones would not."""
    boxes = corners(cars[..., :2], cars[..., 2], size[:, None])
    people = corners(walks[..., :2], walks[..., 2], np.array(WALKER))
    there = np.isfinite(cars[None, ..., 0])
    return walks[~(boxes_meet(people[:, None], boxes[None]) & there).any((1, 2))]


def _closed(layout: Layout, red: Mask) -> Mask:
    """(L,): lanes through a junction that a red light closes."""
    closed = np.zeros(len(layout.lanes), bool)
    closed[[line.connector for line, shut in zip(layout.lines, red, strict=True) if shut]] = True
    return closed


def _alert(log: Recording, start: int, row: int) -> bool:
    """Whether the car moves near another road user; otherwise there is little to decide."""
    away = np.hypot(*(log.state[:, start, :2] - log.state[row, start, :2]).T)
    away[row] = np.inf
    return bool(log.state[row, start, 3] > MOVING and np.nanmin(away, initial=np.inf) < NEAR)
