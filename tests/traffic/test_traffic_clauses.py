"""Clauses of PDMS that need a scene of their own, worked out by hand; an independent oracle."""

import numpy as np
import pytest
from traffic_scenes import TIMES, WIDE, moving, road, straight

from djepa.worlds.traffic.judge import Judge
from djepa.worlds.traffic.plane import Array, boxes_meet, corners
from djepa.worlds.traffic.scene import TO_CENTRE, WIDTH, Kind, Scene

BESIDE = WIDE / 2 + WIDTH / 2 + 0.9  # y of a box 2 m wide that reaches 0.1 m into the ego's side


def parts(scene: Scene, candidates: Array) -> tuple[float, float, float]:
    """NC, DAC, TTC."""
    judged = Judge(scene)(candidates)
    return float(judged.nc[0]), float(judged.dac[0]), float(judged.ttc[0])


def beside(speed: float) -> Array:
    """A box that overlaps the ego's left side at the start, behind the front bumper."""
    return moving(TO_CENTRE, BESIDE, speed=speed)


def test_who_brushes_what_stands_is_at_fault_even_within_the_lane() -> None:
    assert parts(road((beside(0.0), Kind.VEHICLE)), straight(10))[0] == 0
    assert parts(road((beside(10.0), Kind.VEHICLE)), straight(10))[0] == 1


def test_what_stands_is_what_stood_when_it_was_first_seen() -> None:
    later = beside(0.0)
    later[0, 3] = 10.0  # it moved at first sight; that it stands at the contact changes nothing
    assert parts(road((later, Kind.VEHICLE)), straight(0.5))[0] == 1
    first = beside(0.0)
    first[5:, 3] = 10.0
    assert parts(road((first, Kind.VEHICLE)), straight(10))[0] == 0


@pytest.mark.parametrize("kind", [Kind.VEHICLE, Kind.PEDESTRIAN, Kind.BICYCLE])
def test_whoever_it_is_a_collision_at_fault_costs_everything(kind: Kind) -> None:
    judged = Judge(road((moving(25.0, WIDE / 2), kind)))(straight(10))
    assert (judged.nc[0], judged.ep[0], judged.pdms[0]) == (0, 0, 0)


def test_two_costs_are_the_larger_one_and_not_their_product() -> None:
    cone, other = (moving(25.0, WIDE / 2 + y) for y in (0.5, -0.5))
    scene = road((cone, Kind.STATIC), (other, Kind.STATIC))
    assert parts(scene, straight(10))[0] == 0.5


def test_one_corner_off_the_road_is_off_the_road() -> None:
    # The right edge of the road is y = 0; the ego's right side is at y - 1.1485.
    for y, dac in ((WIDTH / 2 + 0.01, 1.0), (WIDTH / 2 - 0.01, 0.0)):
        assert parts(road(y=y), straight(10))[1] == dac
    turned = straight(10)
    turned[0, :, 2] = -0.02 * TIMES  # the path stays, the nose turns right
    assert parts(road(y=WIDTH / 2 + 0.01), turned)[1] == 0


def test_who_stands_cannot_come_too_near() -> None:
    towards = moving(30.0, WIDE / 2, heading=np.pi, speed=5.0)
    assert parts(road((towards, Kind.VEHICLE), speed=0.0), straight(0))[2] == 1
    assert parts(road((towards, Kind.VEHICLE), speed=1.0), straight(1))[2] == 0


def test_who_comes_from_behind_is_no_failure_even_in_an_intersection() -> None:
    # They touch 0.9 s ahead when its centre is at 1.8 - 1.127 - 2 = -1.33 m: behind the rear axle.
    chaser = moving(-6.0, WIDE / 2, speed=3.5)
    scene = road((chaser, Kind.VEHICLE), speed=2.0, limit=2.0, intersection=True)
    assert parts(scene, straight(2)) == (1, 1, 1)


def test_the_bearing_is_from_where_the_ego_is_now() -> None:
    # At 10 m/s the same meeting lies 9 - 1.127 - 2 = 5.87 m ahead of the present rear axle. The
    # collision itself is not the ego's fault: NC stays 1.
    chaser = moving(-12.0, WIDE / 2, speed=12.5)
    assert parts(road((chaser, Kind.VEHICLE)), straight(10)) == (1, 1, 0)


def test_what_leaves_before_it_is_met_is_not_met() -> None:
    gone = moving(30.0, WIDE / 2)
    assert parts(road((gone, Kind.VEHICLE)), straight(10))[0] == 0
    gone[11:] = np.nan
    assert parts(road((gone, Kind.VEHICLE)), straight(10)) == (1, 1, 1)


def test_boxes_meet_as_an_independent_checker_says() -> None:
    checker = pytest.importorskip(
        "commonroad_dc.pycrcc", reason="commonroad-drivability-checker is not installed"
    )
    rng = np.random.default_rng(0)
    centre, heading = rng.uniform(-5, 5, (2, 1000, 2)), rng.uniform(-np.pi, np.pi, (2, 1000))
    size = rng.uniform(0.4, 9.0, (2, 1000, 2))
    ours = boxes_meet(*(corners(*of) for of in zip(centre, heading, size, strict=True)))

    def box(i: int, n: int) -> object:
        (long, wide), (x, y) = size[i, n] / 2, centre[i, n]
        return checker.RectOBB(long, wide, heading[i, n], x, y)

    theirs = np.array([box(0, n).collide(box(1, n)) for n in range(1000)])  # type: ignore[attr-defined]
    np.testing.assert_array_equal(ours, theirs)
    assert 100 < ours.sum() < 900
