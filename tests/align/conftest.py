"""A small problem whose successes show only when candidates are compared."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from djepa.align.fit import AlignConfig
from djepa.align.operator import OperatorConfig
from djepa.align.outcomes import Outcomes
from djepa.evidence.evidence import Evidence

Problem = tuple[Evidence, Outcomes]
MakeProblem = Callable[..., Problem]


def make_problem(
    split: str, N: int = 64, K: int = 12, D: int = 3, observed: float = 1.1
) -> Problem:
    """Half the candidates lie around a place that differs from start to start.

    The three directions nearest to the pool's mean succeed; native costs know next to nothing.
    """
    rng = np.random.default_rng([ord(c) for c in split])
    density = (rng.random((N, K)).argsort(1) < K // 2)[..., None]
    near = rng.normal(size=(N, 1, D)) + 0.2 * rng.normal(size=(N, K, D))
    ends = np.where(density, near, rng.normal(size=(N, K, D))).astype(np.float32)
    unit = ends - ends.mean(-1, keepdims=True)
    unit /= unit.std(-1, keepdims=True)
    far = np.linalg.norm(unit - unit.mean(1, keepdims=True), axis=-1)
    success = far.argsort(1).argsort(1) < 3
    evidence = Evidence.from_arrays(
        start_ids=[f"{split}-{n}" for n in range(N)],
        candidate_ids=rng.random((N, K)).argsort(1) + 5,
        costs={name: rng.random((N, K)) + 0.05 * ~success for name in ("a", "b", "c")},
        latents={"a": ends},
        goals={"a": np.zeros((N, D), dtype=np.float32)},
    )
    seen = rng.random((N, K)) < observed
    seen[:, 0] = True
    outcomes = (torch.from_numpy(x) for x in (success, seen, far.astype(float)))
    return evidence, Outcomes(evidence.identities, *outcomes)


@pytest.fixture(scope="session")
def problem() -> MakeProblem:
    """`make_problem`."""
    return make_problem


@pytest.fixture(scope="session")
def quick() -> AlignConfig:
    """Enough to move, not to learn."""
    return AlignConfig(
        dense=("a",),
        ranked=("a", "b"),
        base=("a", "b"),
        updates=12,
        every=4,
        rate=3e-3,
        operator=OperatorConfig(inputs=1, epsilon=0.5),
    )
