"""Strict orders within a pool. Scores are compared in float64; ties go to the smaller ID."""

import torch
from torch import Tensor

from djepa.errors import DjepaError
from djepa.evidence.blocks import block_size, in_blocks, slices


def order(scores: Tensor, ids: Tensor) -> Tensor:
    """(N, K) scores, lower is better, and IDs -> (N, K) positions, best first."""
    return in_blocks(_order, scores, ids)


def _order(scores: Tensor, ids: Tensor) -> Tensor:
    by_id = ids.argsort(dim=-1)
    by_score = scores.double().gather(-1, by_id).argsort(dim=-1, stable=True)
    return by_id.gather(-1, by_score)


def strict_ranks(scores: Tensor, ids: Tensor) -> Tensor:
    """(N, K) scores, IDs -> (N, K) int64 in {0, ..., K - 1}: rank in the pool, the best has 0."""
    return in_blocks(lambda *of: _order(*of).argsort(dim=-1), scores, ids)


def ordinal_ranks(scores: Tensor, ids: Tensor) -> Tensor:
    """(N, K) float64 r_i = (rank(c_i) - 1) / (K - 1) in [0, 1] (§4.1); the best has 0."""
    last = scores.shape[-1] - 1
    return in_blocks(lambda *of: _order(*of).argsort(dim=-1).double() / last, scores, ids)


def best(scores: Tensor, ids: Tensor) -> Tensor:
    """(N, K) scores, IDs -> (N,) position of the lowest score."""
    return in_blocks(_best, scores, ids)


def _best(scores: Tensor, ids: Tensor) -> Tensor:
    scores = scores.double()
    beaten = scores > scores.amin(-1, keepdim=True)
    below = ids - torch.iinfo(ids.dtype).max  # at most 0, so that 1 is larger than any ID
    return below.masked_fill(beaten, 1).argmin(-1)


def ascending(ids: Tensor) -> bool:
    """Whether the candidates of all (N, K) pools are in order of ID."""
    return bool((ids[:, 1:] > ids[:, :-1]).all())


def check_pools(ids: Tensor, **scores: Tensor) -> None:
    """Raise unless pools have a strict order: K > 1, distinct IDs of at least 0, finite scores.

    `scores` are (N, K) each.
    """
    if ids.ndim != 2 or ids.shape[1] < 2:
        raise DjepaError(f"candidate IDs must be (N, K) with K of at least 2, got {_shape(ids)}.")
    if ids.dtype not in (torch.int32, torch.int64):
        raise DjepaError(f"candidate IDs must be integers, got {ids.dtype}.")
    if (ids < 0).any():
        raise DjepaError("candidate IDs must not be negative or above 2^63 - 1.")
    for at in slices(len(ids), block_size(ids.shape[1])):
        ordered = ids[at].sort(dim=1).values
        twice = (ordered[:, 1:] == ordered[:, :-1]).any(1).nonzero().flatten().tolist()
        if twice:
            row = at.start + twice[0]
            raise DjepaError(f"start {row} has a candidate ID twice; IDs are unique in a pool.")
    for name, score in scores.items():
        if score.ndim != 2:
            raise DjepaError(f"{name} is {_shape(score)}, candidate IDs are {_shape(ids)}.")
    check_values(ids, **scores)


def check_values(ids: Tensor, **values_of: Tensor) -> None:
    """Raise unless all values have shape (N, K, ...) as the IDs and are finite."""
    for name, values in values_of.items():
        if values.shape[:2] != ids.shape:
            raise DjepaError(f"{name} is {_shape(values)}, candidate IDs are {_shape(ids)}.")
        if not values.is_floating_point():
            raise DjepaError(f"{name} must be floating point, got {values.dtype}.")
        finite = in_blocks(lambda part: part.isfinite().flatten(1).all(1), values)
        odd = (~finite).nonzero().flatten().tolist()
        if odd:
            raise DjepaError(f"{name} of start {odd[0]} holds a NaN or an infinity.")


def _shape(tensor: Tensor) -> str:
    return "(" + ", ".join(map(str, tensor.shape)) + ")"
