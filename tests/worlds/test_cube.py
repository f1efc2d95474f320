import pickle
import sys
import warnings

import numpy as np
import pytest
import torch

pytest.importorskip("mujoco", reason="the extra 'cube' is not installed")
pytest.importorskip("ogbench", reason="the extra 'cube' is not installed")

from djepa.errors import DjepaError, MissingExtraError
from djepa.seeds import generator
from djepa.testing import PROMISES, check_world
from djepa.worlds import cube_ogbench
from djepa.worlds.behaviours import drive
from djepa.worlds.cube import CUBE, PINCH, TOLERANCE, VELOCITIES, CubeWorld
from djepa.worlds.cube_behaviours import BEHAVIOURS, Explorer, get_behaviour, holds
from djepa.worlds.cube_draw import RED, draw_cube, project
from djepa.worlds.cube_starts import DROPS, draw_start, initial_state
from djepa.worlds.starts import HISTORY, replays


@pytest.fixture(scope="module")
def carried() -> tuple[np.ndarray, np.ndarray]:
    """States (61, 73) and controls (60, 5) of a cube that is taken and carried."""
    world = CubeWorld()
    world.reset(3)
    return drive(world, get_behaviour("carry", world, generator("cube-carried")), 60)


def test_it_keeps_every_promise(carried):
    states, _ = carried
    held = [i for i, state in enumerate(states) if holds(state)]
    some = states[[0, held[5]]]  # far away, carried
    world = CubeWorld()
    assert (world.name, world.version, world.rule) == ("cube", 1, "cube.v1")
    assert check_world(world, some, factory=CubeWorld) == PROMISES


def test_it_is_the_environment_itself_to_the_last_bit(carried):
    """OGBench's own `step`, never restored, against a world that is restored before every step."""
    with warnings.catch_warnings(action="ignore"):  # it looks for a display
        from ogbench.manipspace.envs.cube_env import CubeEnv
    env = CubeEnv("single", mode="data_collection", terminate_at_goal=False)
    env.reset(seed=3)
    world, other, (states, controls) = CubeWorld(), CubeWorld(), carried
    env.data.mocap_pos[0] = states[-1, CUBE]
    for i, control in enumerate(controls):
        _, reward, *_ = env.step(control.astype(np.float64))
        other.step(np.zeros(5))  # whatever ran in between
        world.restore(states[i])
        state = world.step(control)
        live = np.concatenate([env.data.qpos, env.data.qvel])
        assert state[: VELOCITIES.stop].tobytes() == live.tobytes()
        assert state.tobytes() == states[i + 1].tobytes()
        success, cost = world.judge(states[-1], state)
        assert success == bool(reward)  # its own rule
        assert cost == pytest.approx(
            np.linalg.norm(live[14:17] - states[-1, CUBE]) / TOLERANCE, rel=1e-12
        )


def test_resets_do_not_remember(carried):
    world = CubeWorld()
    assert world.reset(3).tobytes() == carried[0][0].tobytes()
    world.step(np.ones(5))
    assert world.reset(3).tobytes() == carried[0][0].tobytes()
    assert CubeWorld().snapshot().tobytes() == CubeWorld().reset(0).tobytes()


def test_a_copy_goes_on_where_it_was(carried):
    world = CubeWorld()
    world.restore(carried[0][30])
    copy = pickle.loads(pickle.dumps(world))
    assert copy.step(carried[1][30]).tobytes() == carried[0][31].tobytes()


def test_what_behaviours_do(carried):
    states, _ = carried
    assert any(holds(state) for state in states)
    assert states[:, CUBE][:, 2].max() > 0.06  # it was lifted
    world = CubeWorld()
    world.reset(3)
    pushed, _ = drive(world, get_behaviour("nudge", world, generator("cube-nudged")), 60)
    moved = np.linalg.norm(pushed[-1, CUBE] - pushed[0, CUBE])
    assert moved > TOLERANCE
    assert pushed[:, CUBE][:, 2].max() < 0.06  # it stayed on the table
    for maker in (*BEHAVIOURS.values(), Explorer):
        control = maker(world, generator("cube-control")).act(states[0])
        assert control.shape == (5,)
        assert np.array_equal(control, control.astype(np.float32))
        assert np.abs(control).max() <= 1


