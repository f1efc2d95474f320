"""Candidate action sequences with persistent IDs: families, profiles, retention, controls."""

from djepa.pools.decoy import decoy_pool, per_centre
from djepa.pools.density import density_pick, density_scores
from djepa.pools.granular import granular_pool
from djepa.pools.pool import REFERENCE, Pool
from djepa.pools.profiles import PROFILES, Profile, control_pool
from djepa.pools.retention import Retention, retain_by_cost

__all__ = [
    "PROFILES",
    "REFERENCE",
    "Pool",
    "Profile",
    "Retention",
    "control_pool",
    "decoy_pool",
    "density_pick",
    "density_scores",
    "granular_pool",
    "per_centre",
    "retain_by_cost",
]
