"""Evidence that comes in parts is compared as if it had come whole."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from djepa.align.fit import AlignConfig, Alignment
from djepa.align.shift import compare_evidence
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence

K = 10


def drawn(seed: int, N: int = 60, K: int = K) -> Evidence:
    rng = np.random.default_rng(seed)
    costs = {n: rng.gamma(2.0, 1.0, (N, K)) for n in ("a", "b", "c")}
    return Evidence.from_arrays(start_ids=range(N), candidate_ids=[range(K)] * N, costs=costs)


@pytest.fixture(scope="module")
def alignment() -> Alignment:
    names, evidence = ("a", "b", "c"), drawn(0)
    success = (evidence.cost("a") < 1).numpy()
    found = Alignment(AlignConfig((), names, names, updates=4, every=2, batch=8))
    found.fit(evidence.rows(range(40)), success[:40])
    return found.calibrate(evidence.rows(range(40, 60)), success[40:])


@pytest.mark.parametrize("size", [7, 16, 60])
def test_parts_are_compared_as_the_whole(size: int, alignment: Alignment) -> None:
    old, new = drawn(1), drawn(2, 45)
    whole = compare_evidence(alignment, old, new)
    assert compare_evidence(alignment, old.split(size), new.split(size)) == whole


def test_looks_of_one_start_are_one_start_across_parts(alignment: Alignment) -> None:
    old, new = drawn(1, 20), drawn(2, 20)
    rows = torch.arange(20).repeat(2)
    names = tuple(f"{n}@{look}" for look in "xy" for n in range(20))
    twice = replace(new, identities=names, ids=new.ids[rows], costs=new.costs[rows])
    found = compare_evidence(alignment, old, twice.split(13))
    assert found.starts == (20, 20)
    assert found == compare_evidence(alignment, old, twice)


def test_no_part_is_no_evidence(alignment: Alignment) -> None:
    with pytest.raises(DjepaError, match="no evidence to compare"):
        compare_evidence(alignment, drawn(1), [])
    assert compare_evidence(alignment, drawn(1), drawn(2, 60, 12).split(9)).p == 0.0
