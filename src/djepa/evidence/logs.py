"""A base score that keeps magnitudes: a likelihood mixture of logarithms of costs.

    ℓ_i^m = log c_i^m - min_j log c_j^m          how many times worse than the pool's best
    b_i   = T Σ_m w_m ℓ_i^m,   w ≥ 0

Ranks forget by how much one candidate is better than the next; ratios of costs do not, and like
ranks they have no unit. A further input may be the pool density: the logarithm of the consensus
distance. Ranks r_i^m of every input may be inputs beside the logarithms: a ratio of costs says much
where costs are of one kind, and misleads where they are not. align/mixture.py fits the weights.

Legend: N starts, K candidates, M inputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence
from djepa.evidence.ranks import ordinal_ranks
from djepa.evidence.tokens import consensus, log_ratios

TEMPERATURE = 0.05


@dataclass(frozen=True)
class LogMixture:
    """Weights of the inputs, and what folds of the fitting starts say of them."""

    may_lack = ("ranked",)  # newer than the first suites

    names: tuple[str, ...]  # geometries whose costs are inputs
    density: tuple[str, ...]  # geometries whose consensus distances are
    weights: tuple[float, ...]  # of all of them
    successes: int  # of the fitting starts; where outcomes are graded, 1,000 times their quality
    held_out: int  # of the fitting starts, each judged by weights of the other folds
    ranked: bool = False  # whether ranks of all of them are inputs too

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs in words, in the order of the weights."""
        first = (*self.names, *(f"density of {name}" for name in self.density))
        return (*first, *(f"rank by {name}" for name in first)) if self.ranked else first

    def __call__(self, evidence: Evidence) -> Tensor:
        """(N, K) float64 base score, the pool's lowest near 0; the same in any pool order."""
        return mix(mixture_inputs(evidence, self.names, self.density, self.ranked), self.weights)


def mixture_inputs(
    evidence: Evidence, names: Sequence[str], density: Sequence[str] = (), ranked: bool = False
) -> Tensor:
    """(N, K, M) float64: ℓ of every geometry, then of every density; then r of all of these."""
    costs = [evidence.cost(name) for name in names] + [consensus(evidence, n) for n in density]
    if any((cost < 0).any() for cost in costs):
        raise DjepaError("Logarithms need costs that are not negative. Mix ranks instead.")
    logs = log_ratios(torch.stack(costs, dim=-1))
    if not ranked:
        return logs
    ranks = [ordinal_ranks(cost, evidence.ids) for cost in costs]
    return torch.cat([logs, torch.stack(ranks, dim=-1)], dim=-1)


def mix(inputs: Tensor, weights: Sequence[float]) -> Tensor:
    """(N, K, M) inputs -> (N, K) base score; 12 decimals, so that order of adding breaks no tie."""
    score = torch.zeros(inputs.shape[:-1], dtype=torch.float64, device=inputs.device)
    for m, weight in enumerate(weights):
        score = score + TEMPERATURE * weight * inputs[..., m]
    return score.round(decimals=12)
