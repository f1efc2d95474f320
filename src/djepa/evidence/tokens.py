"""The operator's tokens, computed from evidence, and the pool density.

Legend: N starts, K candidates, F token width, D latent.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from djepa.errors import DjepaError, unknown_name
from djepa.evidence.blocks import block_size, filled
from djepa.evidence.evidence import Evidence

NEIGHBOURS = 8
AT_ONCE = 2**21  # pairwise distances held in memory
KEPT = 2**28  # bytes of tokens held in memory
LEAST = 1e-12  # smaller shares of the pool's largest cost are raised to this one before the log


@dataclass(frozen=True)
class Tokens:
    """The coordinates of a token v_i: directions, ranks, extras and latents, in this order."""

    dense: tuple[str, ...]  # geometries whose directions d_i enter
    ranked: tuple[str, ...]  # geometries whose ranks r_i enter
    extras: tuple[str, ...] = ()  # any of "log", "agreement"
    raw: tuple[str, ...] = ()  # geometries whose last latents enter unchanged

    def __post_init__(self) -> None:
        for name in self.extras:
            if name not in _EXTRA:
                raise unknown_name("extra coordinate", name, _EXTRA)
        if not (self.dense or self.ranked or self.raw):
            raise DjepaError("A token needs at least one coordinate: a direction or a rank.")

    def __call__(self, evidence: Evidence) -> Tensor:
        """(N, K, F) float32 tokens."""
        parts = [evidence.directions(name) for name in self.dense]
        if self.ranked:
            parts.append(evidence.ranks(self.ranked).float())
        parts += [_EXTRA[name](evidence, self) for name in self.extras]
        parts += [_latents(evidence, name).float() for name in self.raw]
        return torch.cat(parts, dim=-1)

    def kept(self, evidence: Evidence) -> bool:
        """Whether the tokens of all starts fit into memory; if not, make them when needed."""
        if evidence.stored:
            return False
        width = self(evidence.rows(range(min(1, len(evidence))))).shape[-1]
        return 4 * width * evidence.ids.numel() <= KEPT

    def reader(self, evidence: Evidence) -> Callable[[Tensor], Tensor]:
        """A function from (n,) rows to (n, K, F) tokens, made at once if they are `kept`."""
        if not self.kept(evidence):
            return lambda rows: self(evidence.rows(rows))
        parts = evidence.split(block_size(evidence.candidates))
        return filled(map(self, parts), len(evidence)).__getitem__


def consensus(evidence: Evidence, name: str) -> Tensor:
    """(N, K) float64 mean distance of a last latent to its 8 nearest neighbours in the pool.

    It uses neither the goal nor an outcome.
    """
    _check_latents(evidence, name)
    exact = "donot_use_mm_for_euclid_dist"  # a matrix product would lose small distances
    found = []
    for part in evidence.split(near_at_once(evidence.candidates)):
        end = part.latents[name].float()
        distances = torch.cdist(end, end, compute_mode=exact)
        some = min(1 + NEIGHBOURS, distances.shape[-1])
        near = distances.topk(some, dim=-1, largest=False).values  # ascending, itself first
        found.append(near[..., 1:].mean(-1))
    return torch.cat(found).double()


def near_at_once(candidates: int) -> int:
    """Starts whose distances within the pool are computed at once."""
    return max(1, AT_ONCE // candidates**2)


def _check_latents(evidence: Evidence, name: str) -> None:
    """Raise if the geometry has no latents; reads none, because they may be on disk."""
    if name not in evidence.latents:
        raise unknown_name("last latents of", name, evidence.latents)


def _latents(evidence: Evidence, name: str) -> Tensor:
    _check_latents(evidence, name)
    return evidence.latents[name]


def log_ratios(costs: Tensor) -> Tensor:
    """(N, K, M) float64 costs -> ℓ_i = log c_i - min_j log c_j, per pool and column.

    Costs are bounded below by LEAST times the pool's largest, so that the unit has no effect.
    """
    least = (LEAST * costs.amax(1, keepdim=True)).clamp(min=torch.finfo(costs.dtype).tiny)
    logs = costs.maximum(least).log()
    return logs - logs.amin(1, keepdim=True)


def _agreement(evidence: Evidence, tokens: Tokens) -> Tensor:
    """(N, K, 2): the best and the worst rank of a candidate over the geometries."""
    ranks = evidence.ranks(tokens.ranked).float()
    return torch.stack([ranks.amin(-1), ranks.amax(-1)], dim=-1)


def _log(evidence: Evidence, tokens: Tokens) -> Tensor:
    """(N, K, M) log ratios ℓ of the costs of the ranked geometries."""
    costs = [evidence.cost(name) for name in tokens.ranked]
    return log_ratios(torch.stack(costs, dim=-1)).float()


_EXTRA = {"log": _log, "agreement": _agreement}
