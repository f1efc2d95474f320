import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from djepa.errors import DjepaError
from djepa.worlds.push import PushWorld
from djepa.worlds.rules import ANGLE_TOLERANCE, POSITION_TOLERANCE, angle_error, get_rule
from djepa.worlds.shapes import SHAPES

PLAIN, SYMMETRIC = "push.v1", "push-symmetric.v1"
every_shape = pytest.mark.parametrize("shape", SHAPES)
STATES = arrays(np.float64, (6, 10), elements=st.floats(-700, 700))
NEAR = arrays(np.float64, (6, 10), elements=st.floats(-9, 9))


def pose(x=250.0, y=250.0, angle=0.0, pusher=(100.0, 100.0)) -> np.ndarray:
    return np.array([*pusher, x, y, angle, 0, 0, 0, 0, 0], dtype=np.float64)


def judge(goal, state, rule=PLAIN, shape="T") -> tuple[bool, float]:
    success, cost = PushWorld(shape, rule).judge(goal, state)
    return bool(success), float(cost)


def test_hand_worked_costs():
    goal = pose()
    assert judge(goal, goal) == (True, 0.0)
    assert judge(goal, pose(x=253.0, y=254.0)) == (True, 0.25)  # 5 of 20
    assert judge(goal, pose(x=253.0, pusher=(104.0, 100.0))) == (True, 0.25)  # jointly 5 of 20
    assert judge(goal, pose(x=262.0, y=266.0)) == (False, 1.0)  # 20 of 20: not below
    assert judge(goal, pose(pusher=(130.0, 140.0))) == (False, 2.5)  # the pusher counts too
    success, cost = judge(goal, pose(angle=math.pi / 18))
    assert success
    assert cost == pytest.approx(0.5, abs=1e-14)
    assert judge(goal, pose(x=253.0, y=254.0, angle=math.pi / 3))[1] == pytest.approx(3.0)


def test_velocities_do_not_count():
    fast = pose()
    fast[5:] = 1e4
    assert judge(pose(), fast) == (True, 0.0)


def test_exactly_at_a_threshold_is_a_failure():
    goal = pose(0.0, 0.0, 0.0, (0.0, 0.0))
    at, below = POSITION_TOLERANCE, np.nextafter(POSITION_TOLERANCE, 0.0)
    for axis in range(4):
        state = goal.copy()
        state[axis] = at
        assert judge(goal, state) == (False, 1.0)
        state[axis] = -below
        assert judge(goal, state)[0]
    for sign in (1, -1):
        assert not judge(goal, pose(0.0, 0.0, sign * ANGLE_TOLERANCE, (0.0, 0.0)))[0]
        assert judge(goal, pose(0.0, 0.0, sign * (ANGLE_TOLERANCE - 1e-14), (0.0, 0.0)))[0]


@pytest.mark.parametrize("turns", [-100, -3, -2, -1, 1, 2, 3, 100])
@pytest.mark.parametrize("base", [0.0, 3.1, -3.1])
def test_whole_turns_do_not_count(turns, base):
    goal = pose(angle=base)
    assert judge(goal, pose(angle=base + turns * 2 * math.pi))[1] < 1e-10
    success, cost = judge(goal, pose(angle=base + turns * 2 * math.pi - math.pi / 4))
    assert not success
    assert cost == pytest.approx(9 / 4)
    assert judge(goal, pose(angle=base + turns * 2 * math.pi + math.pi / 10))[0]


@given(a=st.floats(-1e3, 1e3), b=st.floats(-1e3, 1e3))
def test_angle_error_is_the_smallest_difference(a, b):
    error = float(angle_error(np.array(a), np.array(b)))
    assert 0.0 <= error <= math.pi
    assert error == pytest.approx(abs(math.remainder(a - b, 2 * math.pi)), abs=1e-12)
    assert error == pytest.approx(float(angle_error(np.array(b), np.array(a))), abs=1e-12)


