"""The arm world: exact restore, rules by hand, cameras, starts."""

from functools import partial

import numpy as np
import pytest

from cameras import needs_camera
from djepa.errors import DjepaError
from djepa.seeds import generator
from djepa.tasks.task import get_task
from djepa.testing import check_world

pytest.importorskip("mujoco", reason="extra arms")

from djepa.worlds.arms.kinematics import OPENING
from djepa.worlds.arms.rules import withdraw
from djepa.worlds.arms.scene import CUBE, THICK
from djepa.worlds.arms.starts import AXES, draw_start, tool
from djepa.worlds.arms.table import (
    HIGH,
    LOW,
    STEP,
    TASKS,
    ArmWorld,
    at_rest,
    poses,
    put,
    to_moves,
)

TALL = {"push": THICK / 2, "stack": CUBE / 2}


def resting(world: ArmWorld, x: float, y: float, yaw: float = 0.0) -> np.ndarray:
    state = at_rest(world, [0.3, 0.0, 0.1], OPENING)
    put(state, 0, (x, y, TALL[world.task]), yaw)
    return state


@pytest.mark.parametrize("task", TASKS)
def test_the_world_keeps_its_promises_bit_for_bit(task: str) -> None:
    needs_camera()
    world = ArmWorld(task)
    states = [resting(world, 0.34, 0.1), resting(world, 0.4, 0.15, 0.5)]
    factory = partial(ArmWorld, task)
    assert "execute equals step by step" in check_world(world, states, factory=factory)


def test_a_tee_is_judged_by_place_and_turn() -> None:
    world = ArmWorld("push")
    goal = resting(world, 0.34, 0.1, 0.2)
    for dx, turn, cost in ((0.0, 0.0, 0.0), (0.01, 0.0, 0.5), (0.0, 15.0, 1.0), (0.03, 15.0, 1.5)):
        success, found = world.judge(goal, resting(world, 0.34 + dx, 0.1, 0.2 + np.deg2rad(turn)))
        assert found == pytest.approx(cost)
        assert success == (cost < 1 - 1e-9)


def test_a_cube_counts_if_it_stays_once_the_gripper_is_gone() -> None:
    world = ArmWorld("stack")
    goal = at_rest(world, [0.34, 0.0, 0.12], OPENING)
    put(goal, 1, (0.34, 0.0, CUBE / 2), 0.0)
    put(goal, 0, (0.34, 0.0, 1.5 * CUBE), 0.0)

    def stands(x: float, z: float) -> bool:
        state = goal.copy()
        put(state, 0, (x, 0.0, z), 0.0)
        return bool(world.judge(goal, state)[0])

    assert stands(0.34, 1.5 * CUBE)
    assert stands(0.352, 1.5 * CUBE)
    assert not stands(0.34 + 0.025, 1.5 * CUBE)  # it tips over the edge
    assert not stands(0.34 + 0.03, CUBE / 2)  # beside it
    assert not stands(0.5, 1.5 * CUBE)


def test_lifting_alone_is_no_success() -> None:
    world, rng = ArmWorld("stack"), generator("test-lifting")
    while isinstance(drawn := draw_start(world, "expert", rng, 5), str):
        pass
    start, centres = drawn
    assert start.state[10] > CUBE  # in the hand
    lifted = world.execute(start.state, np.tile([0, 0, 0.4, 0.0], (1, 2, 1)))[0, -1]
    assert lifted[10] > start.state[10]
    assert not world.judge(start.goal, lifted)[0]
    done = world.execute(start.state, centres[:1].astype(float))[0, -1]
    assert world.judge(start.goal, done)[0]
    away = withdraw(world, done[None])[0]
    assert tool(away)[2] > tool(done)[2] + 0.08
    assert away[10] == pytest.approx(1.5 * CUBE, abs=2e-3)


