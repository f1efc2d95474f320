import math

import numpy as np
import pymunk
import pytest

from djepa.errors import DjepaError
from djepa.worlds.push import PushWorld
from djepa.worlds.shapes import SHAPES, get_shape

every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


def turn(points: np.ndarray, angle: float, centre: np.ndarray) -> np.ndarray:
    c, s = math.cos(angle), math.sin(angle)
    return (points - centre) @ np.array([[c, s], [-s, c]]) + centre


def inside(points: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """Which points (n, 2) lie in the union of the axis-aligned boxes (P, 4, 2)."""
    low, high = parts.min(axis=1), parts.max(axis=1)
    within = (points[:, None] > low - 1e-9) & (points[:, None] < high + 1e-9)
    return within.all(axis=-1).any(axis=-1)


def samples(shape) -> np.ndarray:
    """Points all over the shape's surroundings, none near an edge."""
    grid = np.arange(-165.0, 166.0, 6.0) + 0.37
    return np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2) + shape.centre


def looks_the_same(shape, angle: float) -> bool:
    points = samples(shape)
    turned = turn(points, angle, shape.centre)
    return bool((inside(points, shape.vertices) == inside(turned, shape.vertices)).all())


def corner_set(points: np.ndarray) -> set[tuple[float, float]]:
    return {(x, y) for x, y in points.reshape(-1, 2).round(6).tolist()}


@every_shape
def test_the_centre_is_the_engines_centre_of_gravity(shape):
    world = PushWorld(shape.name)
    assert world._block.center_of_gravity == pytest.approx(tuple(shape.centre), abs=1e-12)
    state = np.array([0.0, 0, 200, 300, 0.7, 0, 0, 0, 0, 0])
    world.restore(state)
    want = world._block.local_to_world(world._block.center_of_gravity)
    assert world.block_centre(state) == pytest.approx(tuple(want), abs=1e-9)


@every_shape
def test_the_vertices_are_those_the_engine_has(shape):
    world = PushWorld(shape.name)
    state = np.array([0.0, 0, 210, 290, -1.3, 0, 0, 0, 0, 0])
    world.restore(state)
    polys = [part for part in world._block.shapes if isinstance(part, pymunk.Poly)]
    engine = [world._block.local_to_world(v) for part in polys for v in part.get_vertices()]
    ours = world.block_vertices(state)
    assert ours.shape == (len(shape.parts), 4, 2)
    assert corner_set(ours) == corner_set(np.array(engine))


@every_shape
def test_the_symmetry_turns_the_shape_onto_itself(shape):
    assert looks_the_same(shape, shape.turn)
    if shape.symmetry > 1:  # half a turn maps every part onto a part
        turned = corner_set(turn(shape.vertices, math.pi, shape.centre))
        assert turned == corner_set(shape.vertices)


@every_shape
def test_no_smaller_turn_does(shape):
    for order in range(2, 9):
        if shape.symmetry % order:
            assert not looks_the_same(shape, 2 * math.pi / order)


def test_orders_of_symmetry():
    orders = {name: shape.symmetry for name, shape in SHAPES.items()}
    assert orders == {"T": 1, "L": 1, "Z": 2, "+": 4, "I": 2, "small-T": 1, "square": 4}
    assert SHAPES["square"].turn == math.pi / 2


@every_shape
def test_reach_and_girth_bound_the_vertices(shape):
    corners = shape.vertices.reshape(-1, 2)
    assert shape.reach == max(math.hypot(x, y) for x, y in corners)
    assert shape.girth == pytest.approx(max(math.dist(p, shape.centre) for p in corners))
    assert len(shape.inertia) == len(shape.parts)


def test_hand_worked_centres():
    assert SHAPES["T"].centre.tolist() == [0.0, 45.0]
    assert SHAPES["Z"].centre.tolist() == [20.0, 0.0]
    assert SHAPES["+"].centre.tolist() == [0.0, 0.0]


def test_a_misspelt_shape_is_corrected():
    assert get_shape("small-T") is SHAPES["small-T"]
    with pytest.raises(DjepaError, match=r"Unknown shape 'sqare'\. Did you mean 'square'\?"):
        get_shape("sqare")
    with pytest.raises(DjepaError, match="Known: "):
        PushWorld("hexagon")
