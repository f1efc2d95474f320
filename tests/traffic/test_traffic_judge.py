"""PDMS on scenes whose answers can be worked out by hand."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traffic_scenes import CAR, TIMES, WIDE, moved, moving, road, straight

from djepa.errors import DjepaError
from djepa.pools.driving import braking
from djepa.worlds.traffic.comfort import comfortable
from djepa.worlds.traffic.contacts import at_two_hertz
from djepa.worlds.traffic.generate import scenes
from djepa.worlds.traffic.judge import Judge, Judgement, pdms
from djepa.worlds.traffic.scene import DT, FRONT, TO_CENTRE, A, H, Kind, Scene

PARTS = ("nc", "dac", "ttc", "ep", "comfort", "ddc", "progress", "pdms")
STAND = CAR[0] / 2  # from the rear end of a standing car to its centre


def one(scene: Scene, candidates: np.ndarray) -> dict[str, float]:
    judged = Judge(scene)(candidates)
    return {part: float(getattr(judged, part)[0]) for part in PARTS}


@pytest.mark.parametrize(
    ("ttc", "ep", "comfort", "value"),
    [(0, 1, 1, 58.33), (1, 1, 0, 83.33), (1, 0.9, 1, 95.83), (1, 0.98, 1, 99.17), (1, 0.52, 1, 80)],
)
def test_the_formula_gives_the_published_values(
    ttc: float, ep: float, comfort: float, value: float
) -> None:
    one, parts = np.ones(1), (np.array([x], float) for x in (ttc, ep, comfort))
    assert 100 * pdms(one, one, *parts)[0] == pytest.approx(value, abs=0.005)
    assert pdms(one * 0, one, one, one, one)[0] == 0


def test_constant_speed_on_a_free_road_is_perfect() -> None:
    got = one(road(), straight(10))
    assert got["progress"] == pytest.approx(40.0)
    assert got["pdms"] == pytest.approx(1.0)
    assert all(got[part] == 1 for part in ("nc", "dac", "ttc", "comfort", "ddc"))


def test_progress_is_a_share_of_the_reference() -> None:
    scene = road(speed=5.0)
    reference = Judge(scene).reference
    # IDM from 5 m/s with a limit of 10 and 1.5 m/s² : 20 m and nearly 12 m more.
    assert 28 < reference < 32
    assert one(scene, straight(5))["ep"] == pytest.approx(20 / reference, rel=1e-6)


def test_where_nobody_can_go_standing_is_full_progress() -> None:
    ahead = moving(FRONT + 2 + STAND, WIDE / 2)
    got = one(road((ahead, Kind.VEHICLE), speed=0.0), straight(0))
    assert got["pdms"] == 1.0


def stands_at(rear: float, kind: Kind = Kind.VEHICLE) -> Scene:
    return road((moving(rear + STAND, WIDE / 2), kind))


def test_a_collision_counts_from_the_step_at_which_boxes_meet() -> None:
    reach = FRONT + 40.0  # of the front bumper after 4 s
    assert one(stands_at(reach - 0.01), straight(10))["nc"] == 0
    beyond = one(stands_at(reach + 0.01), straight(10))
    assert beyond["nc"] == 1
    assert beyond["ttc"] == 0


def test_time_to_collision_looks_nine_steps_ahead() -> None:
    reach = FRONT + 40.0 + 10 * 0.9
    assert one(stands_at(reach - 0.01), straight(10))["ttc"] == 0
    assert one(stands_at(reach + 0.01), straight(10))["ttc"] == 1


def test_a_failure_of_time_to_collision_alone_costs_five_twelfths() -> None:
    got = one(stands_at(FRONT + 45.0), straight(10))
    assert got["pdms"] == pytest.approx((5 * got["ep"] + 2) / 12)


def test_a_cone_costs_half() -> None:
    assert one(stands_at(30.0, Kind.STATIC), straight(10))["nc"] == 0.5
    assert one(stands_at(30.0, Kind.PEDESTRIAN), straight(10))["nc"] == 0


def test_who_is_hit_from_behind_is_not_at_fault() -> None:
    chaser = moving(-12.0, WIDE / 2, speed=20.0)
    got = one(road((chaser, Kind.VEHICLE)), straight(10))
    assert got["nc"] == 1


def test_who_stands_is_not_at_fault() -> None:
    oncoming = moving(30.0, WIDE / 2, heading=np.pi, speed=10.0)
    assert one(road((oncoming, Kind.VEHICLE), speed=0.0), straight(0))["nc"] == 1
    assert one(road((oncoming, Kind.VEHICLE)), straight(10))["nc"] == 0


@pytest.mark.parametrize(("y", "fault"), [(WIDE / 2, False), (WIDE, True)])
def test_a_car_from_the_side_counts_between_lanes_alone(y: float, fault: bool) -> None:
    # It keeps beside the ego's middle, 4 m to the left, and comes nearer by 1 m/s.
    side = moving(TO_CENTRE, y + 4.0, heading=-np.arctan2(1, 10), speed=float(np.hypot(10, 1)))
    assert one(road((side, Kind.VEHICLE), y=y), straight(10))["nc"] == (0 if fault else 1)


def test_coming_nearer_from_the_side_counts_in_an_intersection_alone() -> None:
    # At 45 degrees a 4 x 2 m box reaches 2.12 m down, the ego 1.15 m up: they touch at 3.27 m,
    # after 4.4 s of coming nearer by 1 m/s. Execution ends before, looking ahead does not.
    side = moving(TO_CENTRE, WIDE / 2 + 7.7, heading=-np.pi / 4, speed=2**0.5)
    for crossing, ttc in ((False, 1), (True, 0)):
        scene = road((side, Kind.VEHICLE), speed=1.0, limit=1.0, intersection=crossing)
        got = one(scene, straight(1))
        assert (got["nc"], got["ttc"]) == (1, ttc)


def test_a_collision_that_is_excused_may_still_have_been_too_near() -> None:
    # Not at fault within its lane, so NC excuses the car; the list of TTC is its own.
    side = moving(
        TO_CENTRE, WIDE / 2 + 4.0, heading=-np.arctan2(1, 10), speed=float(np.hypot(10, 1))
    )
    got = one(road((side, Kind.VEHICLE), intersection=True), straight(10))
    assert (got["nc"], got["ttc"]) == (1, 0)
    # At 2 m/s the other stays at more than 30 degrees for 0.9 s: it is beside, and not ahead.
    slow = moving(TO_CENTRE, WIDE / 2 + 4.0, heading=-np.arctan2(1, 2), speed=float(np.hypot(2, 1)))
    got = one(road((slow, Kind.VEHICLE), speed=2.0, limit=2.0), straight(2))
    assert (got["nc"], got["ttc"]) == (1, 1)


def test_leaving_the_road_costs_everything() -> None:
    aside = straight(10)
    aside[0, :, 1] = -np.minimum(TIMES, 2.0)
    got = one(road(), aside)
    assert got["dac"] == got["pdms"] == got["ep"] == 0


def test_the_wrong_lane_is_reported_without_weight() -> None:
    scene = road(route=(0,), y=1.5 * WIDE)
    got = one(scene, straight(10))
    assert got["ddc"] == 0
    assert got["pdms"] == pytest.approx(1.0)
    slow = road(route=(0,), y=1.5 * WIDE, speed=5.8, limit=6.0)
    assert one(slow, straight(5.8))["ddc"] == 0.5  # less than 6 m in a second
    assert one(road(route=(0,), y=1.5 * WIDE, speed=1.5, limit=2.0), straight(1.5))["ddc"] == 1


def motion(a: np.ndarray | float = 0.0, h: np.ndarray | float = 0.0) -> np.ndarray:
    states = np.zeros((1, 41, 6))
    states[..., A], states[..., H] = a, h
    return states


T = DT * np.arange(41)


@pytest.mark.parametrize(
    ("a", "h", "fine"),
    [
        (2.39, 0.0, True),
        (2.40, 0.0, False),
        (-4.04, 0.0, True),
        (-4.05, 0.0, False),
        (0.95 * (T - 2) ** 2 - 2, 0.0, True),  # jerk 3.8 at the ends
        (1.08 * (T - 2) ** 2 - 2, 0.0, False),  # 4.32
        (0.0, 0.94 * T, True),
        (0.0, 0.96 * T, False),
        (0.0, 0.6 * np.sin(1.5 * T), True),  # 0.9 rad/s, 1.35 rad/s²
        (0.0, 0.3 * np.sin(3.0 * T), False),  # 0.9 rad/s, 2.7 rad/s²
    ],
)
def test_comfort_has_strict_limits(
    a: np.ndarray | float, h: np.ndarray | float, fine: bool
) -> None:
    assert comfortable(motion(a, h))[0] == fine


def test_hard_braking_is_uncomfortable_and_gentle_braking_is_not() -> None:
    ways = np.stack([braking(straight(10)[0], 10.0, rate) for rate in (1.0, 9.0)])
    assert Judge(road())(ways).comfort.tolist() == [1, 0]


def test_traffic_counts_as_sampled_at_two_hertz() -> None:
    states = np.full((3, 51, 4), np.nan)
    states[0] = moving(0, 0, speed=10.0)
    states[0, 3] = 99.0  # between samples
    states[1, 7:13] = moving(5, 1)[:6]  # seen in one sample, at step 10
    states[2, 11:14] = 0.0  # seen in none
    got = at_two_hertz(states)
    np.testing.assert_allclose(got[0], moving(0, 0, speed=10.0))
    np.testing.assert_array_equal(got[1], np.tile(states[1, 10], (51, 1)))
    assert np.isnan(got[2]).all()


def test_candidates_of_another_shape_are_refused() -> None:
    with pytest.raises(DjepaError, match="must be"):
        Judge(road())(np.zeros((2, 7, 3)))
    with pytest.raises(DjepaError, match="NaN"):
        Judge(road())(np.full((2, 8, 3), np.nan))


LOGS = 7


@cache
def generated() -> list[Scene]:
    """A scene of each log."""
    return list(scenes("fit", LOGS, 1, seed=3))


def fan(scene: Scene, rng: np.random.Generator, count: int = 6) -> np.ndarray:
    """Arcs of different speeds and bends."""
    v = scene.ego[3] * rng.uniform(0.4, 1.3, (count, 1))
    bend = rng.normal(0, 0.01, (count, 1))
    s = v * TIMES
    return np.stack([s, bend * s**2 / 2, bend * s], -1)


def same(a: Judgement, b: Judgement, rows: np.ndarray | slice = slice(None)) -> None:
    for part in PARTS:
        np.testing.assert_allclose(
            getattr(a, part)[rows], getattr(b, part), atol=1e-6, err_msg=part
        )


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(range(LOGS)),
    st.tuples(*[st.floats(-500, 500)] * 2, st.floats(-3, 3)),
    st.integers(0, 99),
)
def test_where_the_world_lies_changes_nothing(
    i: int, pose: tuple[float, float, float], seed: int
) -> None:
    scene = generated()[i]
    candidates = fan(scene, np.random.default_rng(seed))
    same(Judge(scene)(candidates), Judge(moved(scene, np.array(pose)))(candidates))


@settings(max_examples=8, deadline=None)
@given(st.sampled_from(range(LOGS)), st.permutations(range(6)))
def test_candidates_are_judged_one_by_one(i: int, order: list[int]) -> None:
    scene = generated()[i]
    candidates, judge = fan(scene, np.random.default_rng(0)), Judge(scene)
    whole = judge(candidates)
    same(whole, judge(candidates[order]), np.array(order))
    same(whole, judge(candidates[order[:1]]), np.array(order[:1]))
