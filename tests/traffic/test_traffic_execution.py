"""Execution against a second implementation in matrix form, and steps worked out by hand.

The second one is written from the definition of PDMS in NAVSIM v1.1: it works in the world's frame
and takes nothing from the package.
"""

import numpy as np
import pytest
from traffic_scenes import TIMES, straight

from djepa.worlds.traffic.execute import execute, profiles
from djepa.worlds.traffic.plane import Array

STEP, BASE, LIMIT = 0.1, 3.089, np.pi / 3


def turned(angle: Array | float) -> Array | float:
    """In [-π, π)."""
    return (angle + np.pi) % (2 * np.pi) - np.pi


def ten_hertz(ego: Array, poses: Array) -> Array:
    """(8, 3) poses in the ego's frame -> (41, 3) in the world's."""
    c, s = np.cos(ego[2]), np.sin(ego[2])
    world = poses @ np.array([[c, s, 0], [-s, c, 0], [0, 0, 1]]) + ego[:3]
    knots = np.concatenate([ego[None, :3], world])
    knots[:, 2] = np.unwrap(knots[:, 2])
    at, t = np.arange(9) / 2, np.arange(41) / 10
    return np.stack([np.interp(t, at, column) for column in knots.T], 1)


def ridge(matrix: Array, wanted: Array, penalty: Array) -> Array:
    """The x of least |M x - w|² + |P x|², as one least-squares problem."""
    rows = np.concatenate([matrix, penalty])
    return np.linalg.lstsq(rows, np.concatenate([wanted, np.zeros(len(penalty))]), rcond=None)[0]


def fits(poses: Array) -> tuple[Array, Array]:
    """(41, 3) -> 40 speeds and 40 curvatures."""
    n = len(poses) - 1
    integral = np.tril(np.full((n, n), STEP))  # of the rates of change, after ...
    integral[:, 0] = 1.0  # ... the first value
    way = np.stack([np.cos(poses[:-1, 2]), np.sin(poses[:-1, 2])], 1)
    moved = (way[:, :, None] * integral[:, None, :] * STEP).reshape(2 * n, n)
    changes = np.diff(np.eye(n)[1:], axis=0)  # of the acceleration
    speed = integral @ ridge(moved, np.diff(poses[:, :2], axis=0).ravel(), 1e-4**0.5 * changes)
    penalty = np.diag([1e-10**0.5] + [1e-2**0.5] * (n - 1))
    bend = ridge(np.diag(speed * STEP) @ integral, turned(np.diff(poses[:, 2])), penalty)
    return speed, integral @ bend


def steering_rate(errors: Array, forecast: Array, bends: Array) -> float:
    """One constant rate for ten steps; errors are lateral, of heading, and the steering angle."""
    A, B, g = np.eye(3), np.zeros(3), np.zeros(3)
    for v, k in zip(forecast, bends, strict=True):
        step = np.array([[1, v * STEP, 0], [0, 1, v * STEP / BASE], [0, 0, 1]])
        A, B = step @ A, step @ B + [0, 0, STEP]
        g = step @ g - [0, v * k * STEP, 0]
    z = A @ errors + g
    z[1:] = turned(z[1:])
    Q = np.diag([1.0, 10.0, 0.0])
    return float(-(B @ Q @ z) / (B @ Q @ B + 1.0))


def drive(ego: Array, candidate: Array) -> tuple[Array, int]:
    """(6,), (8, 3) -> (41, 6) states, and how often the stop rule was used."""
    poses = ten_hertz(ego, candidate)
    speed, bend = fits(poses)
    later = np.minimum(np.arange(40)[:, None] + np.arange(11), 39)
    states, stops = [ego], 0
    for t in range(40):
        x, y, h, v, a, steer = states[-1]
        goal = speed[later[t, 10]]
        if v <= 0.2 and goal <= 0.2:
            wanted, rate, stops = -0.5 * (v - goal), 0.0, stops + 1
        else:
            wanted = -(1.0 * 10.0 * (v - goal)) / (1.0**2 * 10.0 + 1.0)
            px, py, ph = poses[t]
            lateral = np.array([-np.sin(ph), np.cos(ph)]) @ [x - px, y - py]
            forecast = v + wanted * STEP * np.arange(10)
            errors = np.array([lateral, turned(h - ph), steer])
            rate = steering_rate(errors, forecast, bend[later[t, :10]])
        a = a + STEP / (STEP + 0.2) * (wanted - a)
        far = v * STEP
        x, y, h = x + far * np.cos(h), y + far * np.sin(h), h + far * np.tan(steer) / BASE
        steer = steer + STEP / (STEP + 0.05) * rate * STEP
        steer = np.clip(steer, -LIMIT, LIMIT)
        states.append(np.array([x, y, h, v + a * STEP, a, steer]))
    return np.array(states), stops


