"""Drivers: the intelligent driver model, lane changes, and the drives of the reference driver."""

import numpy as np
import pytest
from traffic_scenes import CAR, WIDE, moving, road

from djepa.worlds.traffic.drivers import Cars, Traffic
from djepa.worlds.traffic.idm import FREE, Style, idm
from djepa.worlds.traffic.plane import Array
from djepa.worlds.traffic.reference import drives
from djepa.worlds.traffic.roads import Layout, Line
from djepa.worlds.traffic.scene import DT, FRONT, Kind, Scene

# At 10 of 15 m/s on a free road: 1.5 · (1 - (2 / 3)^10) = 1.5 · (1 - 0.0173415).
FREE_10 = 1.4739877


@pytest.mark.parametrize(
    ("gap", "leader", "accel"),
    [
        (FREE, 0.0, FREE_10),
        # g* = 1 + 10 · 1.5 + 10 · (10 - 8) / (2 √(1.5 · 3)) = 16 + 20 / 4.2426407 = 20.7140452
        # 1.5 · (1 - 0.0173415 - (20.7140452 / 20)²) = 1.5 · (0.9826585 - 1.0726791)
        (20.0, 8.0, -0.1350310),
        # The same speed: g* = 16, 1.5 · (0.9826585 - 0.64).
        (20.0, 10.0, 0.5139877),
        # A leader that is much faster: g* = 1, what is kept when standing. 1.5 · 0.9801585.
        (20.0, 100.0, 1.4702377),
    ],
)
def test_the_intelligent_driver_by_hand(gap: float, leader: float, accel: float) -> None:
    got = idm(Style(), np.array(10.0), np.array(gap), np.array(leader))
    assert float(got) == pytest.approx(accel, abs=1e-6)


def two_lanes(*cars: tuple[int, float, float], to_left: bool = True) -> Traffic:
    """Two straight lanes, of which 1 is beside 0; cars: lane, metres along it, speed."""
    x = np.arange(300.0)
    rows = [np.stack([x, np.full(300, y)], 1) for y in (0.0, WIDE if to_left else -WIDE)]
    first = Line(rows[0], 0, **{"left" if to_left else "right": 1})
    layout = Layout("two lanes", (), (), (first, Line(rows[1], 1)), 15.0)
    lane, s, v = (np.array(column) for column in zip(*cars, strict=True))
    one = np.ones(len(cars))
    style = Style(speed=15 * one, gap=one, headway=1.5 * one, accel=1.5 * one, brake=3 * one)
    size = np.tile(CAR, (len(cars), 1))
    return Traffic(layout, Cars(lane.astype(int), s, v, 0 * one, 0 * one, size, style), 0.0)


def changes(*others: tuple[int, float, float], to_left: bool = True) -> bool:
    """Does a car at 100 m with 10 m/s in lane 0 change to lane 1?"""
    traffic = two_lanes((0, 100.0, 10.0), *others, to_left=to_left)
    traffic.step(np.zeros((0, 4)))
    return bool(traffic.cars.line[0] == 1)


@pytest.mark.parametrize("to_left", [True, False])
@pytest.mark.parametrize(("gap", "change"), [(35.5, True), (36.1, False)])
def test_a_lane_is_changed_for_a_gain_above_0_3(gap: float, change: bool, to_left: bool) -> None:
    # Behind a leader as fast as itself: g* = 16, so that a free lane gains 1.5 · (16 / gap)².
    # That is 0.3 at gap = 16 · √5 = 35.78 m. Both cars are 4 m long.
    assert changes((0, 104.0 + gap, 10.0), to_left=to_left) == change


@pytest.mark.parametrize(("behind", "change"), [(9.75, False), (9.9, True)])
def test_no_lane_is_changed_if_the_new_follower_must_brake_hard(
    behind: float, change: bool
) -> None:
    # 20 m behind a leader at 8 m/s the gain is 1.4739877 + 0.1350310 = 1.609. The follower, as
    # fast, would get 1.4739877 - 1.5 · (16 / behind)². That is -2.5 at behind = 9.83 m. It costs
    # 0.2 · 3.97 = 0.79: the gain is more by 0.81, so safety alone decides.
    assert changes((0, 124.0, 8.0), (1, 96.0 - behind, 10.0)) == change


