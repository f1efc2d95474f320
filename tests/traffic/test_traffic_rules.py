"""Forecasts by the rules of the road: worked out by hand, and what must always hold."""

from dataclasses import replace

import numpy as np
import pytest
from traffic_scenes import CAR, WIDE, moving, road

from djepa.worlds.traffic.forecast import lanes, straight
from djepa.worlds.traffic.generate import scenes
from djepa.worlds.traffic.lanes import lane_between, ribbon
from djepa.worlds.traffic.plane import Array
from djepa.worlds.traffic.rules import by_rules
from djepa.worlds.traffic.scene import AHEAD, BEHIND, DT, H, Kind, Lane, Scene, V
from djepa.worlds.traffic.ways import BEFORE, LATERAL, Ways, route_way, ways_of

MIDDLE = WIDE / 2


def seen(scene: Scene) -> Scene:
    """The scene with a past that leads to its present at constant velocity."""
    now = scene.future[:, :1]
    back = DT * (np.arange(BEHIND + 1) - BEHIND)
    past = np.repeat(now, BEHIND + 1, 1)
    way = np.stack([np.cos(now[..., H]), np.sin(now[..., H])], -1) * now[..., V, None]
    past[..., :2] += back[:, None] * way
    return replace(scene, past=past)


def rules(scene: Scene, samples: int = 6) -> Array:
    return by_rules(scene, straight(scene).future, samples)


def strip(*points: tuple[float, float]) -> Array:
    return np.array(points)


def crossroads(*tracks: Array) -> Scene:
    """Two one-way roads that cross at the origin; stop lines 6 m before it. The ego comes from -x.

    Rows: 0 to the junction, 1 through it, 2 behind it, along x; 3, 4, 5 likewise along y.
    """
    pieces = [strip((-100, 0), (-6, 0)), strip((-6, 0), (6, 0)), strip((6, 0), (100, 0))]
    pieces += [piece[:, ::-1] for piece in pieces]
    following = ((1,), (2,), (), (4,), (5,), ())
    known = tuple(
        lane_between(*ribbon(piece, WIDE), following[i], (), i % 3 == 1, 10.0)
        for i, piece in enumerate(pieces)
    )
    T = len(tracks)
    return seen(
        Scene(
            name="crossroads",
            log="log",
            lanes=known,
            drivable=tuple(one.polygon for one in known),
            route=(0, 1, 2),
            path=np.array([[-100.0, 0.0], [300.0, 0.0]]),
            ego=np.array([-45.0, 0.0, 0.0, 8.0, 0.0, 0.0]),
            past=np.full((T, BEHIND + 1, 4), np.nan),
            future=np.array(tracks).reshape(T, AHEAD + 1, 4),
            size=np.tile(CAR, (T, 1)),
            kind=np.full(T, Kind.VEHICLE),
        )
    )


def test_a_car_alone_keeps_the_speed_that_it_seems_to_want() -> None:
    future = rules(seen(road((moving(30.0, MIDDLE, 0.0, 9.0), Kind.VEHICLE), y=MIDDLE + WIDE)))
    np.testing.assert_allclose(future[:, 0, :, 0], 30 + 9 * DT * np.tile(range(51), (6, 1)), atol=1)
    np.testing.assert_allclose(future[:, 0, :, 1], MIDDLE, atol=1e-6)


def test_a_car_stops_behind_one_that_stands_and_before_people_on_its_way() -> None:
    standing = (moving(70.0, MIDDLE), Kind.VEHICLE)
    walking = (moving(70.0, MIDDLE + 4.0, -np.pi / 2, 0.9), Kind.PEDESTRIAN)
    for ahead in (standing, walking):
        scene = seen(road((moving(38.0, MIDDLE, 0.0, 9.0), Kind.VEHICLE), ahead, y=MIDDLE + WIDE))
        future = rules(scene)[:, 0]
        assert (future[:, :, 0] + CAR[0] / 2 < 70 - 0.3).all()
        assert (future[:, 40, V] < 4.5).all()
        np.testing.assert_allclose(straight(scene).future[0, 40, V], 9.0)


def test_the_car_itself_is_followed_though_it_is_no_track() -> None:
    """It stands; who comes from behind in its lane brakes, who is in the other lane does not."""
    behind = (moving(-30.0, MIDDLE, 0.0, 9.0), Kind.VEHICLE)
    future = rules(seen(road(behind, speed=0.0)))
    free = rules(seen(road(behind, speed=0.0, y=MIDDLE + WIDE)))
    assert (future[:, 0, 30, V] < 7.5).all()
    assert (free[:, 0, 30, V] > 8.5).all()


def test_who_comes_first_to_a_junction_goes_first() -> None:
    """One is slow and at the line, the other 24 m from it: it waits, where it went on alone."""
    first, second = moving(-10.0, 0.0, 0.0, 3.0), moving(0.0, -32.0, np.pi / 2, 8.0)
    alone, both = rules(crossroads(second)), rules(crossroads(second, first))
    assert (alone[:, 0, 40, 1] > both[:, 0, 40, 1] + 3).all()
    reach = CAR[0] / 2 - WIDE / 2
    crossing_y = np.abs(both[:, 0, :, 1]) < reach + WIDE / 2
    crossing_x = np.abs(both[:, 1, :, 0]) < reach + WIDE / 2
    assert crossing_x.any(1).all()
    assert not (crossing_x & crossing_y).any()


