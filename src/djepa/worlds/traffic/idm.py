"""The intelligent driver model (Treiber et al., 2000): acceleration behind a leader."""

from dataclasses import dataclass

import numpy as np

from djepa.worlds.traffic.plane import Array

FREE = 1e6  # m, the gap without a leader


@dataclass(frozen=True)
class Style:
    """IDM parameters of a driver; numbers or (C,) arrays."""

    speed: Array | float = 15.0  # m/s, wanted
    gap: Array | float = 1.0  # m, kept when standing
    headway: Array | float = 1.5  # s
    accel: Array | float = 1.5  # m/s², at most
    brake: Array | float = 3.0  # m/s², comfortable
    power: float = 10.0


def idm(style: Style, v: Array, gap: Array, leader: Array) -> Array:
    """Speeds, gaps to the leader and its speeds -> accelerations.

    a = a_max (1 - (v / v_0)^p - (g* / g)²),  g* = g_0 + v T + v (v - v_l) / (2 √(a_max b))
    """
    closing = v * (v - leader) / (2 * np.sqrt(np.multiply(style.accel, style.brake)))
    wanted = style.gap + np.maximum(v * style.headway + closing, 0)
    free = (v / np.maximum(style.speed, 0.1)) ** style.power
    return style.accel * (1 - free - (wanted / np.maximum(gap, 0.1)) ** 2)
