"""Execution, geometry and generated traffic."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from traffic_scenes import TIMES, road, straight

from djepa.errors import DjepaError
from djepa.pools.driving import COUNT, fit_vocabulary, motions_in, propose
from djepa.seeds import generator
from djepa.worlds.traffic.execute import dense, execute, profiles
from djepa.worlds.traffic.generate import SPLITS, make_log, scenes
from djepa.worlds.traffic.judge import Judge
from djepa.worlds.traffic.plane import (
    along_line,
    boxes_meet,
    corners,
    inside,
    project,
    to_frame,
    to_world,
)
from djepa.worlds.traffic.recording import Recording, cut, egos
from djepa.worlds.traffic.roads import FAMILIES
from djepa.worlds.traffic.scene import STEER, WHEEL_BASE, H, Kind, V, X, Y

numbers = st.floats(-20, 20, allow_nan=False)


def test_constant_speed_is_followed_exactly() -> None:
    states = execute(np.array([1.0, 2.0, 0.5, 10.0, 0.0, 0.0]), straight(10))
    end = to_world(np.array([1.0, 2.0, 0.5]), np.array([40.0, 0.0, 0.0]))
    np.testing.assert_allclose(states[0, -1, :3], end, atol=1e-9)
    np.testing.assert_allclose(states[0, :, V], 10.0)


def test_one_step_of_controller_and_car_by_hand() -> None:
    # Wanted: 1 s at 12 m/s from 10 m/s. a = -(1·10·(10 - 12)) / (1²·10 + 1) = 20/11, then the lag.
    ego = np.array([0.0, 0.0, 0.0, 10.0, 0.0, 0.0])
    states = execute(ego, straight(12))
    accel = 20 / 11 * 0.1 / 0.3
    assert states[0, 1, 4] == pytest.approx(accel, abs=1e-6)
    assert states[0, 1, V] == pytest.approx(10 + 0.1 * accel, abs=1e-6)
    assert states[0, 1, X] == pytest.approx(1.0)  # with the old speed


def test_a_circle_is_driven_with_the_steering_of_its_radius() -> None:
    s = 8.0 * TIMES
    arc = np.stack([40 * np.sin(s / 40), 40 * (1 - np.cos(s / 40)), s / 40], -1)[None]
    speed, curvature = profiles(dense(arc))
    assert speed.mean() == pytest.approx(8.0, rel=0.01)
    assert curvature[0, 5:-5].mean() == pytest.approx(1 / 40, rel=0.02)
    steer = np.arctan(WHEEL_BASE / 40)
    states = execute(np.array([0.0, 0.0, 0.0, 8.0, 0.0, steer]), arc)
    np.testing.assert_allclose(states[0, :, STEER], steer, rtol=0.05)
    assert np.hypot(states[0, -1, X], states[0, -1, Y] - 40) == pytest.approx(40, abs=0.1)


def test_who_is_to_stand_stands() -> None:
    states = execute(road(speed=0.0).ego, straight(0))
    np.testing.assert_array_equal(states[0, -1], states[0, 0])
    assert not states[0, :, H].any()


@given(st.tuples(*[numbers] * 3), st.tuples(*[numbers] * 3))
def test_frames_there_and_back(a: tuple[float, ...], b: tuple[float, ...]) -> None:
    there = to_world(np.array(a), np.array(b))
    back = to_frame(np.array(a), there)
    np.testing.assert_allclose(back[:2], b[:2], atol=1e-9)
    assert np.cos(back[2] - b[2]) == pytest.approx(1)


def test_boxes_and_polygons_agree_with_an_independent_library() -> None:
    shapely = pytest.importorskip("shapely")
    rng = np.random.default_rng(0)
    a, b = (
        corners(
            rng.uniform(-4, 4, (1000, 2)), rng.uniform(-4, 4, 1000), rng.uniform(0.5, 6, (1000, 2))
        )
        for _ in range(2)
    )
    wanted = shapely.intersects(shapely.polygons(a), shapely.polygons(b))
    np.testing.assert_array_equal(boxes_meet(a, b), wanted)
    assert 200 < wanted.sum() < 900
    turn = np.sort(rng.uniform(0, 2 * np.pi, 30))
    star = np.stack([np.cos(turn), np.sin(turn)], 1) * rng.uniform(1, 5, (30, 1))
    points = rng.uniform(-5, 5, (2000, 2))
    wanted = shapely.contains_xy(shapely.Polygon(star), points)
    np.testing.assert_array_equal(inside(points, star), wanted)


@given(st.floats(1, 29), st.floats(-1, 1))
def test_a_point_beside_a_line_is_found_again(s: float, offset: float) -> None:
    line = np.array([[0.0, 0.0], [30.0, 0.0]])
    along, aside = project(along_line(line, np.array(s), offset)[:2], line)
    assert along == pytest.approx(s)
    assert aside == pytest.approx(offset)


@pytest.fixture(scope="module")
def logs() -> list[Recording]:
    return [make_log("fit", i, seed=1) for i in range(len(FAMILIES))]


def test_generated_traffic_moves_as_traffic_does(logs: list[Recording]) -> None:
    for log in logs:
        cars = log.state[log.clean]
        moved = np.hypot(*np.moveaxis(np.diff(cars[..., :2], axis=1), -1, 0)) / 0.1
        assert np.nanmax(np.abs(moved - cars[:, :-1, 3])) < 1.5, log.log  # 1.2 m/s aside
        change = np.diff(cars[..., 3], axis=1) / 0.1
        assert -6.01 < np.nanmin(change) < np.nanmax(change) < 2.5, log.log
        boxes = corners(cars[..., :2], cars[..., 2], log.size[log.clean][:, None])
        for i in range(1, len(cars)):
            both = np.isfinite(cars[i, :, 0]) & np.isfinite(cars[:i, :, 0])
            assert not (boxes_meet(boxes[i][None], boxes[:i]) & both).any(), log.log
    kinds = {Kind(k) for log in logs for k in log.kind}
    assert {Kind.VEHICLE, Kind.PEDESTRIAN, Kind.STATIC} <= kinds
    assert any(log.red is not None and log.red.any() for log in logs)


def test_a_log_depends_on_its_names_alone(logs: list[Recording]) -> None:
    again = make_log("fit", 3, seed=1)
    np.testing.assert_array_equal(again.state, logs[3].state)
    layouts = [make_log(split, 3, seed=1).lanes[0].polygon for split in SPLITS]
    assert len({polygon.tobytes() for polygon in layouts}) == len(SPLITS)
    with pytest.raises(DjepaError, match="split"):
        make_log("test", 0)


def test_the_ego_is_out_of_the_traffic_and_drives_well(logs: list[Recording]) -> None:
    values = []
    for log in logs:
        row = egos(log, 40)[0]
        scene = cut(log, row, 40)
        gap = np.hypot(*(scene.future[:, 0, :2] - log.state[row, 40, :2]).T)
        assert np.nanmin(gap, initial=np.inf) > 1
        assert scene.driven is not None
        np.testing.assert_array_equal(scene.past[:, -1], scene.future[:, 0])
        values.append(Judge(scene)(scene.driven[None]).pdms[0])
    assert np.mean(values) > 0.9


def test_proposals_match_the_start_speed_and_differ(logs: list[Recording]) -> None:
    vocabulary = fit_vocabulary(logs, generator("test"), entries=200)
    known = np.concatenate([motions_in(log)[0] for log in logs])
    assert all((known == motion).all((1, 2)).any() for motion in vocabulary.motions[:20])
    scene = next(scenes("calibration", 1, 1))
    got = propose(vocabulary, scene)
    assert got.shape == (COUNT, 8, 3)
    np.testing.assert_array_equal(got, propose(vocabulary, scene))
    assert len(np.unique(got.round(3), axis=0)) == COUNT
    # The last braking entries of each way end where v² / 2a says.
    far = np.hypot(*got[24:28, -1, :2].T)
    v = scene.ego[3]
    rates = np.array([1.0, 2.0, 3.0, 4.5])
    t = np.minimum(4.0, v / rates)
    assert (far <= v * t - rates * t**2 / 2 + 0.05).all()
    pdms = Judge(scene)(got).pdms
    assert pdms.max() > 0.8 > pdms.min()


def test_too_little_traffic_makes_no_vocabulary(logs: list[Recording]) -> None:
    with pytest.raises(DjepaError, match="too few"):
        fit_vocabulary([], generator("test"))


def test_the_example_of_the_driving_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).parents[2] / "docs/driving.md"
    code = re.search(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert code
    exec(code.group(1).replace("range(7)", "range(2)").replace("logs=2", "logs=1"), {})
    assert capsys.readouterr().out.count("calibration-0/straight-00000") == 2