def test_starts_move_the_cube_and_replay():
    world, kept = CubeWorld(), 0
    for i, behaviour in enumerate(("carry", "nudge", "carry", "nudge")):
        drawn = draw_start(world, behaviour, generator("cube-start", i), 25, centres=2)
        if isinstance(drawn, str):
            assert drawn in DROPS
            continue
        kept += 1
        start, centres = drawn
        assert centres.shape == (2, 25, 5)
        assert replays(world, start, centres[0])
        assert not world.judge(start.goal, start.state)[0]
        assert start.history.shape == (HISTORY, 5)
        path = world.execute(start.context[0], start.history[None])[0]
        assert np.array_equal(path[::5], start.context)
    assert kept >= 2
    assert initial_state(world, generator("a")).tobytes() != world.snapshot()[:1].tobytes()


def test_frames_show_cube_and_fingers_where_mujocos_camera_sees_them(carried):
    """The projection against MuJoCo's own camera; the cube's colour around its centre."""
    states, (_, env) = carried[0], cube_ogbench.load_env()
    camera = env.model.camera("front_pixels").id
    turn, eye = env.data.cam_xmat[camera].reshape(3, 3), env.data.cam_xpos[camera]
    points = states[::6, CUBE]
    local = (points - eye) @ turn
    width = 2 * np.tan(np.deg2rad(env.model.cam_fovy[camera] / 2))
    wanted = 0.5 + local[:, :2] * [1, -1] / (-local[:, 2:] * width)
    found, depth = project(torch.from_numpy(points))
    assert np.abs(found.numpy() - wanted).max() < 1e-6
    assert np.abs(depth.numpy() + local[:, 2]).max() < 1e-6
    frames = CubeWorld().render(states[:1], 224)
    column, row = (224 * project(torch.from_numpy(states[:1, CUBE]))[0][0]).long().tolist()
    pixel = frames[0, row, column].astype(float)
    assert np.abs(pixel / pixel[0] - np.array(RED) / RED[0]).max() < 0.03  # a shade of red
    assert frames.dtype == np.uint8


def test_a_goal_lies_beneath_and_batches_change_nothing(carried):
    states = torch.from_numpy(carried[0][::10])
    plain, marked = draw_cube(states, 96), draw_cube(states, 96, states[-1:])
    assert (plain != marked).any()
    column, row = (96 * project(states[-1, CUBE])[0]).long().tolist()
    assert (plain[0, row, column] != marked[0, row, column]).any()  # where the goal's cube is
    for i in range(len(states)):
        assert torch.equal(draw_cube(states[i : i + 1], 96)[0], plain[i])


def test_bad_input_is_refused_and_changes_nothing(tmp_path, monkeypatch):
    world = CubeWorld()
    before = world.snapshot()
    for bad in (np.nan, np.inf, 1.0000001):
        with pytest.raises(DjepaError, match=r"must lie in \[-1, 1\]"):
            world.step([0.0, 0.0, 0.0, 0.0, bad])
    with pytest.raises(DjepaError, match="must have shape"):
        world.execute(before, np.zeros((1, 3, 2)))
    with pytest.raises(DjepaError, match="73 numbers"):
        world.restore(np.zeros(10))
    with pytest.raises(DjepaError, match="must be finite"):
        world.restore([np.nan] * 73)
    with pytest.raises(DjepaError, match="73 finite numbers"):
        world.judge(np.zeros(3), before)
    with pytest.raises(DjepaError, match=r"Unknown success rule 'cube\.v2'"):
        CubeWorld("cube.v2")
    assert world.snapshot().tobytes() == before.tobytes()
    monkeypatch.chdir(tmp_path)  # MuJoCo writes a log of what it finds unstable
    wild = before.copy()
    wild[VELOCITIES] = 1e8
    with pytest.raises(DjepaError, match="came apart"):
        world.execute(wild, np.zeros((1, 5, 5)))
    assert np.isfinite(world.step(np.zeros(5))).all()
    assert world.snapshot()[PINCH].shape == (3,)


def test_a_missing_extra_is_named(monkeypatch):
    cube_ogbench.load_env.cache_clear()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "ogbench.manipspace.envs.cube_env", None)
        with pytest.raises(MissingExtraError, match=r"djepa\[cube\]"):
            CubeWorld()
    assert CubeWorld().step(np.zeros(5)).shape == (73,)
