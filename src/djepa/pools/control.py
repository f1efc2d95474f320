"""Pools around recorded controls, by the name of their profile.

Legend: H horizon, A action width, C centres.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from djepa.pools.decoy import decoy_pool, per_centre
from djepa.pools.pool import Pool
from djepa.pools.profiles import PROFILES, control_pool

DECOY = "decoy"
CONTROL_PROFILES = (*PROFILES, DECOY)
PIXELS = "visual-shape"  # in pixels, so the push world's alone
ANYWHERE = tuple(name for name in CONTROL_PROFILES if name != PIXELS)


@dataclass(frozen=True)
class PoolSpec:
    """What a pool is made for: the profile and its numbers, and the seed of this start."""

    profile: str
    horizon: int
    candidates: int
    shuffles: int
    seed: int


def pool_around(centres: npt.NDArray[Any], spec: PoolSpec) -> Pool:
    """The profile's pool around (C, H, A) centres, the reference still in it if it has one."""
    if spec.profile == DECOY:
        mix = per_centre(-(-spec.candidates // len(centres)), spec.shuffles)
        return decoy_pool(centres, spec.seed, mix, keep=spec.candidates)
    return control_pool(
        centres[0], spec.seed, replace(PROFILES[spec.profile], horizon=spec.horizon)
    )


def pool_of(world: Any, start: Any, centres: npt.NDArray[Any], spec: PoolSpec) -> Pool:
    """The same, as a task makes it that need not ask world or start."""
    return pool_around(centres, spec)