@pytest.mark.parametrize("rule", [PLAIN, SYMMETRIC])
@given(goal=arrays(np.float64, 10, elements=st.floats(0, 500)), off=NEAR)
@settings(max_examples=80, deadline=None)
def test_success_is_cost_below_one_and_both_errors_below_their_tolerance(rule, goal, off):
    off[:, 4] *= 0.1
    states = goal + off
    success, cost = PushWorld("T", rule).judge(goal, states)
    assert (success == (cost < 1.0)).all()
    position = np.linalg.norm(states[:, :4] - goal[:4], axis=1)
    angle = angle_error(states[:, 4], goal[4])
    assert (success == ((position < POSITION_TOLERANCE) & (angle < ANGLE_TOLERANCE))).all()


@pytest.mark.parametrize("shape", ["T", "L", "small-T"])
@given(goal=arrays(np.float64, 10, elements=st.floats(-700, 700)), states=STATES)
@settings(max_examples=40, deadline=None)
def test_shapes_without_symmetry_have_one_rule(shape, goal, states):
    plain, symmetric = PushWorld(shape, PLAIN), PushWorld(shape, SYMMETRIC)
    for a, b in zip(plain.judge(goal, states), symmetric.judge(goal, states), strict=True):
        assert a.tobytes() == b.tobytes()


@every_shape
@given(goal=arrays(np.float64, 10, elements=st.floats(-700, 700)), states=STATES)
@settings(max_examples=20, deadline=None)
def test_the_symmetric_rule_never_costs_more(shape, goal, states):
    plain = PushWorld(shape, PLAIN).judge(goal, states)[1]
    assert (PushWorld(shape, SYMMETRIC).judge(goal, states)[1] <= plain).all()


@pytest.mark.parametrize(
    ("shape", "degrees"),
    [("square", 90), ("square", 180), ("square", -90), ("+", 90), ("+", 270), ("I", 180)],
)
def test_a_turn_by_the_symmetry_is_solved(shape, degrees):
    goal, turned = pose(angle=0.4), pose(angle=0.4 + math.radians(degrees))
    success, cost = judge(goal, turned, SYMMETRIC, shape)
    assert success
    assert cost < 1e-10
    assert not judge(goal, turned, PLAIN, shape)[0]


@pytest.mark.parametrize(("shape", "degrees"), [("square", 45), ("+", 45), ("I", 90), ("Z", 90)])
def test_another_turn_is_not(shape, degrees):
    assert not judge(pose(), pose(angle=math.radians(degrees)), SYMMETRIC, shape)[0]


@pytest.mark.parametrize("angle", [0.0, 0.9, -2.5, 7.0])
def test_z_turned_half_way_round_its_centre_of_gravity(angle):
    """Its origin moves by twice the way to the centre (20, 0), turned by the angle."""
    goal = pose(angle=angle)
    turned = pose(250.0 + 40.0 * math.cos(angle), 250.0 + 40.0 * math.sin(angle), angle + math.pi)
    world = PushWorld("Z", SYMMETRIC)
    corners = [
        sorted(map(tuple, world.block_vertices(state).reshape(-1, 2).round(6).tolist()))
        for state in (goal, turned)
    ]
    assert corners[0] == corners[1]  # it covers the same canvas
    success, cost = world.judge(goal, turned)
    assert success
    assert cost < 1e-10
    assert not judge(goal, turned, PLAIN, "Z")[0]
    assert not judge(goal, pose(angle=angle + math.pi), SYMMETRIC, "Z")[0]  # about the origin


@pytest.mark.parametrize("rule", [PLAIN, SYMMETRIC])
@every_shape
def test_leading_axes_and_goals_per_state(shape, rule):
    world, rng = PushWorld(shape, rule), np.random.default_rng(0)
    goals, states = rng.uniform(0, 500, (2, 3, 4, 10))
    before = goals.copy(), states.copy()
    success, cost = world.judge(goals, states)
    assert success.shape == cost.shape == (3, 4)
    assert success.dtype == bool
    for index in np.ndindex(3, 4):
        assert world.judge(goals[index], states[index]) == (success[index], cost[index])
    assert world.judge(goals[0, 0], states)[1][0, 0] == cost[0, 0]
    assert (goals == before[0]).all()
    assert (states == before[1]).all()


def test_a_misspelt_rule_is_corrected():
    with pytest.raises(DjepaError, match=r"Unknown success rule .* Did you mean 'push-symmetric"):
        get_rule("push-symetric.v1")
    with pytest.raises(DjepaError, match=r"Did you mean 'push\.v1'"):
        PushWorld("T", "push.v2")