def test_a_red_light_is_kept_until_it_may_have_changed() -> None:
    scene = replace(crossroads(moving(0.0, -30.0, np.pi / 2, 8.0)), red=(4,))
    before = rules(scene, 24)[:, 0, :, 1] + CAR[0] / 2 < -5.5  # of the stop line
    assert before[:, :10].all()
    assert before.all(1).mean() > 0.3  # it stays red in many samples, not in all
    green = rules(replace(scene, red=()), 24)[:, 0, :, 1]
    assert (green[:, 40] > -6).all()


def test_ways_fork_and_the_route_is_one_of_them() -> None:
    scene = crossroads(moving(0.0, -30.0, np.pi / 2, 8.0))
    turn = np.linspace(0, np.pi / 2, 12)
    bend = np.stack([6 * np.sin(turn) - 6, 6 - 6 * np.cos(turn)], 1)
    left = lane_between(*ribbon(bend, WIDE), (), (), True, 10.0)
    lanes = (replace(scene.lanes[0], next=(1, 6)), *scene.lanes[1:], left)
    straight_on, turning = ways_of(lanes, scene.ego, 0)
    assert list(straight_on.begins) == [0, 1, 2]
    assert list(turning.begins) == [0, 6]
    assert straight_on.stop == pytest.approx(BEFORE + 39)
    assert straight_on.connector == 1
    assert straight_on.clear == pytest.approx(BEFORE + 51)
    assert list(route_way(replace(scene, lanes=lanes)).begins) == [0, 1, 2]
    assert [list(way.begins) for way in ways_of(lanes, scene.ego, None)] == [[]]


def test_ways_conflict_where_they_cross_and_merge_where_they_join() -> None:
    scene = crossroads()
    along, across = (ways_of(scene.lanes, pose, row)[0] for pose, row in (
        (np.array([-40.0, 0.0, 0.0]), 0), (np.array([0.0, -30.0, np.pi / 2]), 3),
    ))  # fmt: skip
    ways = Ways.of([along, across], scene.lanes)
    np.testing.assert_array_equal(ways.conflict, [[False, True], [True, False]])
    assert np.isinf(ways.merge).all()
    join = (strip((-100, 0), (0, 0)), strip((-100, -20), (0, 0)), strip((0, 0), (100, 0)))
    lanes: tuple[Lane, ...] = tuple(
        lane_between(*ribbon(piece, WIDE), (2,) if i < 2 else ()) for i, piece in enumerate(join)
    )
    poses = np.array([-50.0, 0.0, 0.0]), np.array([-25.0, -5.0, 0.2])
    ways = Ways.of([ways_of(lanes, poses[i], i)[0] for i in (0, 1)], lanes)
    assert ways.merge[0, 1] == pytest.approx(BEFORE + 50)
    assert not ways.conflict.any()
    assert ways.merge[1, 0] == pytest.approx(BEFORE + np.hypot(25, 5))


def test_bends_are_taken_as_slowly_as_their_radius_asks() -> None:
    """V = √(a r): 2.5 m/s² on a circle of 40 m are 10 m/s."""
    turn = np.linspace(0, 3, 120)
    circle = 40 * np.stack([np.sin(turn), 1 - np.cos(turn)], 1)
    lane = lane_between(*ribbon(circle, WIDE))
    (way,) = ways_of((lane,), np.array([40 * np.sin(0.5), 40 * (1 - np.cos(0.5)), 0.5]), 0)
    cap = Ways.of([way], (lane,)).cap[0, BEFORE : BEFORE + 60]
    np.testing.assert_allclose(cap, np.sqrt(LATERAL * 40), rtol=0.03)


def test_the_rules_see_the_past_alone_and_draw_the_same_again() -> None:
    for scene in scenes("native", 4, 1, seed=3):
        other = scene.future.copy()
        other[:, 1:] += 5.0
        changed = replace(scene, future=other, driven=None)
        first, again = rules(scene), rules(changed)
        np.testing.assert_array_equal(first, again)
        assert first.shape == (6, len(scene.kind), AHEAD + 1, 4)
        here = np.isfinite(scene.past[:, BEHIND]).all(1)
        now = np.tile(scene.past[here, BEHIND, :2], (6, 1, 1))
        np.testing.assert_allclose(first[:, here, 0, :2], now, atol=0.3)


def test_the_rules_are_nearer_than_lanes_alone() -> None:
    away = {"lanes": list[float](), "rules": list[float]()}
    for scene in scenes("native", 7, 2, seed=5):
        near = np.hypot(*(scene.past[:, BEHIND, :2] - scene.ego[:2]).T) < 40
        near &= np.isfinite(scene.future[:, 40]).all(1) & (scene.kind == Kind.VEHICLE)
        for name, future in (("lanes", lanes(scene).future[None]), ("rules", rules(scene))):
            error = future[:, near, 40, :2] - scene.future[near, 40, :2]
            away[name] += np.hypot(error[..., 0], error[..., 1]).mean(0).tolist()
    assert np.mean(away["rules"]) < 0.85 * np.mean(away["lanes"])
