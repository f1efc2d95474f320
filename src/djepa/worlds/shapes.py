"""The pushed blocks: T and the PushObj shapes, each a union of axis-aligned rectangles.

Vertices are in canvas units in the body frame. They are those of stable-worldmodel 0.1.1, with side
s = 30 for T and s = 40 for the others, so that the physics agrees with it to the last bit.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from djepa.errors import check_name

Vertices = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Shape:
    """One block. `inertia` lists, part by part, the part whose vertices give its moment.

    The original reuses the first part's moment for later parts of T and +; so do we.
    `symmetry` is the order of the rotation group: turning by 2π / symmetry changes nothing.
    """

    name: str
    parts: tuple[Vertices, ...]
    inertia: tuple[int, ...]
    symmetry: int = 1

    @cached_property
    def vertices(self) -> npt.NDArray[np.float64]:
        """(P, 4, 2) body-frame vertices of the P parts."""
        return np.array(self.parts, dtype=np.float64)

    @cached_property
    def centre(self) -> npt.NDArray[np.float64]:
        """(2,) centre of gravity: the mean of the part centres."""
        return np.asarray(self.vertices.mean(axis=(0, 1)))

    @cached_property
    def reach(self) -> float:
        """Distance from the body origin to the farthest vertex."""
        return float(np.linalg.norm(self.vertices, axis=-1).max())

    @cached_property
    def girth(self) -> float:
        """Distance from the centre of gravity to the farthest vertex."""
        return float(np.linalg.norm(self.vertices - self.centre, axis=-1).max())

    @property
    def turn(self) -> float:
        """Smallest rotation that maps the shape onto itself."""
        return 2 * math.pi / self.symmetry


def turned(
    points: npt.NDArray[np.float64], angle: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Points (..., 2) turned about the origin by angles that broadcast against (...)."""
    c, s = np.cos(angle), np.sin(angle)
    x, y = points[..., 0], points[..., 1]
    return np.stack([c * x - s * y, s * x + c * y], axis=-1)


def _box(x0: float, x1: float, y0: float, y1: float) -> Vertices:
    return ((x0, y0), (x0, y1), (x1, y1), (x1, y0))


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("T", (_box(-60, 60, 0, 30), _box(-15, 15, 30, 120)), (0, 0)),
        Shape("L", (_box(0, 40, 0, 80), _box(0, 80, -40, 0)), (0, 1)),
        Shape("Z", (_box(0, 80, 0, 40), _box(-40, 40, -40, 0)), (0, 1), symmetry=2),
        Shape(
            "+",
            (_box(-60, 60, -20, 20), _box(-20, 20, 20, 60), _box(-20, 20, -60, -20)),
            (0, 0, 0),
            symmetry=4,
        ),
        Shape("I", (_box(-20, 20, -80, 80),), (0,), symmetry=2),
        Shape("small-T", (_box(-60, 60, 0, 40), _box(-20, 20, 40, 80)), (0, 1)),
        Shape("square", (_box(-40, 40, -40, 40),), (0,), symmetry=4),
    )
}


def get_shape(name: str) -> Shape:
    """The shape of that name, or an error that suggests the nearest one."""
    check_name("shape", name, SHAPES)
    return SHAPES[name]
