"""Expected value and the upper tail of sampled costs."""

import pytest
import torch

from djepa.align.controls.sampled import FUTURES, TAIL, cvar, expected_value


def test_two_of_sixteen() -> None:
    assert (FUTURES, TAIL) == (16, 2)


def test_by_hand() -> None:
    costs = torch.arange(16.0, dtype=torch.float64).flip(0).view(1, 1, 16)
    assert expected_value(costs).item() == 7.5
    assert cvar(costs).item() == 14.5


@pytest.mark.parametrize("seed", range(20))
def test_the_tail_is_never_better_than_the_mean(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    costs = torch.randn(4, 63, 16, generator=g).exp().double()
    mean, tail = expected_value(costs), cvar(costs)
    assert (tail >= mean).all()
    assert (tail <= costs.amax(-1)).all()
    torch.testing.assert_close(mean, costs.mean(-1))
    mixed = costs[..., torch.randperm(16, generator=g)]
    assert torch.equal(cvar(mixed), tail)  # in whatever order futures were drawn
    torch.testing.assert_close(expected_value(mixed), mean)


def test_without_a_spread_both_are_the_cost_itself() -> None:
    costs = torch.rand(2, 5, 1, dtype=torch.float64).expand(-1, -1, 16)
    assert torch.equal(expected_value(costs), costs[..., 0])
    assert torch.equal(cvar(costs), costs[..., 0])
