"""Comfort against its definition in NAVSIM v1.1, on motions that other windows smooth otherwise.

Each motion is scaled until one of the six limits is just kept or just broken, while the other five
are kept. The expected values come from `savgol_filter` with windows written out here. Nothing but
that one window, order or limit decides then.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.signal import savgol_filter

from djepa.worlds.traffic.comfort import comfortable
from djepa.worlds.traffic.plane import Array
from djepa.worlds.traffic.scene import A, H

T = 0.1 * np.arange(41)
ZERO = np.zeros(41)


def smooth(values: Array, window: int, order: int, derivative: int = 0) -> Array:
    return savgol_filter(values, window, order, deriv=derivative, delta=0.1)


def shares(a: Array, h: Array) -> dict[str, float]:
    """Acceleration and heading -> how much of each limit they use; 1 breaks it."""
    lon = smooth(a, 41, 2)
    jerks = [smooth(smooth(x, 8, 2), 41, 2, 1) for x in (np.abs(a), a)]
    return {
        "acceleration": lon.max() / 2.40,
        "braking": lon.min() / -4.05,
        "jerk of |a|": np.abs(jerks[0]).max() / 8.37,
        "jerk": np.abs(jerks[1]).max() / 4.13,
        "yaw acceleration": np.abs(smooth(h, 5, 3, 2)).max() / 1.93,
        "yaw rate": np.abs(smooth(h, 5, 2, 1)).max() / 0.95,
    }


def pulse(middle: float, width: float) -> Array:
    return np.exp(-(((T - middle) / width) ** 2) / 2)


FLIP = (-1.0) ** np.arange(41)


@dataclass(frozen=True)
class Motion:
    """Acceleration and heading, to be scaled; what it breaks first."""

    limit: str
    a: Array
    h: Array


MOTIONS = {
    # A short pulse: over all 4 s a parabola hardly follows it, over 1.5 s it does.
    "pulse": Motion("acceleration", 0.2 + pulse(2.0, 0.3), ZERO),
    "brake": Motion("braking", -1 - 0.3 * pulse(2.0, 0.2), ZERO),
    # The derivative of the parabola is largest at its ends. Near them the first smoothing counts.
    "dip": Motion("jerk", -pulse(2.0, 0.3), ZERO),
    "start": Motion("jerk", 0.15 - pulse(0.0, 0.35), ZERO),
    "end": Motion("jerk", 0.15 - pulse(4.0, 0.35), ZERO),
    "spike": Motion("jerk", 0.05 - (np.arange(41) == 1), ZERO),
    # It changes sign at every step, so that its mean has no jerk and its size has.
    "shake": Motion("jerk of |a|", FLIP * pulse(2.0, 0.4), ZERO),
    "shake at the end": Motion("jerk of |a|", FLIP * pulse(4.0, 0.4), ZERO),
    # Swerves: quick ones break the acceleration of the yaw, slow ones its rate.
    "swerve": Motion("yaw acceleration", ZERO, np.sin(3.0 * T)),
    "swerve at the end": Motion("yaw acceleration", ZERO, np.maximum(T - 3.4, 0) ** 3),
    "jerked wheel": Motion("yaw acceleration", ZERO, -pulse(2.0, 0.2)),
    "bend": Motion("yaw rate", ZERO, np.tanh((T - 2.0) / 0.8)),
    "bend at the end": Motion("yaw rate", ZERO, -np.exp((T - 4.0) / 0.8)),
}


@pytest.mark.parametrize("use", [0.995, 1.005])
@pytest.mark.parametrize("name", MOTIONS)
def test_a_motion_is_comfortable_up_to_the_limit_that_it_meets_first(name: str, use: float) -> None:
    motion = MOTIONS[name]
    scale = use / shares(motion.a, motion.h)[motion.limit]
    states = np.zeros((1, 41, 6))
    states[0, :, A], states[0, :, H] = scale * motion.a, scale * motion.h
    used = shares(states[0, :, A], states[0, :, H])
    assert used[motion.limit] == pytest.approx(use)
    others = {limit: share for limit, share in used.items() if limit != motion.limit}
    assert max(others.values()) < 0.99, others
    assert comfortable(states)[0] == (use < 1)
