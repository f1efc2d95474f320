"""One driving decision: the road, the car, and the other road users, past and future.

Metres, seconds, radians, right-handed. `past` is what a model may see; `future` and `driven` belong
to execution and judgement.

Legend: L lanes, T tracks, P points.
"""

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from djepa.errors import DjepaError
from djepa.worlds.traffic.plane import Areas, Array, corners, unit

DT = 0.1  # s, a step of execution and of every track
STEPS = 40  # executed, 4 s
AHEAD = 50  # steps of traffic after now, 5 s: time to collision looks 0.9 s beyond the last step
BEHIND = 20  # steps of traffic before now, 2 s
POSES, EVERY = 8, 5  # of a candidate: 8 poses, 5 steps (0.5 s) apart

WIDTH, FRONT, REAR = 2.297, 4.049, 1.127  # m, of the ego car; from its rear axle
LENGTH, WHEEL_BASE, TO_CENTRE = FRONT + REAR, 3.089, 1.461
EGO_SIZE = np.array([LENGTH, WIDTH])

X, Y, H, V, A, STEER = range(6)  # columns of an ego state; x and y are of the rear axle


class Kind(IntEnum):
    """What a track is."""

    VEHICLE = 0
    PEDESTRIAN = 1
    BICYCLE = 2
    STATIC = 3  # cone, barrier, sign: hitting it costs half


@dataclass(frozen=True)
class Lane:
    """One lane, drawn in its driving direction."""

    polygon: Array  # (P, 2)
    centre: Array  # (P, 2)
    next: tuple[int, ...] = ()  # rows of the lanes it leads to
    beside: tuple[int, ...] = ()  # rows of adjacent lanes of the same direction
    intersection: bool = False
    limit: float = float("nan")  # m/s; NaN: unknown


@dataclass(frozen=True)
class Scene:
    """Everything that one decision and its judgement need."""

    name: str
    log: str  # scenes of one log share road users: they are never split
    lanes: tuple[Lane, ...]
    drivable: tuple[Array, ...]  # polygons; their union is the drivable area
    route: tuple[int, ...]  # rows of the lanes of the route; the first is the car's own
    path: Array  # (P, 2) centre line of the route
    ego: Array  # (6,) x, y, heading, speed, acceleration, steering angle
    past: Array  # (T, 21, 4) x, y, heading, speed; NaN where not seen; the last row is now
    future: Array  # (T, 51, 4) the first row is now
    size: Array  # (T, 2) length, width
    kind: NDArray[np.int64]  # (T,) of Kind
    red: tuple[int, ...] = ()  # rows of lanes that a red light closes now
    driven: Array | None = None  # (8, 3) motion of the recorded driver, in the frame of the ego

    @cached_property
    def lane_areas(self) -> Areas:
        """The lanes' polygons."""
        return Areas.of([lane.polygon for lane in self.lanes])

    @cached_property
    def drivable_areas(self) -> Areas:
        """The drivable polygons."""
        return Areas.of(self.drivable)

    def __post_init__(self) -> None:
        T = len(self.kind)
        shapes = {
            "ego": (self.ego, (6,)),
            "past": (self.past, (T, BEHIND + 1, 4)),
            "future": (self.future, (T, AHEAD + 1, 4)),
            "size": (self.size, (T, 2)),
        }
        for name, (values, wanted) in shapes.items():
            if values.shape != wanted:
                raise DjepaError(f"{name} of scene {self.name} is {values.shape}, not {wanted}.")
        if not np.isfinite(self.ego).all():
            raise DjepaError(f"The ego state of scene {self.name} holds a NaN or an infinity.")
        if not (self.lanes and self.drivable and self.route) or len(self.path) < 2:
            raise DjepaError(f"Scene {self.name} needs lanes, a drivable area, a route and a path.")


def check_candidates(candidates: Array) -> Array:
    """Return the candidates, or raise unless they are (K, 8, 3) finite poses."""
    if candidates.ndim != 3 or candidates.shape[1:] != (POSES, 3):
        raise DjepaError(f"Candidates must be (K, {POSES}, 3) poses, got {candidates.shape}.")
    if not np.isfinite(candidates).all():
        raise DjepaError("Candidates hold a NaN or an infinity.")
    return candidates.astype(np.float64)


def ego_centre(states: Array) -> Array:
    """(..., 3+) states of the rear axle -> (..., 2) centres of the box."""
    return states[..., :2] + TO_CENTRE * unit(states[..., H])


def ego_corners(states: Array) -> Array:
    """(..., 3+) states of the rear axle -> (..., 4, 2) corners of the box."""
    return corners(ego_centre(states), states[..., H], EGO_SIZE)
