"""Gradients that may not undo one another."""

import pytest
import torch
from torch import nn

from djepa.align.controls.projection import capped, gradient, with_gradient, without_conflict


@pytest.mark.parametrize("seed", range(50))
def test_a_projected_gradient_never_conflicts_and_never_exceeds_the_cap(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    sizes = 10.0 ** torch.randint(-8, 9, (2,), generator=g)
    primary, auxiliary = sizes[:, None].double() * torch.randn(
        2, 500, generator=g, dtype=torch.float64
    )
    if seed % 3 == 0:
        auxiliary = auxiliary - 5 * primary  # a strong conflict
    if seed % 3 == 1:  # a weak one, next to nothing of the length
        auxiliary = auxiliary - (auxiliary @ primary) / (primary @ primary) * primary
        auxiliary = auxiliary - 1e-9 * auxiliary.norm() / primary.norm() * primary
    safe = without_conflict(auxiliary, primary)
    assert safe @ primary >= 0
    for cap in (1e-3, 0.5, 2.0):
        short = capped(safe, primary, cap)
        assert short.norm() <= cap * primary.norm() * (1 + 1e-12)
        assert short @ primary >= 0
        torch.testing.assert_close(short / short.norm(), safe / safe.norm())  # the same direction


def test_projection_by_hand() -> None:
    primary = torch.tensor([2.0, 0.0], dtype=torch.float64)
    safe = without_conflict(torch.tensor([-3.0, 4.0], dtype=torch.float64), primary)
    assert torch.allclose(safe, torch.tensor([0.0, 4.0], dtype=torch.float64), atol=1e-9)
    assert torch.allclose(capped(safe, primary, 0.5), safe / 4, atol=1e-9)
    assert capped(safe, primary, 2.0) is safe  # 4 is just allowed


def test_what_does_not_conflict_stays_to_the_bit() -> None:
    primary = torch.tensor([1.0, 0.0], dtype=torch.float64)
    for auxiliary in ([0.0, 3.0], [0.1, -7.0]):
        given = torch.tensor(auxiliary, dtype=torch.float64)
        assert without_conflict(given, primary) is given
    nothing = torch.zeros(2, dtype=torch.float64)
    given = torch.tensor([-1.0, 1.0], dtype=torch.float64)
    assert without_conflict(given, nothing) is given  # nothing to conflict with ...
    assert capped(given, nothing, 1.0).norm() == 0  # ... and under a cap nothing to stand beside


def test_a_loss_with_the_gradient_that_is_wanted() -> None:
    one, two = nn.Parameter(torch.tensor([1.0, 2.0])), nn.Parameter(torch.tensor([[3.0]]))
    loss = one.square().sum()
    assert gradient(loss, [one, two]).tolist() == [2.0, 4.0, 0.0]  # two is not reached
    wanted = torch.tensor([5.0, -6.0, 7.0], dtype=torch.float64)
    made = with_gradient(loss, [one, two], wanted)
    assert made.item() == loss.item()
    made.backward()
    assert one.grad is not None
    assert two.grad is not None
    assert (one.grad.tolist(), two.grad.tolist()) == ([5.0, -6.0], [[7.0]])
