"""Chamfer distance of two sets of points, and the success rules of the granular world.

The distance adds both directions, in the unit of the points (the paper's Eq. 5):

    CD(P, Q) = mean over p of min over q of |p - q|  +  mean over q of min over p of |q - p|

Rules are named and versioned; `cost = CD / threshold`, so success is cost < 1 and the cost still
orders the failures. Legend: n, m points.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from djepa.errors import check_name
from djepa.worlds.protocol import Floats

if TYPE_CHECKING:
    from collections.abc import Callable

MAIN, STRICT = 0.18, 0.12  # table units
FINE = 1.23  # divides both thresholds for 200 grains, see tools/grains.py
_PAIRS = 1 << 18  # distances held at a time: 2 MB stay in cache


def chamfer(points: Floats, goal: Floats) -> Floats:
    """(..., n, 2) points, goal (m, 2) or (..., m, 2) -> (...) distance.

    Each set is computed alone in a fixed order: batching does not change a bit.
    """
    points, goal = np.asarray(points, np.float64), np.asarray(goal, np.float64)
    lead = np.broadcast_shapes(points.shape[:-2], goal.shape[:-2])
    p = np.broadcast_to(points, (*lead, *points.shape[-2:])).reshape(-1, *points.shape[-2:])
    q = np.broadcast_to(goal, (*lead, *goal.shape[-2:])).reshape(-1, *goal.shape[-2:])
    step = max(1, _PAIRS // max(1, p.shape[1] * q.shape[1]))
    parts = [_chamfer(p[i : i + step], q[i : i + step]) for i in range(0, len(p), step)]
    return np.concatenate([np.empty(0), *parts]).reshape(lead)


def _chamfer(p: Floats, q: Floats) -> Floats:
    """(N, n, 2), (N, m, 2) -> (N,). Takes the square root after the minimum."""
    squares = (p[:, :, None, 0] - q[:, None, :, 0]) ** 2
    squares += (p[:, :, None, 1] - q[:, None, :, 1]) ** 2
    there, back = np.sqrt(squares.min(axis=2)), np.sqrt(squares.min(axis=1))
    return np.asarray(there.mean(axis=1) + back.mean(axis=1))


def _cost(threshold: float, points: Floats, goal: Floats) -> Floats:
    return np.asarray(chamfer(points, goal) / threshold)


RULES: dict[str, Callable[[Floats, Floats], Floats]] = {
    "granular.v1": partial(_cost, MAIN),
    "granular-strict.v1": partial(_cost, STRICT),
    "granular-fine.v1": partial(_cost, MAIN / FINE),
    "granular-fine-strict.v1": partial(_cost, STRICT / FINE),
}


def get_granular_rule(name: str) -> Callable[[Floats, Floats], Floats]:
    """The cost (..., n, 2), (..., m, 2) -> (...) of that name, or an error with the nearest one."""
    check_name("success rule", name, RULES)
    return RULES[name]
