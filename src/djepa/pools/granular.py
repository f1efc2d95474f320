"""The granular pool: 63 transformations of five recorded pushes.

A push is a row (start x, start y, end x, end y). `m` is the difficulty's multiplier. Arithmetic is
float64, the pool float32. IDs 1..63; ID 1 is the untransformed anchor and may be chosen.
"""

import hashlib
import math

import numpy as np
import numpy.typing as npt

from djepa.checks import check_floats, check_int
from djepa.errors import DjepaError, check_name
from djepa.pools.pool import Pool

Array64 = npt.NDArray[np.float64]
Made = tuple[str, Array64]

REPLAY_ROWS = 20
ROWS = 5
BOUND = 4.0
DIFFICULTIES = {"conservative": 0.75, "standard": 1.0, "broad": 1.25}
SCALES = (1.0, 0.7, 0.85, 1.15, 1.3)
ROTATIONS = (0, -10, 10, -20, 20, -30, 30)
SHIFTS = (-1.75, -1.25, -0.75, -0.25, 0.25, 0.75, 1.25, 1.75)
RADII = (0.15, 0.30)
ANGLES = range(0, 360, 45)
HASH_DOMAIN = "dajepa-granular-formal-pool-v1"


def _scale_rotate(pushes: Array64, factor: float, degrees: float) -> Array64:
    """(5, 4) displacements scaled by `factor` and turned counter-clockwise; starts stay."""
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    x, y = (pushes[:, 2:] - pushes[:, :2]).T
    turned = np.stack((cos * x - sin * y, sin * x + cos * y), axis=1)
    return np.hstack((pushes[:, :2], pushes[:, :2] + factor * turned))


def _time_shift(pushes: Array64, shift: float) -> Array64:
    """(5, 4) row k becomes the value at position (k - shift) mod 5, linear between rows."""
    position = np.mod(np.arange(ROWS) - shift, ROWS)
    before = np.floor(position).astype(np.int64)
    share: Array64 = (position - before)[:, None]
    shifted: Array64 = (1 - share) * pushes[before % ROWS] + share * pushes[(before + 1) % ROWS]
    return shifted


def _move_ends(pushes: Array64, radius: float, angle: float) -> Array64:
    """(5, 4) every end moved by `radius` in direction `angle` (radians)."""
    return pushes + radius * np.array((0.0, 0.0, math.cos(angle), math.sin(angle)))


def _hashed(pushes: Array64, key: str, m: float) -> Array64:
    """(5, 4) shift, scale, turn and endpoint offset taken from the four words of a SHA-256."""
    digest = hashlib.sha256(key.encode()).digest()
    words = (int.from_bytes(digest[at : at + 8], "big") for at in range(0, 32, 8))
    u0, u1, u2, u3 = (word / 2**64 for word in words)
    shifted = _time_shift(pushes, m * (2 * u2 - 1) * 2.5)
    turned = _scale_rotate(shifted, 1 + m * (2 * u0 - 1) * 0.2, m * (2 * u1 - 1) * 18)
    return _move_ends(turned, m * 0.12 * (0.5 + 0.5 * u0), 2 * math.pi * u3)


def _transformed(pushes: Array64, start_id: str, goal_id: str, m: float) -> list[Made]:
    """The 35 + 8 + 16 + 4 transformations in ID order."""
    made = [
        ("scale_rotate", _scale_rotate(pushes, 1 + m * (scale - 1), m * degrees))
        for scale in SCALES
        for degrees in ROTATIONS
    ]
    made += [("time_shift", _time_shift(pushes, m * shift)) for shift in SHIFTS]
    made += [
        ("endpoint", _move_ends(pushes, m * radius, math.radians(angle)))
        for radius in RADII
        for angle in ANGLES
    ]
    keys = [f"{HASH_DOMAIN}:{start_id}:{goal_id}:hash-{letter}:0" for letter in "abcd"]
    return made + [("hash", _hashed(pushes, key, m)) for key in keys]


def granular_pool(
    replay: npt.ArrayLike,
    start_id: str,
    goal_id: str,
    offset: int,
    difficulty: str = "standard",
) -> Pool:
    """63 candidates (63, 5, 4) from rows `offset`..`offset + 4` of `replay` (20, 4).

    The pool is a function of its arguments: no generator is involved and the seed is 0.
    """
    recorded = check_floats("The replay", replay, (REPLAY_ROWS, 4))
    for what, name in (("start_id", start_id), ("goal_id", goal_id)):
        if not isinstance(name, str):
            raise DjepaError(f"{what} must be a string, not {name!r}.")
    offset = check_int("The offset", offset, 0)
    if offset > REPLAY_ROWS - ROWS:
        raise DjepaError(f"The offset must be 0..{REPLAY_ROWS - ROWS}, not {offset}.")
    check_name("difficulty", str(difficulty), DIFFICULTIES)
    pushes = recorded[offset : offset + ROWS].astype(np.float64)
    made = _transformed(pushes, start_id, goal_id, DIFFICULTIES[difficulty])
    actions = np.stack([np.clip(rows, -BOUND, BOUND) for _, rows in made]).astype(np.float32)
    if len({sequence.tobytes() for sequence in actions}) < len(actions):
        raise DjepaError(
            "Two transformations of the replay are identical: its pushes are equal, have no "
            "length, or lie outside ±4. Choose another offset."
        )
    return Pool(
        ids=np.arange(1, len(actions) + 1),
        actions=actions,
        families=tuple(family for family, _ in made),
        centres=np.zeros(len(actions), dtype=np.int64),
        seed=0,
    )
