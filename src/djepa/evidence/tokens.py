"""From evidence to the operator's tokens, and the pool density.

Legend: N starts, K candidates, F token width, D latent.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from djepa.errors import DjepaError, unknown_name
from djepa.evidence.evidence import Evidence

NEIGHBOURS = 8
AT_ONCE = 2**21  # distances between candidates in memory
LEAST = 1e-12  # of the pool's largest cost: what is less is raised to it before the logarithm


@dataclass(frozen=True)
class Tokens:
    """Which coordinates make a token."""

    dense: tuple[str, ...]  # geometries that give directions
    ranked: tuple[str, ...]  # and ranks
    extras: tuple[str, ...] = ()  # of "log", "agreement"
    raw: tuple[str, ...] = ()  # geometries whose last latents enter as they are

    def __post_init__(self) -> None:
        for name in self.extras:
            if name not in _EXTRA:
                raise unknown_name("extra coordinate", name, _EXTRA)
        if not (self.dense or self.ranked or self.raw):
            raise DjepaError("A token needs at least one coordinate: a direction or a rank.")

    def __call__(self, evidence: Evidence) -> Tensor:
        """(N, K, F) float32."""
        parts = [evidence.directions(name) for name in self.dense]
        if self.ranked:
            parts.append(evidence.ranks(self.ranked).float())
        parts += [_EXTRA[name](evidence, self) for name in self.extras]
        parts += [_latents(evidence, name).float() for name in self.raw]
        return torch.cat(parts, dim=-1)


def consensus(evidence: Evidence, name: str) -> Tensor:
    """(N, K) mean distance of a predicted end to its 8 nearest neighbours in the pool.

    Neither the goal nor an outcome enters.
    """
    _check_latents(evidence, name)
    exact = "donot_use_mm_for_euclid_dist"  # by a product, small distances are lost in rounding
    found = []
    for part in evidence.split(max(1, AT_ONCE // evidence.candidates**2)):
        end = part.latents[name].float()
        distances = torch.cdist(end, end, compute_mode=exact)
        some = min(1 + NEIGHBOURS, distances.shape[-1])
        near = distances.topk(some, dim=-1, largest=False).values  # ascending, itself the first
        found.append(near[..., 1:].mean(-1))
    return torch.cat(found).double()


def _check_latents(evidence: Evidence, name: str) -> None:
    """Names them, and reads nothing: they may lie on disk."""
    if name not in evidence.latents:
        raise unknown_name("last latents of", name, evidence.latents)


def _latents(evidence: Evidence, name: str) -> Tensor:
    _check_latents(evidence, name)
    return evidence.latents[name]


def log_ratios(costs: Tensor) -> Tensor:
    """(N, K, M) float64 costs -> logarithms of how many times worse than the pool's best each is.

    The least cost that counts is a share of the pool's largest, so that no unit matters.
    """
    least = (LEAST * costs.amax(1, keepdim=True)).clamp(min=torch.finfo(costs.dtype).tiny)
    logs = costs.maximum(least).log()
    return logs - logs.amin(1, keepdim=True)


def _agreement(evidence: Evidence, tokens: Tokens) -> Tensor:
    """The best and the worst rank that any geometry gives."""
    ranks = evidence.ranks(tokens.ranked).float()
    return torch.stack([ranks.amin(-1), ranks.amax(-1)], dim=-1)


def _log(evidence: Evidence, tokens: Tokens) -> Tensor:
    """How many times worse than the pool's best, as a logarithm."""
    costs = [evidence.cost(name) for name in tokens.ranked]
    return log_ratios(torch.stack(costs, dim=-1)).float()


_EXTRA = {"log": _log, "agreement": _agreement}
