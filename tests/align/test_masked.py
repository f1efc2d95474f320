"""Candidates that were not executed: nothing about them reaches a loss or a gradient."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from djepa.align.objectives import TASK_LOCAL, RelationalLoss, success_mass
from djepa.align.operator import OperatorConfig, RelationalOperator
from djepa.align.outcomes import Outcomes

LOSSES = (RelationalLoss(), RelationalLoss(tail=2), TASK_LOCAL)
Batch = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def batch(seed: int, N: int = 4, K: int = 10, observed: float = 0.5) -> Batch:
    """Tokens, base, success, observed, IDs."""
    rng = np.random.default_rng(seed)
    arrays = (
        rng.normal(size=(N, K, 3)).astype(np.float32),
        rng.random((N, K)),
        rng.random((N, K)) < 0.4,
        rng.random((N, K)) < observed,
        rng.random((N, K)).argsort(1),
    )
    return tuple(torch.from_numpy(x) for x in arrays)  # type: ignore[return-value]


def learn(loss: RelationalLoss, given: Batch) -> tuple[Tensor, list[Tensor]]:
    """The loss and every gradient of an operator that is not fresh any more."""
    tokens, base, success, observed, ids = given
    random = torch.Generator().manual_seed(0)
    operator = RelationalOperator(OperatorConfig(inputs=3), random)
    torch.nn.init.normal_(operator.up.weight, generator=random)
    total, _ = loss(*operator(tokens, base), success, observed, ids)
    total.backward()
    return total.detach(), [p.grad for p in operator.parameters() if p.grad is not None]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(LOSSES))
def test_flipping_unobserved_outcomes_changes_no_bit(seed: int, loss: RelationalLoss) -> None:
    tokens, base, success, observed, ids = batch(seed)
    first = learn(loss, (tokens, base, success, observed, ids))
    second = learn(loss, (tokens, base, success ^ ~observed, observed, ids))
    assert torch.equal(first[0], second[0])
    assert len(first[1]) == len(second[1])
    assert all(torch.equal(a, b) for a, b in zip(first[1], second[1], strict=True))
    assert all(gradient.isfinite().all() for gradient in first[1])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(LOSSES))
def test_it_is_the_loss_of_the_smaller_pool(seed: int, loss: RelationalLoss) -> None:
    """Leaving unobserved candidates out altogether gives the same: they are no failures."""
    _, base, success, _, ids = batch(seed, N=3)
    delta = torch.from_numpy(np.random.default_rng(seed).uniform(-0.2, 0.2, base.shape))
    kept = torch.tensor([0, 2, 3, 7])
    observed = torch.zeros_like(success)
    observed[:, kept] = True
    whole, _ = loss(base + delta, delta, success, observed, ids)
    small = [x[:, kept] for x in (base + delta, delta, success, observed, ids)]
    assert float(whole) == pytest.approx(float(loss(*small)[0]), rel=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_unobserved_scores_get_no_gradient(loss: RelationalLoss) -> None:
    _, base, success, observed, ids = batch(3)
    scores = base.clone().requires_grad_()
    delta = torch.full_like(base, 0.1).requires_grad_()
    loss(scores, delta, success, observed, ids)[0].backward()
    assert scores.grad is not None
    assert delta.grad is not None
    assert not scores.grad[~observed].any()
    assert not delta.grad[~observed].any()
    assert scores.grad[observed].any()


@pytest.mark.parametrize("loss", LOSSES)
def test_a_start_with_nothing_observed_harms_nobody(loss: RelationalLoss) -> None:
    tokens, base, success, observed, ids = batch(5)
    observed[0] = False
    assert all(g.isfinite().all() for g in learn(loss, (tokens, base, success, observed, ids))[1])
    observed[:] = False
    total, gradients = learn(loss, (tokens, base, success, observed, ids))
    assert total == 0
    assert not any(gradient.any() for gradient in gradients)


def test_success_mass_counts_observed_candidates_only() -> None:
    scores = torch.tensor([[0.0, 0.05, -9.0]], dtype=torch.float64)
    good, observed = torch.tensor([[True, False, False]]), torch.tensor([[True, True, False]])
    expected = np.log(1 + np.exp(-1))  # over the first two
    assert float(success_mass(scores, good, observed, 0.05)) == pytest.approx(expected)


def test_mixed_starts_have_an_observed_one_of_each() -> None:
    success = torch.tensor([[True, False, True], [True, False, True], [True, True, False]])
    observed = torch.tensor([[True, True, True], [True, False, True], [False, False, True]])
    outcomes = Outcomes(("a", "b", "c"), success, observed)
    assert outcomes.mixed.tolist() == [True, False, False]
    assert outcomes.rows(torch.tensor([2, 0])).identities == ("c", "a")
    assert outcomes.rows(outcomes.mixed).identities == ("a",)
    turned = outcomes.columns(torch.tensor([[2, 1, 0]] * 3))
    assert torch.equal(turned.success, success.flip(1))
    assert torch.equal(turned.observed, observed.flip(1))
    assert turned.cost is None
