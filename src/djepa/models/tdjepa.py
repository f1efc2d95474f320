"""TD-JEPA: LeWM's body that also learns how far apart states are in time (Bai, 2026).

A quasimetric head d(z -> g) is fitted to the number of blocks between two frames of an episode;
planning may use the latent distance, the learned one, or a blend.
"""

from dataclasses import dataclass, replace

import torch.nn.functional as F
from torch import Tensor, nn

from djepa.errors import DjepaError
from djepa.models.lewm import SMALL, LeWM, LeWMConfig

LONGEST = 2**16  # context frames: more than any episode has


@dataclass(frozen=True)
class PlanningCost:
    """total = w · terminal + (1 - w) · mean over steps of (1 - blend) · d + blend · L2.

    The published choice is `blend` 1 (latent L2) on push and `blend` 0, w = 0.3 on Reacher, where
    the mean includes 3 context frames. Their distances are equal for all candidates and change no
    order, so they enter the number of terms but not the sum.
    """

    may_lack = ("context",)  # newer than the first weights

    blend: float = 1.0
    terminal: float = 1.0
    context: int = 0  # context frames that the mean counts

    def __post_init__(self) -> None:
        if not (0 <= self.blend <= 1 and 0 <= self.terminal <= 1):
            raise DjepaError("blend and terminal must lie between 0 and 1.")
        if not 0 <= self.context <= LONGEST:
            raise DjepaError(f"context counts 0 to {LONGEST} frames, not {self.context}.")


HIDDEN, FEATURES = 512, 256  # widths of the learned distance


class Quasimetric(nn.Module):
    """Directed distance: Euclidean on one half of the features, one-sided maximum on the other."""

    def __init__(self, latent: int) -> None:
        super().__init__()
        self.up, self.norm = nn.Linear(latent, HIDDEN), nn.LayerNorm(HIDDEN)
        self.down = nn.Linear(HIDDEN, FEATURES)

    def features(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """(..., D) -> symmetric and asymmetric halves (..., FEATURES / 2)."""
        both = self.down(F.gelu(self.norm(self.up(z))))
        symmetric, directed = both.chunk(2, dim=-1)
        return symmetric, directed

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """d(source -> target) (...), zero on the diagonal, never negative."""
        (s0, a0), (s1, a1) = self.features(source), self.features(target)
        symmetric = (s0 - s1).square().sum(-1).clamp(min=1e-12).sqrt()
        return symmetric + F.relu(a0 - a1).amax(-1)


class TDJEPA(LeWM):
    """LeWM with a temporal-distance head and a choice of planning cost."""

    name = "tdjepa"

    def __init__(
        self,
        config: LeWMConfig = SMALL,
        chunk: int = 1024,
        planning: PlanningCost | None = None,
    ) -> None:
        super().__init__(config, chunk)
        self.distance = Quasimetric(config.latent)
        self.planning = planning or PlanningCost()

    def planned_by(self, planning: PlanningCost) -> "TDJEPA":
        """Change the planning cost; returns the model itself."""
        self.planning = replace(planning)
        return self

    def native_cost(self, futures: Tensor, goal: Tensor) -> Tensor:
        """(N, K, B, D), (N, D) -> (N, K) float32."""
        blend, weight = self.planning.blend, self.planning.terminal
        if blend == weight == 1:
            return super().native_cost(futures, goal)
        goals = goal[:, None, None].float()
        steps = blend * (futures.float() - goals).square().mean(-1)
        if blend < 1:
            steps = steps + (1 - blend) * self.distance(futures.float(), goals)
        mean = steps.sum(-1) / (steps.shape[-1] + self.planning.context)
        return weight * steps[..., -1] + (1 - weight) * mean
