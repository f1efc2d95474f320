"""Bounded temporal transport: each predicted latent moves towards, or away from, another model's.

    z̃_{i,t} = ẑ^T_{i,t} + β_{i,t} (ẑ^L - ẑ^T)_{i,t} / max(‖ẑ^L - ẑ^T‖, η),  |β| ≤ ρ (Eq. 3)

Both models share the latent space. A network of widths 5, 32, 1 gives β. Its inputs are the ranks
by L and by T, the rank by the final score, the state of the gate and the time.

Legend: N starts, K candidates, B blocks, D latent; T the model whose futures move, L the other.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from djepa.align.operator import bounded
from djepa.errors import DjepaError
from djepa.evidence.ranks import check_pools, order
from djepa.models.nets import initialise

ETA = 1e-12


class TemporalTransport(nn.Module):
    """The coefficient network. Its last layer starts at zero, so initially β = 0."""

    def __init__(self, hidden: int = 32, radius: float = 0.1) -> None:
        super().__init__()
        self.radius = radius
        self.up, self.down = nn.Linear(5, hidden), nn.Linear(hidden, 1)
        for parameter in self.down.parameters():
            nn.init.zeros_(parameter)

    def initialise(self, random: torch.Generator) -> None:
        """Draw weights for the first layer; the last layer stays at zero."""
        initialise(self.up, random)

    def coefficients(self, ranks: Tensor, gate: Tensor, steps: int) -> Tensor:
        """(N, K, 3) ranks of L, of T and of the final score, (N,) gate -> β (N, K, B)."""
        if ranks.ndim != 3 or ranks.shape[-1] != 3 or not ((ranks >= 0) & (ranks <= 1)).all():
            raise DjepaError("Transport reads three ranks in [0, 1] per candidate.")
        if gate.shape != ranks.shape[:1] or gate.dtype != torch.bool:
            raise DjepaError("Transport reads one gate state, true or false, per start.")
        N, K, _ = ranks.shape
        time = torch.linspace(0, 1, steps, device=ranks.device)
        opened = gate.float()[:, None, None].expand(N, K, 1)
        known = torch.cat([ranks.float(), opened], dim=-1)[:, :, None].expand(N, K, steps, 4)
        inputs = torch.cat([known, time[:, None].expand(N, K, steps, 1)], dim=-1)
        out: Tensor = self.down(F.gelu(self.up(inputs)))[..., 0]
        return bounded(out, self.radius)

    def forward(
        self, moved: Tensor, towards: Tensor, ranks: Tensor, gate: Tensor
    ) -> tuple[Tensor, Tensor]:
        """(N, K, B, D) futures of T and of L -> transported futures of T, coefficients."""
        if moved.shape != towards.shape or moved.ndim != 4:
            raise DjepaError(
                f"Futures are (N, K, B, D) twice, not {tuple(moved.shape)} and "
                f"{tuple(towards.shape)}."
            )
        if ranks.shape[:2] != moved.shape[:2]:
            raise DjepaError(f"Ranks are {tuple(ranks.shape)}, futures {tuple(moved.shape)}.")
        if not (moved.isfinite().all() and towards.isfinite().all()):
            raise DjepaError("A future holds a NaN or an infinity.")
        beta = self.coefficients(ranks, gate, moved.shape[2])
        direction = F.normalize(towards.float() - moved.float(), dim=-1, eps=ETA)
        return moved + (beta[..., None] * direction).to(moved.dtype), beta


def transport_loss(
    refined: Tensor,
    transported: Tensor,
    futures: Tensor,
    before: Tensor,
    success: Tensor,
    cost: Tensor,
    ids: Tensor,
    temperature: float = 0.1,
    pairs: float = 0.25,
    preserve: float = 0.02,
) -> Tensor:
    """Fit both scores to the executed order: successes first, then smaller task cost, then ID.

    For the operator's scores `refined` and for the criterion on transported futures, each:
    cross-entropy to the best candidate + `pairs` · loss of all ordered pairs. To the sum is added
    `preserve` · mean squared movement of the futures.
    """
    check_pools(ids, refined=refined, transported=transported, cost=cost)
    if success.dtype != torch.bool or success.shape != ids.shape:
        raise DjepaError(f"success must be true or false of shape {tuple(ids.shape)}.")
    by_cost = order(cost, ids)
    failed = (~success).gather(1, by_cost)
    wanted = by_cost.gather(1, failed.long().argsort(dim=1, stable=True))
    oracle = wanted[:, 0]
    total = preserve * (futures.float() - before.float()).square().mean()
    for score in (refined, transported):
        total = total + F.cross_entropy(-score.float() / temperature, oracle)
        total = total + pairs * _ordered_pairs(score.float(), wanted, temperature)
    return total


def _ordered_pairs(score: Tensor, wanted: Tensor, temperature: float) -> Tensor:
    """Mean of softplus((s_i - s_j) / T) over pairs where `wanted` puts i before j."""
    s = score.gather(1, wanted)
    gap = (s[:, :, None] - s[:, None]) / temperature
    K = s.shape[1]
    return F.softplus(gap)[:, *torch.triu_indices(K, K, 1).tolist()].mean()
