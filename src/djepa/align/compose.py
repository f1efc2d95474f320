"""Calibrated composition: keep the relational winner unless the adapted predictor's is better.

    default   g_i = b_i,  but  g_{i_R} = min(min_j b_j - 1e-6, s_{i_R})        relational winner i_R
    proposal  i_P = argmin s^P,   s^P the operator's scores on the adapted predictor's futures
    choose i_P iff  g_{i_R} - s^P_{i_P} > τ_P,   else i_R                                   (App. B)

g_{i_R} lies below every base score, so i_R = argmin g whatever its own base and aligned scores.
The proposal uses the operator's score, because the adapted predictor's cost has another scale.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from djepa.align.gates import NEVER, Gate, calibrate
from djepa.align.outcomes import Outcomes
from djepa.errors import DjepaError
from djepa.evidence.ranks import check_pools

BELOW = 1e-6  # least distance of g_{i_R} below the best base score
PUBLISHED = 0.0065339543  # τ_P recorded for push


class Composed(NamedTuple):
    """N label-free decisions."""

    choice: Tensor  # (N,) candidate IDs
    position: Tensor  # (N,)
    opened: Tensor  # (N,) bool: the proposal replaced the relational winner


@dataclass(frozen=True, eq=False)
class Pair:
    """The inputs of a composition: relational decisions and proposals over the same pools."""

    ids: Tensor  # (N, K) int64
    base: Tensor  # (N, K) base scores b
    refined: Tensor  # (N, K) the operator's scores s
    relational: Tensor  # (N,) positions of the relational winners i_R, after their own gate
    proposals: Tensor  # (N, K) the operator's scores s^P on adapted futures

    def __post_init__(self) -> None:
        check_pools(self.ids, base=self.base, refined=self.refined, proposals=self.proposals)
        N, K = self.ids.shape
        at = self.relational
        if at.shape != (N,) or at.dtype != torch.int64 or ((at < 0) | (at >= K)).any():
            raise DjepaError(f"Relational winners must be {N} positions from 0 to {K - 1}.")

    def default(self) -> Tensor:
        """(N, K) float64 g: base scores, with the relational winner below all others."""
        base, at = self.base.double(), self.relational[:, None]
        low = base.amin(1, keepdim=True) - BELOW
        return base.scatter(1, at, torch.minimum(low, self.refined.double().gather(1, at)))

    def rows(self, chosen: Tensor) -> "Pair":
        """The chosen starts; `chosen` is (N,) bool or indices."""
        given = (self.ids, self.base, self.refined, self.relational, self.proposals)
        return Pair(*(x[chosen] for x in given))


def compose(pair: Pair, threshold: float = NEVER) -> Composed:
    """Choose i_P where its advantage over i_R exceeds the threshold, else i_R."""
    gate, default = Gate(threshold), pair.default()
    position = gate.choose(default, pair.proposals, pair.ids)
    opened = gate.opens(default, pair.proposals, pair.ids)
    return Composed(pair.ids.gather(1, position[:, None])[:, 0], position, opened)


def calibrate_composition(pair: Pair, outcomes: Outcomes) -> float:
    """τ_P with the most successes on calibration starts; ties go to the most permissive.

    Starts whose relational winner was not executed are left out: its outcome is unknown.
    """
    if outcomes.success.shape != pair.ids.shape or outcomes.observed.shape != pair.ids.shape:
        raise DjepaError(f"Outcomes must be {tuple(pair.ids.shape)}, as the pools are.")
    known = outcomes.observed.gather(1, pair.relational[:, None])[:, 0]
    if not known.any():
        raise DjepaError("No relational winner of the calibration starts was executed.")
    kept, shown = pair.rows(known), outcomes.rows(known)
    gate = calibrate(
        Gate(), kept.default(), kept.proposals, kept.ids, shown.success, observed=shown.observed
    )
    return gate.threshold
