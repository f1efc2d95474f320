"""Execution: a controller steers a kinematic bicycle along the trajectory (NAVSIM v1).

Everything is computed in the frame of the ego car: results do not depend on the world's axes.

Legend: B candidates, of one or more scenes, M = 41 reference poses at 10 Hz.
"""

import numpy as np

from djepa.worlds.traffic.plane import Array, to_world, wrap
from djepa.worlds.traffic.scene import (
    DT,
    EVERY,
    POSES,
    STEER,
    STEPS,
    WHEEL_BASE,
    A,
    H,
    V,
    X,
    Y,
    check_candidates,
)

LOOK = 10  # steps that the controller looks ahead
JERK, CURVATURE_RATE, CURVATURE = 1e-4, 1e-2, 1e-10  # penalties of the two fits
Q_SPEED, R_SPEED = 10.0, 1.0
Q_LATERAL, Q_HEADING, R_STEER = 1.0, 10.0, 1.0
STOPPED, STOP_GAIN = 0.2, 0.5  # m/s, 1/s
LAG_A, LAG_STEER = DT / (DT + 0.2), DT / (DT + 0.05)
MAX_STEER = np.pi / 3


def execute(ego: Array, candidates: Array) -> Array:
    """(6,) or (B, 6) start states, (B, 8, 3) poses -> (B, 41, 6) states in the world's frame."""
    return follow(ego, dense(check_candidates(candidates)))


def dense(candidates: Array) -> Array:
    """(B, 8, 3) poses, 0.5 s apart -> (B, 41, 3) poses at 10 Hz; the first is the current pose."""
    knots = np.concatenate([np.zeros_like(candidates[:, :1]), candidates], 1)
    knots[..., 2] = np.unwrap(knots[..., 2], axis=1)
    at = np.arange(STEPS + 1) / EVERY
    left = np.minimum(at.astype(int), POSES - 1)
    share = (at - left)[:, None]
    return knots[:, left] * (1 - share) + knots[:, left + 1] * share


def follow(ego: Array, reference: Array) -> Array:
    """(6,) or (B, 6) start states, (B, 41, 3) poses in the ego's frame -> (B, 41, 6) states."""
    ego = np.broadcast_to(ego, (len(reference), 6))
    speed, curvature = profiles(reference)
    state = np.zeros((len(reference), 6))
    state[:, V:] = ego[:, V:]
    states = [state]
    for t in range(STEPS):
        command = _commands(t, state, reference[:, t], speed, curvature)
        state = _step(state, *command)
        states.append(state)
    result = np.stack(states, 1)
    result[..., :3] = to_world(ego[:, None, :3], result[..., :3])
    return result


def profiles(reference: Array) -> tuple[Array, Array]:
    """(B, M, 3) poses -> fitted (B, M - 1) speeds and (B, M - 1) curvatures.

    Two ridge fits: displacement_i = (cos h_i, sin h_i) v_i dt with v_i = v_0 + dt Σ a_j, and
    heading step_i = v_i κ_i dt with κ_i = κ_0 + dt Σ κ'_j.
    """
    n = reference.shape[1] - 1
    sums = np.tril(np.ones((n, n)))  # value_i = first + dt · (rates before i)
    sums[:, 1:] *= DT
    moved, heading = np.diff(reference[..., :2], axis=1), reference[:, :-1, 2]
    # The two rows of a step project on its heading: cos² + sin² = 1 leaves one row.
    forward = moved[..., 0] * np.cos(heading) + moved[..., 1] * np.sin(heading)
    rough = np.zeros((n - 2, n))
    rough[np.arange(n - 2), np.arange(1, n - 1)] = -1
    rough[np.arange(n - 2), np.arange(2, n)] = 1
    normal = DT**2 * sums.T @ sums + JERK * rough.T @ rough
    speed = np.linalg.solve(normal, DT * sums.T @ forward.T).T @ sums.T
    turned = wrap(np.diff(reference[..., 2], axis=1))
    ridge = np.diag([CURVATURE] + [CURVATURE_RATE] * (n - 1))
    rows = DT * speed[..., None] * sums  # (B, n, n)
    normal = rows.transpose(0, 2, 1) @ rows + ridge
    fitted = np.linalg.solve(normal, (rows * turned[..., None]).sum(1)[..., None])[..., 0]
    return speed.astype(np.float64), fitted @ sums.T


def _commands(
    t: int, state: Array, wanted: Array, speed: Array, curvature: Array
) -> tuple[Array, Array]:
    """Acceleration and steering rate, (B,) each, by two linear-quadratic regulators."""
    last = speed.shape[1] - 1
    v, goal, T = state[:, V], speed[:, min(t + LOOK, last)], LOOK * DT
    a = -(T * Q_SPEED * (v - goal)) / (T**2 * Q_SPEED + R_SPEED)
    stop = (v <= STOPPED) & (goal <= STOPPED)
    a = np.where(stop, -STOP_GAIN * (v - goal), a)

    steps = np.arange(LOOK)
    vdt = (v[:, None] + a[:, None] * DT * steps) * DT  # (B, 10)
    bends = curvature[:, np.minimum(t + steps, last)]
    dx, dy = state[:, X] - wanted[:, 0], state[:, Y] - wanted[:, 1]
    lateral = -np.sin(wanted[:, 2]) * dx + np.cos(wanted[:, 2]) * dy
    turn = wrap(state[:, H] - wanted[:, 2])
    # Without steering: heading error after i steps, then the sum of lateral steps.
    drift = _before(vdt * (state[:, STEER, None] / WHEEL_BASE - bends))
    free_lateral = lateral + (vdt * (turn[:, None] + drift[:, :-1])).sum(1)
    free_turn = wrap(turn + drift[:, -1])
    # What a steering rate of 1 adds.
    swing = _before(vdt * steps * DT / WHEEL_BASE)
    by_lateral, by_turn = (vdt * swing[:, :-1]).sum(1), swing[:, -1]
    pull = Q_LATERAL * by_lateral * free_lateral + Q_HEADING * by_turn * free_turn
    rate = -pull / (Q_LATERAL * by_lateral**2 + Q_HEADING * by_turn**2 + R_STEER)
    return a, np.where(stop, 0.0, rate)


def _before(steps: Array) -> Array:
    """(B, n) -> (B, n + 1) sums of the entries before each one, and of all."""
    return np.concatenate([np.zeros_like(steps[:, :1]), np.cumsum(steps, 1)], 1)


def _step(state: Array, a: Array, rate: Array) -> Array:
    """One Euler step of the bicycle; acceleration and steering angle lag behind their commands."""
    new = np.empty_like(state)
    x, y, h, v, old_a, steer = state.T
    new[:, A] = old_a + LAG_A * (a - old_a)
    new[:, STEER] = np.clip(steer + LAG_STEER * rate * DT, -MAX_STEER, MAX_STEER)
    new[:, X], new[:, Y] = x + v * np.cos(h) * DT, y + v * np.sin(h) * DT
    new[:, H] = h + v * np.tan(steer) / WHEEL_BASE * DT
    new[:, V] = v + new[:, A] * DT
    return new
