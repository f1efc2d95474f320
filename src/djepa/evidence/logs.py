"""A base score that keeps magnitudes: logarithms of costs, mixed by maximum likelihood.

    ℓ_i^m = log c_i^m - min_j log c_j^m          how many times worse than the pool's best
    b_i   = T Σ_m w_m ℓ_i^m,   w ≥ 0
    w     = argmin  mean over starts of -log Σ_{y_i = 1} softmax(-b / T)_i  +  λ |w|²

Ranks forget by how much one candidate is better than the next; ratios of costs do not, and like
ranks they know no unit. softmax(-b / T) is then a probability that was fitted to outcomes, with the
temperature T of the operator's own objective. The density may be a further voice: the logarithm of
the consensus distance. And ranks may speak beside the logarithms, r_i^m of every voice: a ratio of
costs says much where costs are of one kind, and misleads where they are not, as of what is seen
and what is felt. Who speaks, five folds of the fitting starts decide.

Legend: N starts, K candidates, M voices.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize
from torch import Tensor

from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence, clusters
from djepa.evidence.ranks import best, ordinal_ranks
from djepa.evidence.tokens import consensus, log_ratios

TEMPERATURE, RIDGE, FOLDS = 0.05, 1e-4, 5
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LogMixture:
    """Weights of the voices, and what folds of the fitting starts say of them."""

    names: tuple[str, ...]  # geometries whose costs speak
    density: tuple[str, ...]  # geometries whose consensus distances do
    weights: tuple[float, ...]  # of all of them
    successes: int  # of the fitting starts
    held_out: int  # of the fitting starts, each judged by weights of the other folds
    ranked: bool = False  # whether ranks of all of them speak too

    @property
    def inputs(self) -> tuple[str, ...]:
        """The voices in words, as the weights stand."""
        first = (*self.names, *(f"density of {name}" for name in self.density))
        return (*first, *(f"rank by {name}" for name in first)) if self.ranked else first

    def __call__(self, evidence: Evidence) -> Tensor:
        """(N, K) float64 base score, the pool's lowest near 0; the same in any pool order."""
        return mix(voices(evidence, self.names, self.density, self.ranked), self.weights)


def voices(
    evidence: Evidence, names: Sequence[str], density: Sequence[str] = (), ranked: bool = False
) -> Tensor:
    """(N, K, M) float64: ℓ of every geometry, then of every density; then r of all of these."""
    at = [evidence.names.index(name) for name in names]
    spoken = [evidence.costs[..., m] for m in at] + [consensus(evidence, name) for name in density]
    if any((cost < 0).any() for cost in spoken):
        raise DjepaError("Logarithms need costs that are not negative. Mix ranks instead.")
    logs = log_ratios(torch.stack(spoken, dim=-1))
    if not ranked:
        return logs
    ranks = [ordinal_ranks(cost, evidence.ids) for cost in spoken]
    return torch.cat([logs, torch.stack(ranks, dim=-1)], dim=-1)


def mix(spoken: Tensor, weights: Sequence[float]) -> Tensor:
    """(N, K, M) voices -> (N, K) base score; 12 decimals, so that order of adding breaks no tie."""
    score = torch.zeros(spoken.shape[:-1], dtype=torch.float64, device=spoken.device)
    for m, weight in enumerate(weights):
        score = score + TEMPERATURE * weight * spoken[..., m]
    return score.round(decimals=12)


def fit_logs(
    evidence: Evidence,
    success: Tensor,
    observed: Tensor,
    names: Sequence[str],
    density: Sequence[str] = (),
    ranked: bool = False,
) -> LogMixture:
    """The likeliest weights of every choir that is allowed; the best by folds, then the first.

    A choir is the geometries, with the density or without, with ranks beside logarithms or without.
    """
    densities = [()] if not density else [(), tuple(density)]
    choirs = [
        (extra, too) for too in ((False, True) if ranked else (False,)) for extra in densities
    ]
    found = [_fit(evidence, success, observed, tuple(names), *choir) for choir in choirs]
    return max(found, key=lambda mixture: mixture.held_out)


def _fit(
    evidence: Evidence,
    success: Tensor,
    observed: Tensor,
    names: tuple[str, ...],
    density: tuple[str, ...],
    ranked: bool,
) -> LogMixture:
    spoken, ids = voices(evidence, names, density, ranked), evidence.ids
    fold = clusters(evidence.identities).to(ids.device) % FOLDS

    def judge(weights: Sequence[float], rows: Tensor) -> int:
        score = mix(spoken[rows], weights).masked_fill(~observed[rows], torch.inf)
        at = best(score, ids[rows])[:, None]
        return int((success & observed)[rows].gather(1, at).sum())

    held_out = 0
    for k in range(FOLDS):
        rest = fold != k
        if rest.any() and not rest.all():
            held_out += judge(likeliest(spoken[rest], success[rest], observed[rest]), ~rest)
    weights = likeliest(spoken, success, observed)
    return LogMixture(names, density, weights, judge(weights, fold >= 0), held_out, ranked)


def likeliest(spoken: Tensor, success: Tensor, observed: Tensor) -> tuple[float, ...]:
    """(N, K, M) voices and outcomes -> M weights, by a convex descent in float64."""
    good = success & observed
    mixed = good.any(1) & (~success & observed).any(1)
    x, won, seen = (t[mixed] for t in (spoken, good, observed))
    if not len(x):
        return (1.0,) * spoken.shape[-1]

    def loss(weights: Floats) -> tuple[float, Floats]:
        w = torch.from_numpy(weights).to(x.device).requires_grad_()
        logits = -(x @ w).masked_fill(~seen, torch.inf)
        mass = logits.logsumexp(1) - logits.masked_fill(~won, -torch.inf).logsumexp(1)
        total = mass.mean() + RIDGE * w.square().sum()
        total.backward()
        assert w.grad is not None
        return total.item(), w.grad.cpu().numpy()

    M = spoken.shape[-1]
    with torch.enable_grad():
        found = minimize(loss, np.ones(M), jac=True, method="L-BFGS-B", bounds=[(0, None)] * M)
    return tuple(round(float(w), 9) for w in found.x)
