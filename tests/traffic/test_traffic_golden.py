"""Who is at fault, what is too near, and how progress counts: one worked case for each constant.

The ego's rear axle stays at the origin, heading along x: its box is x in [-1.127, 4.049], |y| <=
1.1485. It has a speed at one step alone, so that nothing but that step can count. Traffic is a box
of 4 x 2 m that is there at one step alone.
"""

from dataclasses import replace

import numpy as np
import pytest
from traffic_scenes import CAR, moving, road, straight

from djepa.worlds.traffic.contacts import Where
from djepa.worlds.traffic.judge import Judge, Judgement, judge_states
from djepa.worlds.traffic.plane import Array
from djepa.worlds.traffic.reference import progress_of
from djepa.worlds.traffic.scene import DT, FRONT, H, Kind, V, X

NOW = 20  # the step at which the ego has a speed
PLACES = ("several_lanes", "off_road", "off_route", "intersection")


def place(*names: str) -> Where:
    return Where(**{name: np.full((1, 41), name in names) for name in PLACES})


def ego(speed: float, *steps: int) -> Array:
    """(1, 41, 6) at the origin, with a speed at the given steps alone."""
    states = np.zeros((1, 41, 6))
    states[0, list(steps), V] = speed
    return states


def boxes(*at: tuple[int, float, float], speed: float = 3.0) -> Array:
    """(51, 4) of a track that is at x, y at the given steps and nowhere else."""
    track = np.full((51, 4), np.nan)
    for step, x, y in at:
        track[step] = x, y, 0.0, speed
    return track


def judged(
    track: Array,
    states: Array,
    where: Where,
    *,
    size: tuple[float, float] = CAR,
    kind: Kind = Kind.VEHICLE,
) -> tuple[float, float]:
    """NC and TTC."""
    scene = replace(road((track, kind)), size=np.array([size]))
    got = judge_states(scene, scene.future, states, 0.0, where)
    return float(got.nc[0]), float(got.ttc[0])


def bearing(degrees: float) -> Array:
    """A box 2 m from the rear axle, which meets the ego's box and not its front bumper.

    At 30 degrees its centre is (1.73, 1): it reaches from -0.27 to 3.73 m and down to y = 0. At 90
    it is (0, 2) and reaches down to y = 1; at 150 it is (-1.73, 1) and reaches up to x = 0.27.
    """
    angle = np.deg2rad(degrees)
    return boxes((NOW, 2 * np.cos(angle), 2 * np.sin(angle)))


@pytest.mark.parametrize(
    ("degrees", "ttc"), [(0, 0), (29.9, 0), (-29.9, 0), (30.1, 1), (-30.1, 1), (149.9, 1)]
)
def test_within_a_lane_only_what_is_less_than_30_degrees_ahead_is_too_near(
    degrees: float, ttc: float
) -> None:
    assert judged(bearing(degrees), ego(1.0, NOW), place())[1] == ttc


@pytest.mark.parametrize("name", ["several_lanes", "off_road", "intersection"])
@pytest.mark.parametrize(("degrees", "ttc"), [(90, 0), (149.9, 0), (-149.9, 0), (150.1, 1)])
def test_elsewhere_all_that_is_not_behind_150_degrees_is_too_near(
    name: str, degrees: float, ttc: float
) -> None:
    assert judged(bearing(degrees), ego(1.0, NOW), place(name))[1] == ttc


@pytest.mark.parametrize("name", ["several_lanes", "off_road"])
@pytest.mark.parametrize(("degrees", "nc"), [(90, 0), (149.9, 0), (150.1, 1), (-150.1, 1)])
def test_a_contact_from_the_side_is_at_fault_between_lanes_or_off_the_road(
    name: str, degrees: float, nc: float
) -> None:
    assert judged(bearing(degrees), ego(1.0, NOW), place(name))[0] == nc


@pytest.mark.parametrize("names", [(), ("intersection",), ("off_route",)])
def test_a_contact_from_the_side_is_not_at_fault_anywhere_else(names: tuple[str, ...]) -> None:
    assert judged(bearing(90), ego(1.0, NOW), place(*names))[0] == 1


def test_the_wrong_route_makes_nothing_too_near() -> None:
    assert judged(bearing(90), ego(1.0, NOW), place("off_route"))[1] == 1


def test_what_is_behind_is_not_at_fault_even_if_it_reaches_the_front_bumper() -> None:
    # 24 m long with its centre at x = -7.9: it ends at 4.1 m, past the bumper at 4.049 m, and
    # reaches down to y = 0.9. Its bearing is 180 - atan(1.9 / 7.9) = 166 degrees.
    lorry = boxes((NOW, -7.9, 1.9))
    everywhere = place("several_lanes", "off_road")
    assert judged(lorry, ego(1.0, NOW), everywhere, size=(24.0, 2.0))[0] == 1
    # The same end with the centre ahead: x from 3.5 to 4.1 m. The bumper meets it.
    assert judged(boxes((NOW, 3.8, 1.9)), ego(1.0, NOW), place(), size=(0.6, 2.0))[0] == 0


@pytest.mark.parametrize(
    ("speed", "nc"), [(0.0, 1), (0.049, 1), (-0.049, 1), (0.051, 0), (-0.051, 0), (0.3, 0)]
)
def test_an_ego_up_to_5_cm_per_second_stands(speed: float, nc: float) -> None:
    assert judged(boxes((NOW, 5.0, 0.0)), ego(speed, NOW), place())[0] == nc


