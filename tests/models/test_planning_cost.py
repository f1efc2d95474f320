"""TD-JEPA's planning cost by hand, and against the published trajectory of context and futures."""

import pytest
import torch

from djepa.errors import DjepaError
from djepa.evidence.ranks import strict_ranks
from djepa.models.lewm import LeWMConfig
from djepa.models.recipes import TrainConfig
from djepa.models.tdjepa import TDJEPA, PlanningCost

TINY = LeWMConfig(
    image=28, patch=14, width=16, depth=1, heads=1, hidden=16, latent=8,
    predictor_depth=1, predictor_heads=1, predictor_head=8, predictor_hidden=16, projector=16,
)  # fmt: skip


def model(**planning: float) -> TDJEPA:
    torch.manual_seed(0)
    return TDJEPA(TINY).planned_by(PlanningCost(**planning)).eval()  # type: ignore[arg-type]


def test_by_hand() -> None:
    """Latent distances 1, 4 and 9 a step: 0.3 · 9 + 0.7 · 14 / 3, or / 6 with three frames more."""
    futures = torch.tensor([1.0, 2.0, 3.0])[None, None, :, None].expand(1, 1, 3, 8)
    goal = torch.zeros(1, 8)
    for context, wanted in ((0, 2.7 + 0.7 * 14 / 3), (3, 2.7 + 0.7 * 14 / 6)):
        cost = model(blend=1.0, terminal=0.3, context=context).native_cost(futures, goal)
        assert cost.item() == pytest.approx(wanted, rel=1e-6)
    assert model(context=3).native_cost(futures, goal).item() == pytest.approx(9.0)


@torch.no_grad()
def test_counted_context_orders_as_the_published_trajectory() -> None:
    """Context repeated before the futures of every candidate, then the mean of eight steps."""
    draw = torch.Generator().manual_seed(1)
    context, goal = torch.randn(6, 3, 8, generator=draw), torch.randn(6, 8, generator=draw)
    futures = torch.randn(6, 40, 5, 8, generator=draw)
    long = torch.cat([context[:, None].expand(-1, 40, -1, -1), futures], dim=2)
    ids = torch.arange(40).expand(6, 40)
    published = model(blend=0.0, terminal=0.3).native_cost(long, goal)
    ours = model(blend=0.0, terminal=0.3, context=3).native_cost(futures, goal)
    assert torch.equal(strict_ranks(published, ids), strict_ranks(ours, ids))
    apart = published - ours  # what the context adds, the same for all candidates
    assert apart.std(1).max() < 1e-5 < apart.mean(1).min()
    without = model(blend=0.0, terminal=0.3).native_cost(futures, goal)
    assert not torch.equal(strict_ranks(without, ids), strict_ranks(ours, ids))


def test_frames_are_counted_from_zero() -> None:
    with pytest.raises(DjepaError, match="context counts frames"):
        TrainConfig(geometry="tdjepa", context=-1)
