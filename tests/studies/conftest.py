"""Populations made by hand."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch

from djepa.align.labels import Labels
from djepa.align.methods import Population
from djepa.evidence.evidence import Evidence

MakePopulation = Callable[..., Population]


def make_population(
    costs: Any,
    success: Any,
    ids: Any = None,
    others: Mapping[str, Any] | None = None,
    task: Any = None,
    latent: int = 4,
) -> Population:
    """(N, K) native costs of TD-JEPA and outcomes; IDs and task costs follow, unless given.

    Every geometry, TD-JEPA first, has random last latents.
    """
    native, won = np.asarray(costs, float), np.asarray(success, bool)
    N, K = native.shape
    if ids is None:
        ids = np.tile(np.arange(K), (N, 1))
    held = {"tdjepa": native} | {name: np.asarray(c, float) for name, c in (others or {}).items()}
    rng = np.random.default_rng(7)
    ends = {name: rng.normal(size=(N, K, latent)).astype(np.float32) for name in held}
    goals = {name: np.zeros((N, latent), np.float32) for name in held}
    names = [f"{n:064x}" for n in range(N)]
    evidence = Evidence.from_arrays(names, np.asarray(ids, np.int64), held, ends, goals)
    paid = np.where(won, 0.5, 1.5) if task is None else np.asarray(task, float)
    tensors = (torch.from_numpy(x) for x in (won, np.ones_like(won), paid))
    return Population(evidence, Labels(evidence.identities, *tensors))


@pytest.fixture(scope="session")
def population() -> MakePopulation:
    """`make_population`."""
    return make_population