@pytest.mark.parametrize(
    ("speed", "nc"),
    [(0.0, 0), (0.049, 0), (-0.049, 0), (0.05, 0), (0.051, 1), (-0.051, 1), (-3.0, 1)],
)
def test_a_track_up_to_5_cm_per_second_stands(speed: float, nc: float) -> None:
    # At the ego's left side and within its lane: at fault only because the other stands.
    side = boxes((NOW, 1.5, 2.0), speed=speed)
    assert judged(side, ego(1.0, NOW), place())[0] == nc


def test_what_is_no_road_user_stands_whatever_its_speed() -> None:
    side = boxes((NOW, 1.5, 2.0), speed=3.0)
    assert judged(side, ego(1.0, NOW), place(), kind=Kind.STATIC)[0] == 0.5


@pytest.mark.parametrize(
    ("speed", "ttc"), [(0.004, 1), (-0.004, 1), (0.005, 0), (0.006, 0), (-0.006, 0), (0.4, 0)]
)
def test_an_ego_below_5_mm_per_second_is_not_too_near(speed: float, ttc: float) -> None:
    assert judged(boxes((NOW, 5.0, 0.0)), ego(speed, NOW), place())[1] == ttc


@pytest.mark.parametrize("ahead", range(12))
def test_time_to_collision_looks_0_3_6_and_9_steps_ahead(ahead: int) -> None:
    # At 10 m/s the box moves by 1 m in each step that it looks ahead. The track's rear end is 1 m
    # behind the bumper of the moved box.
    track = boxes((NOW + ahead, FRONT + ahead + 1.0, 0.0))
    wanted = 0 if ahead in (0, 3, 6, 9) else 1
    assert judged(track, ego(10.0, NOW), place())[1] == wanted


def test_looking_ahead_goes_along_the_heading_of_now() -> None:
    # 9 m to the left and 0.5 m into the moved box. Its bearing is 90 - 90 = 0 degrees.
    track = boxes((NOW + 9, 0.0, FRONT + 9.0 + 0.5))
    states = ego(10.0, NOW)
    states[0, NOW, H] = np.pi / 2
    assert judged(track, states, place())[1] == 0
    assert judged(track, ego(10.0, NOW), place())[1] == 1


def test_the_first_contact_excuses_a_track_for_good() -> None:
    # First from the side within the lane, later at the bumper.
    first, later = (NOW, 1.5, 2.0), (NOW + 10, 5.0, 0.0)
    states = ego(1.0, NOW, NOW + 10)
    assert judged(boxes(first, later), states, place()) == (1, 1)
    assert judged(boxes(later), states, place()) == (0, 0)


def drive(speed: float = 10.0) -> Array:
    """(1, 41, 6) along x at constant speed."""
    states = np.zeros((1, 41, 6))
    states[0, :, X], states[0, :, V] = speed * DT * np.arange(41), speed
    return states


def progress(states: Array, reference: float, *names: str, cone: bool = False) -> Judgement:
    tracks = [(moving(30.0, 0.0), Kind.STATIC)] if cone else []
    scene = road(*tracks)
    return judge_states(scene, scene.future, states, reference, place(*names))


def test_a_cone_halves_progress_before_it_is_compared() -> None:
    # 40 m, times NC = 0.5: 20 m of max(20, 25) m.
    got = progress(drive(), 25.0, cone=True)
    assert (got.nc[0], got.progress[0]) == (0.5, pytest.approx(20.0))
    assert got.ep[0] == pytest.approx(20 / 25)
    # TTC fails too: 0.5 · (5 · 0.8 + 0 + 2) / 12.
    assert got.pdms[0] == pytest.approx(0.25)


def test_the_cone_of_the_reference_driver_halves_its_progress_too() -> None:
    scene = road((moving(30.0, 0.0), Kind.STATIC))
    states = drive()
    states[..., 1] = 1.75  # in the middle of its lane; the cone reaches up to y = 1
    assert progress_of(scene, scene.future, states) == pytest.approx(20.0)


def test_off_the_road_no_progress_counts() -> None:
    got = progress(drive(), 25.0, "off_road")
    assert (got.dac[0], got.progress[0], got.ep[0]) == (0, 0, 0)


@pytest.mark.parametrize(
    ("own", "reference", "ep"),
    [
        (2.0, 3.0, 1.0),  # both below 5 m
        (4.0, 5.0, 1.0),  # 5 m is not more than 5 m
        (4.0, 5.01, 4 / 5.01),
        (2.0, 6.0, 1 / 3),
        (8.0, 6.0, 1.0),  # the farther one is the ego itself
        (0.0, 9.0, 0.0),
    ],
)
def test_progress_is_compared_only_if_one_made_more_than_5_m(
    own: float, reference: float, ep: float
) -> None:
    assert progress(drive(own / 4), reference).ep[0] == pytest.approx(ep)


def test_progress_is_that_of_the_centre_and_never_negative() -> None:
    # The centre is 1.461 m before the rear axle: at 1.461 m first, above the axle at the end.
    turned = drive(2.5)
    turned[0, -1, H] = np.pi / 2
    assert progress(turned, 0.0).progress[0] == pytest.approx(10 - 1.461)
    assert progress(drive(-2.5), 0.0).progress[0] == 0


def test_the_reference_scales_the_progress_that_is_judged() -> None:
    # The reference drive of a free road at its limit holds 10 m/s: 40 m. 5 m/s makes 20 m.
    judge = Judge(road())
    assert judge.reference == pytest.approx(40.0)
    assert judge(straight(10)).ep[0] == pytest.approx(1.0)
    slow = judge.of_states(drive(5.0), place())
    assert slow.ep[0] == pytest.approx(0.5)
