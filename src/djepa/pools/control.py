"""Pools around recorded controls, by the name of their profile."""

from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from djepa.pools.decoy import decoy_pool, per_centre
from djepa.pools.pool import Pool
from djepa.pools.profiles import PROFILES, control_pool

DECOY = "decoy"
CONTROL_PROFILES = (*PROFILES, DECOY)
PIXELS = "visual-shape"  # controls in pixels, so for the push world only
ANYWHERE = tuple(name for name in CONTROL_PROFILES if name != PIXELS)


@dataclass(frozen=True)
class PoolSpec:
    """What a pool is made from, beside its centres: profile, sizes and the seed of this start."""

    profile: str
    horizon: int
    candidates: int
    shuffles: int
    seed: int


def pool_around(centres: npt.NDArray[Any], spec: PoolSpec) -> Pool:
    """The profile's pool around (C, H, A) centres, with the reference if the profile has one."""
    if spec.profile == DECOY:
        mix = per_centre(-(-spec.candidates // len(centres)), spec.shuffles)
        return decoy_pool(centres, spec.seed, mix, keep=spec.candidates)
    return control_pool(
        centres[0], spec.seed, replace(PROFILES[spec.profile], horizon=spec.horizon)
    )


def pool_of(world: Any, start: Any, centres: npt.NDArray[Any], spec: PoolSpec) -> Pool:
    """`pool_around` with the signature of `Task.pool`; world and start are not used."""
    return pool_around(centres, spec)
