"""New evidence beside that of the calibration: changed is reported, alike is not; no outcomes."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from djepa.align.fit import AlignConfig, Alignment
from djepa.align.gates import NEVER, Gate
from djepa.align.shift import admit, compare_evidence
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence

K = 10


def drawn(seed: int, N: int = 60, scale: float = 1.0, noise: float = 0.3, K: int = K) -> Evidence:
    rng = np.random.default_rng(seed)
    truth = rng.gamma(2.0, 1.0, (N, K))
    costs = {n: scale * truth * np.exp(noise * rng.normal(size=(N, K))) for n in ("a", "b")}
    return Evidence.from_arrays(start_ids=range(N), candidate_ids=[range(K)] * N, costs=costs)


@pytest.fixture(scope="module")
def alignment() -> Alignment:
    pair = ("a", "b")
    evidence = drawn(0)
    success = (evidence.cost("a") < 1).numpy()
    config = AlignConfig((), pair, pair, updates=6, every=3, batch=8)
    found = Alignment(config).fit(evidence.rows(range(40)), success[:40])
    return found.calibrate(evidence.rows(range(40, 60)), success[40:])


def test_starts_drawn_alike_are_rarely_reported(alignment: Alignment) -> None:
    found = [compare_evidence(alignment, drawn(2 * i + 1), drawn(2 * i + 2)) for i in range(60)]
    assert sum(one.noticed for one in found) <= 3  # 0.6 are expected at most
    quiet = next(one for one in found if not one.noticed)
    assert "No difference of evidence was noticed (60 new starts" in str(quiet)


@pytest.mark.parametrize(
    ("change", "feature"),
    [({"scale": 2.0}, "cost"), ({"noise": 1.5}, "agreement of a and b"), ({"K": 12}, "number")],
)
def test_changed_evidence_is_reported(
    alignment: Alignment, change: dict[str, float], feature: str
) -> None:
    assert not compare_evidence(alignment, drawn(3), drawn(4)).noticed
    found = compare_evidence(alignment, drawn(3), drawn(4, **change))  # type: ignore[arg-type]
    assert found.noticed
    assert any(feature in name for name, p in found.features.items() if p < 0.001)
    assert "do not hold here" in str(found)


def test_looks_of_one_start_count_once(alignment: Alignment) -> None:
    """Rows that are copies would make any difference significant."""
    one, other = drawn(1, 20), drawn(2, 20)
    alone = compare_evidence(alignment, one, other)
    rows = torch.arange(20).repeat_interleave(30)
    many = replace(
        other.rows(range(20)),
        identities=tuple(f"{n}@{i}" for n in range(20) for i in range(30)),
        ids=other.ids[rows],
        costs=other.costs[rows],
    )
    again = compare_evidence(alignment, one, many)
    assert again.starts == (20, 20)
    assert again.features == pytest.approx(alone.features, abs=1e-9)


def test_what_cannot_be_compared_is_named(alignment: Alignment) -> None:
    with pytest.raises(DjepaError, match="at least 8 starts"):
        compare_evidence(alignment, drawn(1), drawn(2, 5))
    with pytest.raises(DjepaError, match="Calibrate before"):
        compare_evidence(Alignment(alignment.config), drawn(1), drawn(2))
    other = Evidence.from_arrays(
        start_ids=range(9), candidate_ids=[range(K)] * 9, costs={"c": np.ones((9, K))}
    )
    with pytest.raises(DjepaError, match="Unknown geometry 'a'"):
        compare_evidence(alignment, drawn(1), other)


def test_a_gate_opens_only_for_starts_like_those_of_its_calibration(alignment: Alignment) -> None:
    """On other starts the base choice is made, and the alignment itself stays as it was."""
    open_one = replace_gate(alignment, Gate(-1.0, alignment.config.mode))
    alike, found = admit(open_one, drawn(3), drawn(4))
    assert alike is open_one
    assert not found.noticed
    changed = drawn(4, scale=2.0)
    kept, found = admit(open_one, drawn(3), changed)
    assert found.noticed
    assert kept.gate is not None
    assert kept.gate.threshold == NEVER
    decided = kept.decide(changed)
    assert not decided.opened.any()
    assert torch.equal(decided.final, decided.base)
    assert open_one.decide(changed).opened.all()


def replace_gate(alignment: Alignment, gate: Gate) -> Alignment:
    found = copy.copy(alignment)
    found.gate = gate
    return found
