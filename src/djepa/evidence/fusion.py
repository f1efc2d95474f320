"""The base score as published: a convex mixture of ranks. align/fusion.py fits its weights.

    b_i = Σ_m w_m r_i^m,  w on the simplex;  two geometries: b_i = α r_i^L + (1 - α) r_i^T   (§4.1)

Legend: N starts, K candidates, M geometries.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from djepa.errors import DjepaError

ROUNDING = 1e-6  # also of weights that were kept in single precision


@dataclass(frozen=True)
class Fusion:
    """Weights, how many fitting starts they solve, and how folds of them agree.

    Where outcomes are graded, millionths of quality take the place of successes.
    """

    weights: tuple[float, ...]
    successes: int
    folds: tuple[tuple[float, ...], ...]  # weights fitted without each fifth of the starts
    held_out: int  # successes on the fifths that were left out

    def __post_init__(self) -> None:
        for weights in (self.weights, *self.folds):
            check_convex(weights)


def check_convex(weights: Sequence[float]) -> None:
    """Refuse weights that are not shares of one whole, rounding apart."""
    if min(weights, default=-1.0) < 0 or not math.isclose(sum(weights), 1, abs_tol=ROUNDING):
        raise DjepaError(f"Weights of a mixture are shares that add up to 1, not {weights}.")


def fuse(ranks: Tensor, weights: tuple[float, ...]) -> Tensor:
    """(N, K, M) ranks -> (N, K) base score, float64; the same to the bit in any pool order.

    Whole shares of ranks tie often: 12 decimals keep rounding from breaking ties before IDs do.
    """
    if len(weights) != ranks.shape[-1]:
        raise DjepaError(f"{len(weights)} weights for {ranks.shape[-1]} geometries.")
    score = torch.zeros(ranks.shape[:-1], dtype=torch.float64, device=ranks.device)
    for m, weight in enumerate(weights):  # a matrix product may add up differently from row to row
        score = score + weight * ranks[..., m].double()
    return score.round(decimals=12)
