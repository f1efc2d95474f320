"""The published base score: a convex mixture of ranks, with weights from align/fusion.py.

    b_i = Σ_m w_m r_i^m,  w on the simplex;  two geometries: b_i = α r_i^L + (1 - α) r_i^T   (§4.1)

Legend: N starts, K candidates, M geometries.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from djepa.errors import DjepaError

ROUNDING = 1e-6  # tolerance of the sum of weights, also of weights stored in float32


@dataclass(frozen=True)
class Fusion:
    """Fitted weights, their successes on fitting starts, and their cross-validation.

    Where outcomes are graded, millionths of quality take the place of successes.
    """

    weights: tuple[float, ...]
    successes: int
    folds: tuple[tuple[float, ...], ...]  # weights fitted without each of five folds
    held_out: int  # successes on the held-out folds

    def __post_init__(self) -> None:
        for weights in (self.weights, *self.folds):
            check_convex(weights)


def check_convex(weights: Sequence[float]) -> None:
    """Raise unless the weights are nonnegative and sum to 1, within ROUNDING."""
    if min(weights, default=-1.0) < 0 or not math.isclose(sum(weights), 1, abs_tol=ROUNDING):
        raise DjepaError(f"Weights of a mixture are shares that add up to 1, not {weights}.")


def fuse(ranks: Tensor, weights: tuple[float, ...]) -> Tensor:
    """(N, K, M) ranks -> (N, K) float64 base score b, bit-identical for any order of the pool.

    Exact ties are common; rounding to 12 decimals keeps them, so that the candidate ID decides.
    """
    if len(weights) != ranks.shape[-1]:
        raise DjepaError(f"{len(weights)} weights for {ranks.shape[-1]} geometries.")
    score = torch.zeros(ranks.shape[:-1], dtype=torch.float64, device=ranks.device)
    for m, weight in enumerate(weights):  # a matrix product may sum each row in another order
        score = score + weight * ranks[..., m].double()
    return score.round(decimals=12)