def arc(s: Array, bend: float) -> Array:
    """(8,) metres along an arc -> (8, 3) poses, roughly."""
    return np.stack([s, bend * s**2 / 2, bend * s], 1)


def agree(ego: Array, candidate: Array) -> tuple[Array, int]:
    states, stops = drive(ego, candidate)
    np.testing.assert_allclose(execute(ego, candidate[None])[0], states, rtol=0, atol=1e-9)
    return states, stops


@pytest.mark.parametrize("seed", range(12))
def test_any_motion_is_executed_as_by_the_second_implementation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    v = rng.uniform(0, 20)
    s = np.maximum.accumulate(v * TIMES * rng.uniform(0.3, 1.3) + rng.normal() * TIMES**2 / 2)
    candidate = arc(s, rng.normal(0, 0.02)) + rng.normal(0, 0.05, (8, 3))
    pose = rng.uniform([-50, -50, -3], [50, 50, 3])
    agree(np.array([*pose, v, rng.normal(), rng.normal() * 0.05]), candidate)


def test_a_stop_is_executed_as_by_the_second_implementation() -> None:
    # From 1.2 m/s to standing in 2 s, and a turned wheel that the stop rule leaves as it is.
    s = 1.2 * np.minimum(TIMES, 2.0) - 0.3 * np.minimum(TIMES, 2.0) ** 2
    states, stops = agree(np.array([3.0, -2.0, 0.4, 1.2, -0.5, 0.1]), arc(s, 0.05))
    assert stops > 5
    assert np.ptp(states[-stops:, 5]) == 0


def test_starting_to_roll_ends_the_stop_rule_when_more_than_20_cm_per_second_are_wanted() -> None:
    # It creeps: the speed wanted 1 s ahead rises through 0.2 m/s while the car is slower.
    _, stops = agree(np.array([0.0, 0.0, 1.0, 0.1, 0.0, 0.02]), arc(0.05 * TIMES**2, 0.1))
    assert 2 < stops < 30


def circle(radius: float, speed: float) -> Array:
    """(8, 3) poses to the left."""
    angle = speed * TIMES / radius
    return np.stack([radius * np.sin(angle), radius * (1 - np.cos(angle)), angle], 1)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_steering_limit_is_60_degrees(sign: float) -> None:
    # A circle of 1.5 m: no wheel turns that far.
    start = np.array([0.0, 0.0, 0.0, 4.0, 0.0, 0.0])
    states, _ = agree(start, circle(1.5, 4.0) * [1, sign, sign])
    assert np.abs(states[:, 5]).max() == pytest.approx(np.pi / 3)


def test_headings_that_jump_by_a_full_turn_go_on() -> None:
    # The last two of 0.5, 1, ... 4 rad are beyond 180 degrees.
    start = np.array([0.0, 0.0, 0.0, 10.0, 0.0, 0.3])
    whole = circle(10.0, 10.0)
    wanted, _ = agree(start, whole)
    whole[6:, 2] -= 2 * np.pi
    np.testing.assert_allclose(execute(start, whole[None])[0], wanted, rtol=0, atol=1e-9)


