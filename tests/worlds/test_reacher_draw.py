"""Frames of the reacher world need torch alone: no physics, no OpenGL."""

import numpy as np
import pytest
import torch

from djepa.errors import DjepaError
from djepa.worlds.checks import as_states, draw_states
from djepa.worlds.reacher import joints
from djepa.worlds.reacher_draw import CANVAS, ArmAppearance, draw_reacher

LOOK = ArmAppearance()
DARK = ArmAppearance(
    arm=(179, 128, 77),
    hand=(179, 128, 76),
    finger=(179, 102, 51),
    root=(77, 128, 179),
    goal=(153, 77, 77),
    background=(38, 64, 89),
)
STATE = np.array([0.6, 1.1, 0.0, 0.0])
GOAL = np.array([-2.0, -0.7, 0.0, 0.0])


def draw(states, size: int = 128, goal=None, appearance=None) -> np.ndarray:
    return draw_states(
        lambda flat, marks: draw_reacher(flat, size, marks, appearance), as_states(4, states), goal
    )


def pixel(frame: np.ndarray, x: float, y: float) -> tuple[int, ...]:
    """The colour at a place in metres, the shoulder at 0, 0 and y up."""
    scale = len(frame) / CANVAS
    return tuple(frame[int((CANVAS / 2 - y) * scale), int((CANVAS / 2 + x) * scale)].tolist())


def has(frame: np.ndarray, colour: tuple[int, int, int]) -> int:
    return int((frame == np.array(colour, dtype=np.uint8)).all(axis=-1).sum())


@pytest.mark.parametrize("look", [LOOK, DARK], ids=["house", "dark"])
@pytest.mark.parametrize("size", [112, 224, 300])
def test_every_colour_is_where_it_belongs(size, look):
    for state, goal in ((STATE, GOAL), (GOAL, STATE)):
        frame = draw(state, size, goal, look)
        assert frame.shape == (size, size, 3)
        assert frame.dtype == np.uint8
        wrist, finger = joints(state)
        assert pixel(frame, 0, 0) == look.root
        assert pixel(frame, *wrist / 2) == look.arm
        assert pixel(frame, *wrist) == look.arm
        assert pixel(frame, *(0.6 * wrist + 0.4 * finger)) == look.hand
        assert pixel(frame, *finger) == look.finger
        wrist, finger = joints(goal)
        for place in (wrist / 2, (wrist + finger) / 2, finger):
            assert pixel(frame, *place) == look.goal
        assert pixel(frame, 0.28, -0.28) == look.background


def test_the_links_cover_their_area():
    frame, scale = draw(STATE, 512), 512 / CANVAS
    drawn = (255.0 - frame[10:-10, 10:-10]).sum(axis=(0, 1)) / (255.0 - np.array(LOOK.hand))
    want = (0.12 + 0.1) * 0.02 * scale**2
    assert 0.6 * want < drawn.mean() < 1.2 * want  # the arm is lighter than the hand


def test_the_arm_lies_over_its_goal():
    assert has(draw(STATE, 96, STATE), LOOK.goal) == 0
    assert has(draw(STATE, 96, GOAL), LOOK.goal) > 20
    assert has(draw(STATE, 96), LOOK.goal) == 0


def test_a_whole_turn_of_the_shoulder_looks_the_same():
    a, b = draw([STATE, STATE + np.array([2 * np.pi, 0, 3, 3])]).astype(int)
    assert np.abs(a - b).max() <= 1
    for other in ([0.06, 0, 0, 0], [0, 0.06, 0, 0]):  # more than the tolerance can be seen
        assert np.abs(draw(STATE + other, 112).astype(int) - draw(STATE, 112)).max() > 30


def test_mirrored_states_give_mirrored_frames():
    up, down = draw([STATE, -STATE]).astype(int)
    assert np.abs(up[::-1] - down).max() <= 1


def test_leading_axes_and_batches_change_no_pixel():
    rng = np.random.default_rng(0)
    states, goals = rng.uniform(-3, 3, (2, 3, 4, 4))
    many = draw(states, 40, goals)
    assert many.shape == (3, 4, 40, 40, 3)
    for index in np.ndindex(3, 4):
        assert (many[index] == draw(states[index], 40, goals[index])).all()
    shared = draw(states, 40, GOAL)
    assert (shared[1, 2] == draw(states[1, 2], 40, GOAL)).all()
    assert draw(states[:0], 40).shape == (0, 4, 40, 40, 3)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_tensors_give_the_pixels_of_arrays(device):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU here")
    states = np.random.default_rng(1).uniform(-3, 3, (5, 4))
    want = draw(states, 64, GOAL)
    for dtype in (torch.float64, torch.float32):
        tensors = (torch.from_numpy(x).to(device, dtype) for x in (states, GOAL))
        drawn = draw_reacher(next(tensors), 64, next(tensors))
        assert drawn.dtype == torch.uint8
        assert drawn.device.type == device
        assert np.abs(drawn.cpu().numpy().astype(int) - want).max() <= 1


def test_bad_input_is_refused():
    with pytest.raises(DjepaError, match="not finite"):
        draw(np.full(4, np.nan))
    with pytest.raises(DjepaError, match="goal must be"):
        draw(STATE, 32, np.zeros(3))


def test_the_world_draws_the_same():
    pytest.importorskip("mujoco", reason="the extra 'mujoco' is not installed")
    from djepa.worlds.reacher import ReacherWorld

    world = ReacherWorld()
    assert (world.render(STATE, 96, goal=GOAL) == draw(STATE, 96, GOAL)).all()
    with pytest.raises(DjepaError, match="4 numbers"):
        world.render(np.zeros(10))
