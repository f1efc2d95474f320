"""From evidence to the operator's tokens; what has to be fitted is fitted without outcomes.

Legend: N starts, K candidates, F token width, D latent.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from djepa.errors import DjepaError, unknown_name
from djepa.evidence.evidence import Evidence
from djepa.evidence.ranks import ordinal_ranks

EXTRAS = ("gap", "log", "density", "agreement")
NEIGHBOURS = 8
LEAST = 1e-12  # of the pool's largest cost: what is less has no logarithm to tell apart


@dataclass(frozen=True, eq=False)
class Tokens:
    """Which coordinates make a token, and the principal directions where they are reduced."""

    dense: tuple[str, ...]
    ranked: tuple[str, ...]
    extras: tuple[str, ...]
    directions: dict[str, Tensor]  # name -> (D, reduced), where directions are reduced

    @classmethod
    def fit(
        cls,
        evidence: Evidence,
        dense: Sequence[str],
        ranked: Sequence[str],
        extras: Sequence[str] = (),
        reduce: int = 0,
    ) -> "Tokens":
        """Principal directions of the descriptors of these starts; no outcome is looked at."""
        for name in extras:
            if name not in EXTRAS:
                raise unknown_name("extra coordinate", name, EXTRAS)
        if reduce < 0:
            raise DjepaError(f"reduce keeps so many principal directions, not {reduce}.")
        if not (dense or ranked):
            raise DjepaError("A token needs at least one coordinate: a direction or a rank.")
        if "density" in extras and not dense:
            raise DjepaError("The density is that of a geometry that gives directions: name one.")
        directions = {}
        if reduce:
            for name in dense:
                flat = evidence.directions(name).flatten(0, 1).double()
                _, vectors = torch.linalg.eigh(flat.T @ flat)
                largest = vectors[:, -reduce:].flip(1)
                signs = largest.gather(0, largest.abs().argmax(0, keepdim=True)).sign()
                directions[name] = (largest * signs).float()
        return cls(tuple(dense), tuple(ranked), tuple(extras), directions)

    def __call__(self, evidence: Evidence) -> Tensor:
        """(N, K, F) float32."""
        parts = []
        for name in self.dense:
            d = evidence.directions(name)
            parts.append(d @ self.directions[name].to(d.device) if name in self.directions else d)
        if self.ranked:
            parts.append(evidence.ranks(self.ranked).float())
        parts += [_EXTRA[name](evidence, self) for name in self.extras]
        return torch.cat(parts, dim=-1)


def consensus(evidence: Evidence, name: str) -> Tensor:
    """(N, K) mean distance of a predicted end to its 8 nearest neighbours in the pool.

    Neither the goal nor an outcome enters.
    """
    if name not in evidence.terminals:
        raise unknown_name("terminal latents of", name, evidence.terminals)
    end = evidence.terminals[name].float()
    exact = "donot_use_mm_for_euclid_dist"  # by a product, close neighbours drown in rounding
    near = torch.cdist(end, end, compute_mode=exact).sort(dim=-1).values[..., 1 : 1 + NEIGHBOURS]
    return near.mean(-1).double()


def log_ratios(costs: Tensor) -> Tensor:
    """(N, K, M) float64 costs -> logarithms of how many times worse than the pool's best each is.

    The least cost that counts is a share of the pool's largest, so that no unit matters.
    """
    least = (LEAST * costs.amax(1, keepdim=True)).clamp(min=torch.finfo(costs.dtype).tiny)
    logs = costs.maximum(least).log()
    return logs - logs.amin(1, keepdim=True)


def _gap(evidence: Evidence, tokens: Tokens) -> Tensor:
    """How far the cost lies above the pool's lowest, in the pool's own spread."""
    at = [evidence.names.index(name) for name in tokens.ranked]
    cost = evidence.costs[..., at].double()
    above = cost - cost.amin(1, keepdim=True)
    return (above / cost.std(1, keepdim=True).clamp(min=1e-12)).float()


def _density(evidence: Evidence, tokens: Tokens) -> Tensor:
    """Rank of the consensus distance: where a proposal source concentrates, this is evidence."""
    ranks = [ordinal_ranks(consensus(evidence, name), evidence.ids) for name in tokens.dense]
    return torch.stack(ranks, dim=-1).float()


def _agreement(evidence: Evidence, tokens: Tokens) -> Tensor:
    """The best and the worst rank that any geometry gives."""
    ranks = evidence.ranks(tokens.ranked).float()
    return torch.stack([ranks.amin(-1), ranks.amax(-1)], dim=-1)


def _log(evidence: Evidence, tokens: Tokens) -> Tensor:
    """How many times worse than the pool's best, as a logarithm."""
    at = [evidence.names.index(name) for name in tokens.ranked]
    return log_ratios(evidence.costs[..., at].double()).float()


_EXTRA = {"gap": _gap, "log": _log, "density": _density, "agreement": _agreement}