def test_one_step_of_the_steering_by_hand() -> None:
    # 10 m/s along a straight line, v dt = 1 m, with the wheel at 0.03 rad; WB = 3.089 m.
    # Kept for ten steps it turns the car by 10 · 0.03 / WB = 0.097119 rad and moves it aside by
    # (0 + 1 + ... + 9) · 0.03 / WB = 45 · 0.03 / WB = 0.437035 m.
    # A rate of 1 rad/s turns it by 0.1 · (0 + 1 + ... + 9) / WB = 4.5 / WB = 1.456782 rad and
    # moves it by 0.1 · C(10, 3) / WB = 12 / WB = 3.884752 m.
    # rate = -(3.884752 · 0.437035 + 10 · 1.456782 · 0.097119) / (3.884752² + 10 · 1.456782² + 1)
    #      = -(1.697771 + 1.414812) / (15.091298 + 21.222132 + 1) = -0.0834172 rad/s
    # The wheel follows by 0.1 / (0.1 + 0.05) = 2/3: 0.03 - 2/3 · 0.00834172.
    states = execute(np.array([0.0, 0.0, 0.0, 10.0, 0.0, 0.03]), straight(10))
    assert states[0, 1, 5] == pytest.approx(0.0244389, abs=2e-7)
    # The heading moved with the old angle: 10 · tan(0.03) / WB · 0.1.
    assert states[0, 1, 2] == pytest.approx(np.tan(0.03) / 3.089)


def test_a_stop_by_hand() -> None:
    # 0.1 m/s, standing is wanted: -0.5 · 0.1 = -0.05 m/s², of which the lag lets a third through:
    # 0.1 - 0.1 · 0.05 / 3. The other rule would give -10 · 0.1 / 11 = -0.0909 m/s².
    states = execute(np.array([0.0, 0.0, 0.0, 0.1, 0.0, 0.2]), straight(0))
    assert states[0, 1, 3] == pytest.approx(0.1 - 0.005 / 3)
    assert (states[0, :, 5] == 0.2).all()
    # Above 0.2 m/s the other rule holds: 0.21 - 0.1 · (10 · 0.21 / 11) / 3.
    states = execute(np.array([0.0, 0.0, 0.0, 0.21, 0.0, 0.0]), straight(0))
    assert states[0, 1, 3] == pytest.approx(0.21 - 0.021 / 3.3)


def crawl(step: float, bend: Array | float) -> Array:
    """(41, 3) poses `step` metres apart; each moves along its own heading, with curvatures."""
    h = np.concatenate([[0.0], np.cumsum(np.full(40, step) * bend)])
    way = step * np.stack([np.cos(h), np.sin(h)], 1)[:-1]
    return np.concatenate([np.concatenate([np.zeros((1, 2)), np.cumsum(way, 0)]), h[:, None]], 1)


def test_the_penalty_of_the_first_curvature_by_hand() -> None:
    # Steps of 10 µm that turn by 1 µrad: 1e-6 / 1e-5 = 0.1 / m. The fit has 40 equal rows of 1e-5
    # and the penalty 1e-10, as one more: κ = 0.1 · 40 · 1e-10 / (40 · 1e-10 + 1e-10) = 4 / 41.
    # That it changes along the way costs 1e-2 and gains nothing at this size.
    speed, bend = profiles(crawl(1e-5, 0.1)[None])
    np.testing.assert_allclose(speed, 1e-4, rtol=1e-6)
    np.testing.assert_allclose(bend, 4 / 41, rtol=1e-6)


@pytest.mark.parametrize("step", [1e-4, 1e-2, 0.3, 1.5])
def test_both_fits_are_those_of_the_second_implementation(step: float) -> None:
    # A speed that jumps, and a curvature that jumps: what the penalties smooth shows.
    poses = crawl(step, np.where(np.arange(40) < 17, 0.02, -0.05))
    poses[30:, 2] += 2 * np.pi  # a full turn more is no turn
    poses[25:, :2] += 3 * (poses[25:, :2] - poses[25, :2])
    for ours, wanted in zip(profiles(poses[None]), fits(poses), strict=True):
        np.testing.assert_allclose(ours[0], wanted, rtol=0, atol=1e-9)
    assert np.abs(np.diff(fits(poses)[0])).max() > step / 4  # 0.1 s of it
