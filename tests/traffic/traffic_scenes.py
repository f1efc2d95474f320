"""Small scenes with known answers, shared by the tests of traffic."""

from dataclasses import replace

import numpy as np

from djepa.worlds.traffic.lanes import lane_between
from djepa.worlds.traffic.plane import Array, to_world
from djepa.worlds.traffic.scene import AHEAD, BEHIND, DT, Kind, Lane, Scene

WIDE = 3.5  # m, of a lane
TIMES = 0.5 * np.arange(1, 9)
CAR = (4.0, 2.0)


def lane(row: int, *, intersection: bool = False, limit: float = 10.0, count: int = 2) -> Lane:
    x = np.array([-100.0, 400.0])
    left, right = (np.stack([x, np.full(2, y)], 1) for y in ((row + 1) * WIDE, row * WIDE))
    beside = tuple(i for i in range(count) if i != row)
    return lane_between(left, right, (), beside, intersection, limit)


def road(
    *tracks: tuple[Array, Kind],
    speed: float = 10.0,
    limit: float = 10.0,
    y: float = WIDE / 2,
    route: tuple[int, ...] = (0, 1),
    intersection: bool = False,
) -> Scene:
    """Two lanes along x; the ego's rear axle is at (0, y). A track is (51, 4) states and a kind."""
    lanes = tuple(lane(i, intersection=intersection, limit=limit) for i in range(2))
    T = len(tracks)
    return Scene(
        name="road",
        log="log",
        lanes=lanes,
        drivable=tuple(one.polygon for one in lanes),
        route=route,
        path=np.array([[-100.0, WIDE / 2], [400.0, WIDE / 2]]),
        ego=np.array([0.0, y, 0.0, speed, 0.0, 0.0]),
        past=np.full((T, BEHIND + 1, 4), np.nan),
        future=np.array([states for states, _ in tracks]).reshape(T, AHEAD + 1, 4),
        size=np.tile(CAR, (T, 1)),
        kind=np.array([kind for _, kind in tracks], np.int64),
    )


def moving(x: float, y: float, heading: float = 0.0, speed: float = 0.0) -> Array:
    """(51, 4) at constant velocity."""
    t = DT * np.arange(AHEAD + 1)
    way = speed * t
    columns = (x + way * np.cos(heading), y + way * np.sin(heading), 0 * t + heading, 0 * t + speed)
    return np.stack(columns, 1)


def straight(speed: float) -> Array:
    """(1, 8, 3) at constant speed."""
    return np.stack([speed * TIMES, 0 * TIMES, 0 * TIMES], 1)[None]


def moved(scene: Scene, pose: Array) -> Scene:
    """The same scene in a world whose origin and axes are elsewhere."""

    def points(xy: Array) -> Array:
        return to_world(pose, np.concatenate([xy, np.zeros((*xy.shape[:-1], 1))], -1))[..., :2]

    def states(values: Array) -> Array:
        return np.concatenate([to_world(pose, values[..., :3]), values[..., 3:]], -1)

    lanes = tuple(
        replace(one, polygon=points(one.polygon), centre=points(one.centre)) for one in scene.lanes
    )
    return replace(
        scene,
        lanes=lanes,
        drivable=tuple(points(area) for area in scene.drivable),
        path=points(scene.path),
        ego=states(scene.ego),
        past=states(scene.past),
        future=states(scene.future),
    )
