"""The input of the native driving model: the scene from above, in the frame of the ego car.

One pixel is one metre, drawn four times as fine and averaged; the car is at (16, 32) and looks
along x.

Legend: C channels, S = 64 pixels.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from torch import Tensor

from djepa.worlds.traffic.plane import Array, corners, to_frame, wrap
from djepa.worlds.traffic.scene import BEHIND, Kind, Scene

SIDE, BACK, HALF = 64, 16.0, 32.0  # px; m behind the car, m to each side
FINE = 4  # subpixels per pixel and axis, for antialiased edges
CHANNELS = (
    "drivable",
    "route",
    "vehicles",
    "others",
    "speed along",
    "speed across",
    "vehicles 1 s before",
    "vehicles 2 s before",
    "red",
)
FASTEST = 20.0  # m/s that full brightness stands for; standing is the middle
MIDDLE = 128
Frame = NDArray[np.uint8]


@dataclass(frozen=True)
class Moment:
    """Road users at one moment and one and two seconds before, (T, 4) each; NaN where not seen."""

    now: Array
    before: Array
    long_before: Array


def seen(scene: Scene) -> Moment:
    """What may be seen at the start."""
    return Moment(scene.past[:, BEHIND], scene.past[:, BEHIND - 10], scene.past[:, BEHIND - 20])


def later(scene: Scene, step: int) -> Moment:
    """What was recorded `step` ≥ 20 steps on; for training targets alone."""
    return Moment(*(scene.future[:, step - back] for back in (0, 10, 20)))


def raster(scene: Scene, pose: Array, moment: Moment) -> Frame:
    """(9, 64, 64) as seen by a car whose rear axle is at `pose` (3,)."""
    pictures = [_Picture(MIDDLE if name.startswith("speed") else 0) for name in CHANNELS]
    road, route, cars, others, along, across, before, long_before, red = pictures
    for polygon in (*scene.drivable, *(lane.polygon for lane in scene.lanes)):
        road.fill(_local(pose, polygon), 255)
    for row in scene.route:
        route.fill(_local(pose, scene.lanes[row].polygon), 255)
    for row in scene.red:
        red.fill(_local(pose, scene.lanes[row].polygon), 255)
    vehicles = np.isin(scene.kind, (Kind.VEHICLE, Kind.BICYCLE))
    for row, box in _boxes(pose, moment.now, scene.size):
        (cars if vehicles[row] else others).fill(box, 255)
        turn = float(wrap(moment.now[row, 2] - pose[2]))
        speed = MIDDLE * moment.now[row, 3] / FASTEST
        along.fill(box, MIDDLE + speed * np.cos(turn))
        across.fill(box, MIDDLE + speed * np.sin(turn))
    for picture, states in ((before, moment.before), (long_before, moment.long_before)):
        for _, box in _boxes(pose, states, scene.size):
            picture.fill(box, 255)
    return np.stack([picture.pixels() for picture in pictures])


class _Picture:
    """One channel."""

    def __init__(self, ground: int) -> None:
        self.image = Image.new("L", (FINE * SIDE, FINE * SIDE), ground)
        self.pen = ImageDraw.Draw(self.image)

    def fill(self, points: Array, value: float) -> None:
        """Draw a polygon that is given in the frame of the car."""
        low, high = points.min(0), points.max(0)
        if (high > (-BACK, -HALF)).all() and (low < (SIDE - BACK, SIDE - HALF)).all():
            pixels = np.clip(FINE * (points + np.array([BACK, HALF])), -16 * SIDE, 20 * SIDE)
            self.pen.polygon(
                [(x, y) for x, y in pixels.tolist()], fill=round(min(max(value, 0), 255))
            )

    def pixels(self) -> Frame:
        """(64, 64): rows are y, columns are x."""
        return np.asarray(self.image.reduce(FINE), np.uint8)


def _local(pose: Array, points: Array) -> Array:
    return to_frame(pose, np.pad(points, ((0, 0), (0, 1))))[:, :2]


def _boxes(pose: Array, states: Array, size: Array) -> list[tuple[int, Array]]:
    """Rows and corners of the road users that are there, in the frame of the car."""
    here = np.flatnonzero(np.isfinite(states).all(1))
    local = to_frame(pose, states[here, :3])
    return list(zip(here.tolist(), corners(local[:, :2], local[:, 2], size[here]), strict=True))


def mirrored(frames: Tensor) -> Tensor:
    """(..., 9, 64, 64) uint8 with left and right exchanged."""
    turned = frames.flip(-2)
    across = turned[..., CHANNELS.index("speed across"), :, :]
    across.copy_((2 * MIDDLE - across.int()).clamp(0, 255))
    return turned