def test_controls_move_the_tool_as_far_as_they_say_and_no_further() -> None:
    world = ArmWorld("stack")
    state = at_rest(world, [0.34, 0.0, 0.1], OPENING)
    before = tool(state)
    path = world.execute(state, np.array([[[0.5, -0.5, 0.2, 0.0], [0.0, 0.0, 0.0, 0.0]]]))[0]
    np.testing.assert_allclose(
        tool(path[-1]) - before, STEP * np.array([0.5, -0.5, 0.2]), atol=2e-3
    )
    ends = world.execute(state, np.array([[[1.0, 1.0, -1.0, 0.0]] * 9]))[0, -1]
    assert (tool(ends) < HIGH + 5e-3).all()
    assert (tool(ends) > LOW - 5e-3).all()
    closed = world.execute(state, np.array([[[0.0, 0.0, 0.0, 1.0]] * 3]))[0]
    assert poses(closed)[:, 6] == pytest.approx([0.0, 0.75, 1.0, 1.0], abs=0.05)
    np.testing.assert_array_equal(to_moves(np.array([0, 0, 0, 0.2])), np.zeros(7))
    with pytest.raises(DjepaError, match="-1, 1"):
        world.step([2.0, 0, 0, 0])


@pytest.mark.parametrize("task", TASKS)
def test_starts_repeat_and_their_goals_are_in_reach(task: str) -> None:
    world = ArmWorld(task)
    drawn = [draw_start(world, "expert", generator("test-arm", task), 5) for _ in range(2)]
    assert not isinstance(drawn[0], str)
    assert not isinstance(drawn[1], str)
    (start, centres), (again, _) = drawn
    np.testing.assert_array_equal(start.goal, again.goal)
    assert (start.context.shape, start.history.shape) == ((3, world.state_size), (2, 4))
    assert not world.judge(start.goal, start.state)[0]
    ends = world.execute(start.state, centres.astype(float))[:, -1]
    np.testing.assert_array_equal(ends[0], start.goal)
    assert len(AXES[task]) == 4


def test_a_sketch_says_where_things_are() -> None:
    for task in TASKS:
        world = ArmWorld(task)
        state = resting(world, 0.39, 0.05)
        drawn = get_task("arm").sketch(world).draw(state[None], np.zeros((0, 4)))[0]
        upper = drawn[:2] if task == "push" else drawn[3:5]
        assert upper.tolist() == [250, 250]  # 5 cm to the left of the middle, 5 cm further away
        assert drawn[-2:].tolist() == [300, 340]  # the tool: 4 cm nearer to the arm


@pytest.mark.parametrize("camera", ["front", "top"])
def test_the_projection_says_where_a_frame_shows_a_thing(camera: str) -> None:
    needs_camera()
    from djepa.worlds.arms.camera import projection

    world, place = ArmWorld("stack"), np.array([0.36, -0.1, CUBE / 2])
    state = resting(world, 0.1, 0.4)  # the red cube aside, the blue one here
    put(state, 1, tuple(place), 0.0)
    red, _, blue = np.moveaxis(world.render(state, 200, camera=camera).astype(int), -1, 0)
    rows, columns = np.nonzero(blue > red + 60)
    seen = projection(camera, 200) @ [*place, 1.0]
    assert seen[:2] / seen[2] == pytest.approx([columns.mean(), rows.mean()], abs=3)


def test_an_unknown_task_or_camera_is_named() -> None:
    with pytest.raises(DjepaError, match="task of the arm"):
        ArmWorld("juggle")
    with pytest.raises(DjepaError, match="camera"):
        ArmWorld("push").render(np.zeros((0, 36)), camera="behind")


def test_without_opengl_the_error_says_what_still_works(monkeypatch: pytest.MonkeyPatch) -> None:
    from djepa.worlds import gl

    monkeypatch.setattr(gl, "LIBRARIES", ("no_such_library",))
    with pytest.raises(DjepaError, match=r"libegl1.*Physics, pools and outcomes need no images"):
        gl.open_gl.__wrapped__(0)
