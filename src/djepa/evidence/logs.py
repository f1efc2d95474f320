"""A base score that keeps magnitudes: a likelihood mixture of logarithms of costs.

    ℓ_i^m = log c_i^m - min_j log c_j^m          log ratio to the pool's lowest cost
    b_i   = T Σ_m w_m ℓ_i^m,   w ≥ 0

Ranks discard by how much one candidate is better than the next. Ratios of costs keep it, and like
ranks they have no unit. The pool density (logarithm of the consensus distance) may be a further
input. So may the ranks r_i^m of every input, because ratios mislead where costs mix several kinds
of terms. align/mixture.py fits the weights.

Legend: N starts, K candidates, M inputs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from djepa.errors import DjepaError
from djepa.evidence.blocks import block_size, filled
from djepa.evidence.evidence import Evidence
from djepa.evidence.ranks import ordinal_ranks
from djepa.evidence.tokens import consensus, log_ratios, near_at_once

TEMPERATURE = 0.05


@dataclass(frozen=True)
class LogMixture:
    """Fitted weights of the inputs, and their cross-validation."""

    may_lack = ("ranked",)  # absent from the first suites

    names: tuple[str, ...]  # geometries whose costs are inputs
    density: tuple[str, ...]  # geometries whose consensus distances are inputs
    weights: tuple[float, ...]  # w, one per entry of `inputs`
    successes: int  # on fitting starts; with graded outcomes 1,000 times the sum of quality
    held_out: int  # the same, each start scored with weights fitted on the other folds
    ranked: bool = False  # whether the ranks of all these are inputs too

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs, in the order of the weights."""
        first = (*self.names, *(f"density of {name}" for name in self.density))
        return (*first, *(f"rank by {name}" for name in first)) if self.ranked else first

    def __call__(self, evidence: Evidence) -> Tensor:
        """(N, K) float64 base score b, the pool's lowest near 0; independent of the pool order."""
        read = self.names, self.density, self.ranked
        parts = (mix(inputs, self.weights) for inputs in _inputs(evidence, *read))
        return filled(parts, len(evidence))


def mixture_inputs(
    evidence: Evidence, names: Sequence[str], density: Sequence[str] = (), ranked: bool = False
) -> Tensor:
    """(N, K, M) float64: ℓ of every cost, then of every density; with `ranked`, then their r."""
    return filled(_inputs(evidence, names, density, ranked), len(evidence))


def _inputs(
    evidence: Evidence, names: Sequence[str], density: Sequence[str], ranked: bool
) -> Iterator[Tensor]:
    """The inputs of some starts at a time."""
    K = evidence.candidates
    if not density:
        evidence = replace(evidence, latents={})  # they may be on disk
    for part in evidence.split(near_at_once(K) if density else block_size(K)):
        yield _of_part(part, names, density, ranked)


def _of_part(
    evidence: Evidence, names: Sequence[str], density: Sequence[str], ranked: bool
) -> Tensor:
    costs = [evidence.cost(name) for name in names] + [consensus(evidence, n) for n in density]
    if any((cost < 0).any() for cost in costs):
        raise DjepaError("Logarithms need costs that are not negative. Mix ranks instead.")
    logs = log_ratios(torch.stack(costs, dim=-1))
    if not ranked:
        return logs
    ranks = [ordinal_ranks(cost, evidence.ids) for cost in costs]
    return torch.cat([logs, torch.stack(ranks, dim=-1)], dim=-1)


def mix(inputs: Tensor, weights: Sequence[float]) -> Tensor:
    """(N, K, M) inputs -> (N, K) base score b; 12 decimals, so that rounding breaks no tie."""
    score = torch.zeros(inputs.shape[:-1], dtype=torch.float64, device=inputs.device)
    for m, weight in enumerate(weights):
        score = score + TEMPERATURE * weight * inputs[..., m]
    return score.round(decimals=12)
