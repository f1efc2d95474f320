"""Boxes, polygons and lines in the plane, many at once.

Legend: N points, P corners of a polygon or points of a line, L polygons.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


def wrap(angle: Array) -> Array:
    """The same angle in [-π, π)."""
    return (angle + np.pi) % (2 * np.pi) - np.pi


def unit(heading: Array) -> Array:
    """(...) headings -> (..., 2) unit vectors."""
    return np.stack([np.cos(heading), np.sin(heading)], -1)


def cross(a: Array, b: Array) -> Array:
    """(..., 2), (..., 2) -> (...) a_x b_y - a_y b_x."""
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def to_world(origin: Array, poses: Array) -> Array:
    """(..., 3) poses (x, y, heading) in the frame of `origin` (..., 3) -> in the world's frame."""
    x0, y0, h0 = np.moveaxis(origin, -1, 0)
    x, y, h = np.moveaxis(poses, -1, 0)
    c, s = np.cos(h0), np.sin(h0)
    return np.stack([x0 + c * x - s * y, y0 + s * x + c * y, h0 + h], -1)


def to_frame(origin: Array, poses: Array) -> Array:
    """The inverse of `to_world`; headings in [-π, π)."""
    x0, y0, h0 = np.moveaxis(origin, -1, 0)
    c, s = np.cos(h0), np.sin(h0)
    x, y = poses[..., 0] - x0, poses[..., 1] - y0
    return np.stack([c * x + s * y, c * y - s * x, wrap(poses[..., 2] - h0)], -1)


def corners(centre: Array, heading: Array, size: Array) -> Array:
    """(..., 2) centres, (...) headings, (..., 2) lengths, widths -> (..., 4, 2) FL, RL, RR, FR."""
    ahead = unit(heading) * size[..., :1] / 2
    aside = unit(heading + np.pi / 2) * size[..., 1:] / 2
    return np.stack(
        [
            centre + ahead + aside,
            centre - ahead + aside,
            centre - ahead - aside,
            centre + ahead - aside,
        ],
        -2,
    )


def boxes_meet(a: Array, b: Array) -> Mask:
    """(..., 4, 2) corners of two boxes -> (...) whether they share a point; touching counts.

    Two convex shapes are apart exactly if they are apart along a normal of one of their sides.
    """
    (p, *half_a), (q, *half_b) = _middle(a), _middle(b)
    apart = np.zeros(np.broadcast_shapes(a.shape, b.shape)[:-2], bool)
    for _, side in (half_a, half_b):
        for axis in (side, np.stack([-side[..., 1], side[..., 0]], -1)):
            reach = sum(np.abs(_dot(half, axis)) for half in (*half_a, *half_b))
            apart |= np.abs(_dot(q - p, axis)) > reach
    return ~apart


def _middle(box: Array) -> tuple[Array, Array, Array]:
    """Centre, half of the length and half of the width of boxes, (..., 2) each."""
    front_left, rear_left, rear_right = (box[..., i, :] for i in range(3))
    return (
        (front_left + rear_right) / 2,
        (front_left - rear_left) / 2,
        (rear_left - rear_right) / 2,
    )


def _dot(a: Array, b: Array) -> Array:
    return a[..., 0] * b[..., 0] + a[..., 1] * b[..., 1]


def segment_meets_box(start: Array, end: Array, box: Array) -> Mask:
    """(..., 2), (..., 2), (..., 4, 2) -> (...): the segment is tested as a box without width."""
    return boxes_meet(np.stack([start, start, end, end], -2), box)


def inside(points: Array, polygon: Array) -> Mask:
    """(N, 2), (P, 2) -> (N,): the number of sides to the right of the point is odd."""
    return Areas.of([polygon]).under(points)[..., 0]


