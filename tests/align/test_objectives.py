"""The relational loss: each term by hand, all rows at once against one row at a time."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from djepa.align.objectives import TASK_LOCAL, RelationalLoss, success_mass, tail
from djepa.errors import DjepaError

PUBLISHED = RelationalLoss()
SCORES = torch.tensor([[0.0, 0.05, 0.1]], dtype=torch.float64)  # logits 0, -1, -2 at T = 0.05
DELTA = torch.tensor([[0.1, -0.2, 0.0]], dtype=torch.float64)
IDS = torch.tensor([[1, 2, 3]])
MIDDLE = torch.tensor([[False, True, False]])
EVERY = torch.ones(1, 3, dtype=torch.bool)


def softplus(x: float) -> float:
    return math.log1p(math.exp(x))


def value(loss: RelationalLoss, success: Tensor = MIDDLE, observed: Tensor = EVERY) -> float:
    return float(loss(SCORES, DELTA, success, observed, IDS)[0])


def only(term: str, loss: RelationalLoss = PUBLISHED) -> RelationalLoss:
    return replace(loss, **{name: 0.0 for name in ("local", "trust") if name != term})


MASS = math.log(1 + math.exp(-1) + math.exp(-2)) + 1  # -log(e^-1 / Σ)
FIRST, LAST = softplus((0.02 + 0.05) / 0.05), softplus((0.02 + 0.05 - 0.1) / 0.05)
TRUST = (0.1**2 + 0.2**2) / 3


def test_the_published_constants() -> None:
    assert RelationalLoss(0.05, 0.02, 0.25, 0.1, 16, False) == PUBLISHED
    assert RelationalLoss(0.05, 0.0, 0.25, 0.01, 16, True) == TASK_LOCAL


def test_success_mass_by_hand() -> None:
    assert pytest.approx(1.4076059644443806) == MASS
    assert value(only("")) == pytest.approx(MASS)
    two = torch.tensor([[True, True, False]])  # any success will do: the sum of both
    total = 1 + math.exp(-1) + math.exp(-2)
    assert value(only(""), two) == pytest.approx(-math.log((1 + math.exp(-1)) / total))


def test_local_pairs_by_hand() -> None:
    """The failures stand on both sides of the success; a tail of 2 leaves out the last."""
    whole, short = only("local"), only("local", replace(PUBLISHED, tail=2))
    assert value(whole) - MASS == pytest.approx(0.25 * (FIRST + LAST) / 2)
    assert value(short) - MASS == pytest.approx(0.25 * FIRST)


def test_a_tail_of_one_class_falls_back_to_the_whole_set() -> None:
    alone = only("local", replace(PUBLISHED, tail=1))
    assert value(alone) - MASS == pytest.approx(0.25 * (FIRST + LAST) / 2)


def test_trust_by_hand() -> None:
    total, trust = only("trust")(SCORES, DELTA, MIDDLE, EVERY, IDS)
    assert float(trust) == pytest.approx(TRUST)
    assert float(total) - MASS == pytest.approx(0.1 * TRUST)
    assert value(PUBLISHED) == pytest.approx(MASS + 0.25 * (FIRST + LAST) / 2 + 0.1 * TRUST)


def test_task_local_has_no_margin_and_no_fallback() -> None:
    first, last = softplus(0.05 / 0.05), softplus((0.05 - 0.1) / 0.05)
    assert value(TASK_LOCAL) == pytest.approx(MASS + 0.25 * (first + last) / 2 + 0.01 * TRUST)
    assert value(replace(TASK_LOCAL, tail=1)) == pytest.approx(MASS + 0.01 * TRUST)


def test_task_local_pairs_are_pooled_over_the_batch() -> None:
    """Row one has two pairs, row two one (its first candidate succeeds, the last is unobserved)."""
    scores, delta, ids = (torch.cat([x, x]) for x in (SCORES, DELTA, IDS))
    success = torch.tensor([[False, True, False], [True, False, False]])
    observed = torch.tensor([[True, True, True], [True, True, False]])
    pairs = [softplus(1.0), softplus(-1.0), softplus(-1.0)]
    mass = (MASS + math.log(1 + math.exp(-1))) / 2
    trust = (5 * 0 + 0.1**2 + 0.2**2 + 0.1**2 + 0.2**2) / 5
    total, _ = TASK_LOCAL(scores, delta, success, observed, ids)
    assert float(total) == pytest.approx(mass + 0.25 * sum(pairs) / 3 + 0.01 * trust)
    # The published one takes the mean of row means.
    total, _ = replace(PUBLISHED, margin=0.0)(scores, delta, success, observed, ids)
    rows = ((pairs[0] + pairs[1]) / 2 + pairs[2]) / 2
    assert float(total) == pytest.approx(mass + 0.25 * rows + 0.1 * trust)


@pytest.mark.parametrize("loss", [PUBLISHED, TASK_LOCAL])
def test_rows_without_success_give_trust_alone(loss: RelationalLoss) -> None:
    none = torch.zeros_like(MIDDLE)
    assert value(loss, none) == pytest.approx(loss.trust * TRUST)
    scores, delta, ids, every = (torch.cat([x, x]) for x in (SCORES, DELTA, IDS, EVERY))
    total, _ = loss(scores, delta, torch.cat([MIDDLE, none]), every, ids)
    assert float(total) == pytest.approx(value(loss))  # neither term is diluted


@pytest.mark.parametrize("loss", [PUBLISHED, TASK_LOCAL])
def test_rows_of_successes_alone_have_nothing_to_separate(loss: RelationalLoss) -> None:
    assert value(loss, EVERY) == pytest.approx(loss.trust * TRUST)


def test_tail_ties_go_to_the_smaller_id() -> None:
    scores, ids = torch.zeros(1, 4), torch.tensor([[7, 1, 5, 3]])
    every = torch.ones(1, 4, dtype=torch.bool)
    assert tail(scores, ids, every, 2).tolist() == [[False, True, False, True]]
    seen = torch.tensor([[True, False, True, True]])
    assert tail(scores, ids, seen, 2).tolist() == [[False, False, True, True]]
    assert tail(scores, ids, seen, 9).tolist() == seen.tolist()


def one_by_one(loss: RelationalLoss, batch: tuple[Tensor, ...]) -> tuple[float, float]:
    """The definition in plain Python, one start at a time."""
    scores, delta, success, observed, ids = (x.tolist() for x in batch)
    T, masses, rows, pooled, squares = loss.temperature, [], [], [], []
    for s, d, y, seen, name in zip(scores, delta, success, observed, ids, strict=True):
        kept = sorted((i for i in range(len(s)) if seen[i]), key=lambda i: (s[i], name[i]))
        squares += [d[i] ** 2 for i in kept]
        good, bad = [i for i in kept if y[i]], [i for i in kept if not y[i]]
        low = set(kept[: loss.tail])
        pairs = [(i, j) for i in good for j in bad if {i, j} <= low]
        if not loss.pooled:
            if not (good and bad):
                continue
            pairs = pairs or [(i, j) for i in good for j in bad]
        terms = [softplus((loss.margin + s[i] - s[j]) / T) for i, j in pairs]
        pooled += terms
        if good:
            p = {i: math.exp(-s[i] / T) for i in kept}
            masses.append(-math.log(sum(p[i] for i in good) / sum(p.values())))
            rows.append(sum(terms) / max(len(terms), 1))
    terms = pooled if loss.pooled else rows
    trust = sum(squares) / max(len(squares), 1)
    mean = sum(masses) / max(len(masses), 1)
    return mean + loss.local * sum(terms) / max(len(terms), 1) + loss.trust * trust, trust


@st.composite
def batches(draw: st.DrawFn) -> tuple[Tensor, ...]:
    """Scores with ties, rows of one class, unobserved candidates."""
    N, K = draw(st.integers(1, 5)), draw(st.integers(2, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rate = rng.choice([0.0, 0.2, 0.5, 1.0], (N, 1))
    arrays = (
        rng.integers(0, 20, (N, K)) / 20,
        rng.uniform(-0.2, 0.2, (N, K)),
        rng.random((N, K)) < rate,
        rng.random((N, K)) < draw(st.sampled_from([0.3, 0.8, 1.0])),
        rng.random((N, K)).argsort(1),
    )
    return tuple(torch.from_numpy(x) for x in arrays)


@settings(max_examples=120, deadline=None)
@given(batches(), st.sampled_from([PUBLISHED, TASK_LOCAL]), st.sampled_from([1, 3, 16]))
def test_all_rows_at_once_are_all_rows_one_by_one(
    batch: tuple[Tensor, ...], loss: RelationalLoss, k: int
) -> None:
    loss = replace(loss, tail=k)
    total, trust = loss(*batch)
    assert (float(total), float(trust)) == pytest.approx(one_by_one(loss, batch), rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(batches(), st.sampled_from([PUBLISHED, TASK_LOCAL]))
def test_candidate_order_changes_nothing(batch: tuple[Tensor, ...], loss: RelationalLoss) -> None:
    p = torch.randperm(batch[0].shape[1], generator=torch.Generator().manual_seed(1))
    mixed = tuple(x[:, p] for x in batch)
    assert float(loss(*mixed)[0]) == pytest.approx(float(loss(*batch)[0]), rel=1e-12, abs=1e-12)
    scores, _, _, observed, ids = batch
    assert torch.equal(tail(scores, ids, observed, 3)[:, p], tail(*mixed[::4], mixed[3], 3))


def test_scores_far_apart_do_not_overflow() -> None:
    scores = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
    total, _ = PUBLISHED(
        scores, torch.zeros(1, 3), torch.tensor([[True, False, False]]), EVERY, IDS
    )
    total.backward()
    assert total.isfinite()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
    assert success_mass(scores, ~EVERY, EVERY, 0.05).tolist() == [0.0]


@pytest.mark.parametrize("bad", [{"temperature": 0.0}, {"temperature": -1.0}, {"tail": 0}])
def test_losses_that_cannot_be(bad: dict[str, float]) -> None:
    with pytest.raises(DjepaError, match="temperature above 0 and a tail of at least 1"):
        RelationalLoss(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("loss", [PUBLISHED, TASK_LOCAL, replace(PUBLISHED, tail=2)])
def test_large_pools_have_the_same_loss_and_gradient(
    loss: RelationalLoss, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Starts with a mixed tail, with one class in the tail, with one class alone, unobserved."""
    rng = np.random.default_rng(7)
    N, K = 12, 20
    success = torch.from_numpy(rng.random((N, K)) < np.linspace(0, 1, N)[:, None])
    observed = torch.from_numpy(rng.random((N, K)) < 0.7)
    ids = torch.from_numpy(rng.random((N, K)).argsort(1))
    found = []
    for large in (512, 1):
        monkeypatch.setattr("djepa.align.objectives.LARGE", large)
        scores = torch.from_numpy(np.random.default_rng(8).normal(size=(N, K))).requires_grad_()
        total, _ = loss(scores, scores * 0.1, success, observed, ids)
        total.backward()
        found.append((total.detach(), scores.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)
