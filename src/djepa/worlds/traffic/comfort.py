"""Comfort: six limits on the smoothed motion, all of which must hold (NAVSIM v1)."""

from functools import cache

import numpy as np
from scipy.signal import savgol_filter

from djepa.worlds.traffic.plane import Array, Mask
from djepa.worlds.traffic.scene import DT, STEPS, A, H

ALL = STEPS + 1  # a window over the whole motion
LON_ACCEL = (-4.05, 2.40)  # m/s²
JERK, LON_JERK = 8.37, 4.13  # m/s³
YAW_ACCEL, YAW_RATE = 1.93, 0.95  # rad/s², rad/s


def comfortable(states: Array) -> Mask:
    """(K, 41, 6) -> (K,). The bicycle has no lateral acceleration, so that limit always holds."""
    a, h = states[..., A], np.unwrap(states[..., H], axis=1)
    lon = smooth(a, ALL, 2)
    rates = (
        (smooth(smooth(np.abs(a), 8, 2), ALL, 2, 1), JERK),
        (smooth(smooth(a, 8, 2), ALL, 2, 1), LON_JERK),
        (smooth(h, 5, 3, 2), YAW_ACCEL),
        (smooth(h, 5, 2, 1), YAW_RATE),
    )
    good = (lon > LON_ACCEL[0]) & (lon < LON_ACCEL[1])
    for values, limit in rates:
        good &= np.abs(values) < limit
    return np.asarray(good.all(1))


def smooth(values: Array, window: int, order: int, derivative: int = 0) -> Array:
    """(K, 41) -> (K, 41) by a Savitzky-Golay filter, rounded to 8 decimals."""
    return np.round(values @ _filter(window, order, derivative), 8)


@cache
def _filter(window: int, order: int, derivative: int) -> Array:
    """(41, 41) matrix of the linear filter: its response to each unit vector."""
    return savgol_filter(np.eye(ALL), window, order, deriv=derivative, delta=DT, axis=1)