@dataclass(frozen=True)
class Areas:
    """Polygons and the boxes around them."""

    polygons: Sequence[Array]
    bounds: Array  # (L, 4) west, south, east, north

    @classmethod
    def of(cls, polygons: Sequence[Array]) -> "Areas":
        """From L polygons (P, 2)."""
        bounds = [[*polygon.min(0), *polygon.max(0)] for polygon in polygons]
        return cls(polygons, np.array(bounds).reshape(-1, 4))

    def under(self, points: Array) -> Mask:
        """(..., 2) -> (..., L) whether each polygon contains the point."""
        flat = points.reshape(-1, 2)
        found = np.zeros((len(self.polygons), len(flat)), bool)
        if len(flat):
            x, y = np.ascontiguousarray(flat[:, 0]), np.ascontiguousarray(flat[:, 1])
            west, south, east, north = self.bounds.T
            near = (west <= x.max()) & (east >= x.min()) & (south <= y.max()) & (north >= y.min())
            for i in np.flatnonzero(near).tolist():
                at = (x >= west[i]) & (x <= east[i]) & (y >= south[i]) & (y <= north[i])
                rows = np.flatnonzero(at)
                if len(rows):
                    found[i, rows] = _odd_sides(x[rows], y[rows], self.polygons[i])
        return found.T.reshape(*points.shape[:-1], len(self.polygons))


def _odd_sides(x: Array, y: Array, polygon: Array) -> Mask:
    """(N,), (N,), (P, 2) -> (N,) whether an odd number of sides is to the right of the point."""
    ax, ay = polygon.T
    bx, by = np.roll(polygon, -1, 0).T
    use = (np.minimum(ay, by) <= y.max()) & (np.maximum(ay, by) > y.min()) & (ay != by)
    ax, ay, bx, by = ax[use], ay[use], bx[use], by[use]
    slope, odd = (bx - ax) / (by - ay), np.zeros(len(x), bool)
    for i in range(len(ax)):
        odd ^= ((ay[i] > y) != (by[i] > y)) & (x < ax[i] + slope[i] * (y - ay[i]))
    return odd


def lengths(line: Array) -> Array:
    """(P, 2) -> (P,) distance along the line."""
    steps = np.hypot(*np.diff(line, axis=0).T)
    return np.concatenate([[0.0], np.cumsum(steps)])


def project(points: Array, line: Array) -> tuple[Array, Array]:
    """(..., 2) points, (P, 2) line -> distance along it and offset from it (left +), (...) each.

    The nearest point lies on the line: beyond an end it is that end.
    """
    flat = points.reshape(-1, 2)
    start, step = line[:-1], np.diff(line, axis=0)
    square = np.maximum((step**2).sum(1), 1e-12)
    away = flat[:, None] - start  # (N, P - 1, 2)
    share = np.clip((away * step).sum(2) / square, 0, 1)
    gap = away - share[..., None] * step
    best = (gap**2).sum(2).argmin(1)
    rows = np.arange(len(flat))
    along = lengths(line)[best] + share[rows, best] * np.sqrt(square[best])
    side = np.sign(cross(step[best], away[rows, best]))
    offset = side * np.hypot(*gap[rows, best].T)
    return along.reshape(points.shape[:-1]), offset.reshape(points.shape[:-1])


def along_line(line: Array, s: Array, offset: Array | float = 0.0) -> Array:
    """(P, 2) line, (...) distances, offsets to the left -> (..., 3) poses.

    Beyond an end the line is extended straight.
    """
    far = lengths(line)
    step = np.diff(line, axis=0)
    turn = np.unwrap(np.arctan2(step[:, 1], step[:, 0]))
    middle = (far[:-1] + far[1:]) / 2
    heading = np.interp(s, middle, turn)
    x, y = np.interp(s, far, line[:, 0]), np.interp(s, far, line[:, 1])
    past = np.where(s > far[-1], s - far[-1], np.minimum(s, 0.0))
    x = x + past * np.cos(heading) - offset * np.sin(heading)
    y = y + past * np.sin(heading) + offset * np.cos(heading)
    return np.stack([x, y, heading], -1)


def spaced(line: Array, step: float) -> Array:
    """The same line with points about `step` apart."""
    return evenly(line, max(2, round(lengths(line)[-1] / step) + 1))


def evenly(line: Array, count: int) -> Array:
    """The same line with `count` points, evenly spaced."""
    far = lengths(line)
    s = np.linspace(0, far[-1], count)
    return np.stack([np.interp(s, far, line[:, 0]), np.interp(s, far, line[:, 1])], -1)
