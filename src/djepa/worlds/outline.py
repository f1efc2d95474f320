"""The outline of a block made of boxes."""

from collections import Counter
from itertools import pairwise

from djepa.worlds.shapes import Shape

Point = tuple[float, float]


def outline(shape: Shape) -> list[Point]:
    """The corners of the block in its own frame, in order along the outline of all parts.

    Parts are cut along each other's edges; edges that two cells share cancel.
    """
    corners = shape.vertices.reshape(-1, 2)
    xs, ys = sorted(set(corners[:, 0].tolist())), sorted(set(corners[:, 1].tolist()))
    edges: Counter[tuple[Point, Point]] = Counter()
    for x0, x1 in pairwise(xs):
        for y0, y1 in pairwise(ys):
            if _covers(shape, (x0 + x1) / 2, (y0 + y1) / 2):
                ring = ((x0, y0), (x1, y0), (x1, y1), (x0, y1), (x0, y0))
                edges.update(pairwise(ring))
    after = {a: b for a, b in edges if (b, a) not in edges}
    rim = [min(after)]
    while len(rim) < len(after):
        rim.append(after[rim[-1]])
    return [p for i, p in enumerate(rim) if not _straight(rim[i - 1], p, after[p])]


def _covers(shape: Shape, x: float, y: float) -> bool:
    low, high = shape.vertices.min(1), shape.vertices.max(1)  # (P, 2): parts are boxes
    return bool(((low < (x, y)) & ((x, y) < high)).all(1).any())


def _straight(a: Point, b: Point, c: Point) -> bool:
    return a[0] == b[0] == c[0] or a[1] == b[1] == c[1]
