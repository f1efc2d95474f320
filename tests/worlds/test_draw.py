import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from djepa.errors import DjepaError
from djepa.worlds.draw import Appearance, draw_push
from djepa.worlds.push import PushWorld
from djepa.worlds.shapes import SHAPES

LOOK = Appearance()
STATE = np.array([120.0, 100, 330, 300, 0.6, 0, 0, 0, 0, 0])
GOAL = np.array([400.0, 400, 150, 320, -1.2, 0, 0, 0, 0, 0])


def has(frame: np.ndarray, colour: tuple[int, int, int]) -> int:
    """How many pixels have exactly this colour."""
    return int((frame == np.array(colour, dtype=np.uint8)).all(axis=-1).sum())


def pixel(frame: np.ndarray, x: float, y: float) -> tuple[int, ...]:
    size = frame.shape[0]
    return tuple(frame[int(y / 512 * size), int(x / 512 * size)].tolist())


@pytest.mark.parametrize("shape", SHAPES)
def test_every_colour_is_where_it_belongs(shape):
    world = PushWorld(shape)
    frame = world.render(STATE, 128, goal=GOAL)
    assert frame.shape == (128, 128, 3)
    assert frame.dtype == np.uint8
    assert pixel(frame, *STATE[:2]) == LOOK.pusher
    for part in world.block_vertices(STATE):
        assert pixel(frame, *part.mean(axis=0)) == LOOK.block
    for part in world.block_vertices(GOAL):
        assert pixel(frame, *part.mean(axis=0)) == LOOK.goal
    assert pixel(frame, 20, 490) == LOOK.background
    assert has(frame, LOOK.walls) > 0


def test_the_block_covers_its_area():
    for name, shape in SHAPES.items():
        frame = PushWorld(name).render(STATE, 512)
        spans = np.ptp(shape.vertices, axis=1)
        area = spans.prod(axis=-1).sum()
        border = 2 * spans.sum()
        assert abs(has(frame, LOOK.block) - area) < border  # edge pixels are mixtures


def test_the_pusher_lies_over_the_block_and_the_block_over_the_goal():
    world = PushWorld("square")
    on_top = STATE.copy()
    on_top[:2] = on_top[2:4]
    frame = world.render(on_top, 128, goal=on_top)
    assert pixel(frame, *on_top[:2]) == LOOK.pusher
    assert has(frame, LOOK.block) > 0
    assert has(frame, LOOK.goal) == 0


def test_marker_modes():
    world = PushWorld()
    plain = world.render(STATE, 96)
    assert has(plain, LOOK.goal) == 0

    def drawn(marker, goal=None):
        return world.render(STATE, 96, goal=goal, appearance=Appearance(marker=marker))

    assert (drawn("none", GOAL) == plain).all()
    assert (drawn("goal") == plain).all()
    assert has(drawn("goal", GOAL), LOOK.goal) > 50
    far = -100.0  # the decoration has no pusher
    fixed = np.array([far, far, 256, 256, np.pi / 4, 0, 0, 0, 0, 0])
    assert (drawn("fixed", GOAL) == drawn("goal", fixed)).all()
    assert (drawn("fixed") == drawn("fixed", GOAL)).all()
    assert (drawn("fixed") != drawn("goal", GOAL)).any()


def test_colours_of_ones_own():
    look = Appearance((1, 2, 3), (200, 0, 0), (0, 200, 0), (10, 20, 30), walls=None)
    frame = PushWorld().render(STATE, 96, goal=GOAL, appearance=look)
    for colour in (look.block, look.pusher, look.goal, look.background):
        assert has(frame, colour) > 10
    assert (frame[0] == look.background).all()  # no walls


def test_leading_axes_are_kept():
    world, rng = PushWorld("L"), np.random.default_rng(0)
    states, goals = STATE + rng.uniform(-90, 90, (2, 3, 4, 10))
    frames = world.render(states, 40, goal=goals)
    assert frames.shape == (3, 4, 40, 40, 3)
    for index in np.ndindex(3, 4):
        assert (frames[index] == world.render(states[index], 40, goal=goals[index])).all()
    shared = world.render(states, 40, goal=GOAL)
    assert (shared[1, 2] == world.render(states[1, 2], 40, goal=GOAL)).all()
    assert world.render(states[:0], 40).shape == (0, 4, 40, 40, 3)
    assert world.render(STATE).shape == (112, 112, 3)


def test_inputs_are_left_alone():
    states, goal = np.stack([STATE, GOAL]), GOAL.copy()
    PushWorld().render(states, 32, goal=goal)
    assert (states == np.stack([STATE, GOAL])).all()
    assert (goal == GOAL).all()


@pytest.mark.parametrize("marker", ["goal", "fixed", "none"])
def test_tensors_give_the_pixels_of_arrays(marker):
    rng = np.random.default_rng(1)
    states, look = STATE + rng.uniform(-90, 90, (5, 10)), Appearance(marker=marker)
    world = PushWorld("Z")
    want = world.render(states, 64, goal=GOAL, appearance=look)
    tensors = torch.from_numpy(states), torch.from_numpy(GOAL)
    drawn = draw_push(world.shape, tensors[0], 64, tensors[1], look)
    assert drawn.dtype == torch.uint8
    assert (drawn.numpy() == want).all()
    assert (world.render(tensors[0], 64, goal=tensors[1], appearance=look) == want).all()
    single = draw_push(world.shape, tensors[0].float(), 64, tensors[1].float(), look)
    assert np.abs(single.numpy().astype(int) - want.astype(int)).max() <= 1  # rounding only


@given(state=arrays(np.float64, 10, elements=st.floats(-2000, 2000)))
@settings(max_examples=30, deadline=None)
def test_anything_may_lie_off_the_canvas(state):
    frame = PushWorld("+").render(state, 32)
    assert frame.shape == (32, 32, 3)


def test_a_pusher_off_the_canvas_is_not_seen():
    world, away = PushWorld(), STATE.copy()
    away[:2] = (-300.0, 900.0)
    assert has(world.render(STATE, 64), LOOK.pusher) > 0
    frame = world.render(away, 64)
    assert has(frame, LOOK.pusher) == 0
    assert has(frame, LOOK.block) > 0
    away[:2] = (-10.0, 256.0)  # partly
    assert (world.render(away, 64)[32, 0] != frame[32, 0]).any()


def test_turning_by_the_symmetry_changes_no_pixel_by_more_than_rounding():
    world = PushWorld("Z")
    centre = world.block_centre(STATE)
    turned = STATE.copy()
    turned[4] += np.pi
    turned[2:4] += centre - world.block_centre(turned)
    a, b = world.render(np.stack([STATE, turned]), 128).astype(int)
    assert np.abs(a - b).max() <= 1


def test_states_that_are_not_finite_are_refused():
    with pytest.raises(DjepaError, match="not finite"):
        PushWorld().render(np.full(10, np.nan))