@pytest.mark.parametrize(("behind", "change"), [(19.2, False), (20.0, True)])
def test_a_fifth_of_what_the_new_follower_loses_counts(behind: float, change: bool) -> None:
    # A gain of 0.5, as (16 / 27.7128)² = 1 / 3. The follower loses 1.5 · (16 / behind)²; a fifth
    # of that is 0.2, what is above 0.3, at behind = √(76.8 / 0.2) = 19.6 m.
    assert changes((0, 131.7128, 10.0), (1, 96.0 - behind, 10.0)) == change


def test_the_new_leader_counts() -> None:
    # Its gap of 40 m leaves 0.96 to lose: the gain is 1.5 · ((16 / 20)² - (16 / 40)²) = 0.72.
    # With 24 m it is 1.5 · (0.64 - 0.4444) = 0.293.
    assert changes((0, 124.0, 10.0), (1, 144.0, 10.0))
    assert not changes((0, 124.0, 10.0), (1, 128.0, 10.0))


def ends(scene: Scene) -> Array:
    """(3, 5) metres after 4 s, of three offsets and five speeds."""
    return drives(scene)[:, -1, 0].reshape(3, 5)


def test_the_reference_driver_drives_in_the_middle_and_1_m_to_each_side() -> None:
    got = drives(road(y=WIDE / 2))
    assert got.shape == (15, 41, 3)
    wanted = np.repeat([0.0, -1.0, 1.0], 5)
    np.testing.assert_allclose(got[..., 1], np.repeat(wanted[:, None], 41, 1), atol=1e-12)


@pytest.mark.parametrize("i", range(5))
@pytest.mark.parametrize(("limit", "known"), [(10.0, True), (15.0, False)])
def test_the_reference_driver_wants_fifths_of_the_limit_or_of_15_m_per_second(
    i: int, limit: float, known: bool
) -> None:
    # Who has the wanted speed on a free road neither accelerates nor brakes: 4 s of it.
    speed = limit * (i + 1) / 5
    scene = road(speed=speed, limit=limit if known else float("nan"))
    got = ends(scene)
    np.testing.assert_allclose(got[:, i], 4 * speed, rtol=1e-9)
    assert (got[:, :i] < 4 * speed - 0.1).all()
    assert (got[:, i + 1 :] > 4 * speed + 0.1).all()


def test_the_reference_driver_starts_with_1_5_metres_per_second_squared() -> None:
    # From standing: v = 0.15 m/s after a step, and the new speed moves it: 0.015 m.
    np.testing.assert_allclose(drives(road(speed=0.0))[:, 1, 0], 0.015, rtol=1e-12)


@pytest.mark.parametrize(
    ("v", "leader", "gap", "accel"),
    [
        # At the wanted speed of 10 m/s the free part is 0: a = -1.5 · (g* / gap)².
        # g* = 1 + 15 + 10 · 10 / (2 √4.5) = 16 + 23.5702260 = 39.5702260
        (10.0, 0.0, 39.5702260, -1.5),
        (10.0, 0.0, 30.0, -2.6096712),  # 1.5 · (39.5702260 / 30)² = 1.5 · 1.7397808
        (10.0, 5.0, 30.0, -1.2866875),  # g* = 16 + 11.7851130, (27.7851130 / 30)² = 0.8577917
        # On the way to 10 m/s: g* = 1 + 7.5 + 5 · 5 / (2 √4.5) = 14.3925565.
        # 1.5 · (1 - (1 / 2)^10 - (14.3925565 / 30)²) = 1.5 · (1 - 0.0009766 - 0.2301619)
        (5.0, 0.0, 30.0, 1.1532924),
        # Standing, g* = 1: 1.5 · (1 - (1 / 2)²).
        (0.0, 0.0, 2.0, 1.125),
    ],
)
def test_the_reference_driver_behind_a_leader_by_hand(
    v: float, leader: float, gap: float, accel: float
) -> None:
    # The leader is 4 m long and its rear end is `gap` before the bumper, 4.049 m before the axle.
    track = moving(FRONT + gap + 2, WIDE / 2, speed=leader)
    got = drives(road((track, Kind.VEHICLE), speed=v))
    speed = v + accel * DT
    assert got[4, 1, 0] == pytest.approx(speed * DT, abs=1e-8)  # the middle, all of the limit
    beside = moving(FRONT + gap + 2, WIDE / 2 + WIDE, speed=leader)
    free = drives(road((beside, Kind.VEHICLE), speed=v))
    assert free[4, 1, 0] == pytest.approx((v + 1.5 * (1 - (v / 10) ** 10) * DT) * DT, abs=1e-8)
