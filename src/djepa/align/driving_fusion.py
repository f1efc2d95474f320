"""The control without a network: a linear map of the native scorer's outputs for a candidate.

Legend: N scenes, K candidates.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from djepa.align.driving import DrivingEvidence, DrivingOutcomes, Normal, tied_ranks
from djepa.evidence.score import Score

RIDGE = 1e-2
SCALARS = 8  # inputs per candidate: six logits, score and rank


@dataclass(frozen=True)
class Fused:
    """A fitted linear map of six logits, score and rank."""

    normal: Normal
    weights: Tensor  # (9,)

    def score(self, evidence: DrivingEvidence) -> Tensor:
        """(N, K) predicted qualities, higher is better."""
        return _with_one(self.normal(_scalars(evidence))).double() @ self.weights

    def decide(self, evidence: DrivingEvidence) -> Tensor:
        """(N,) positions of the chosen candidates."""
        return Score(self.score(evidence), higher_is_better=True).winners(evidence.ids)


def fit_fusion(evidence: DrivingEvidence, outcomes: DrivingOutcomes) -> Fused:
    """Ridge regression of quality on six logits, score and rank."""
    normal = Normal.of(_scalars(evidence))
    x = _with_one(normal(_scalars(evidence))).double().flatten(0, 1)
    penalty = RIDGE * len(x) * torch.eye(x.shape[1], dtype=x.dtype)
    penalty[-1, -1] = 0.0
    weights = torch.linalg.solve(x.T @ x + penalty, x.T @ outcomes.pdms.double().flatten())
    return Fused(normal, weights)


def _scalars(evidence: DrivingEvidence) -> Tensor:
    """(N, K, 8): six logits, score and rank."""
    ranks = tied_ranks(evidence.score)[..., None]
    return torch.cat([evidence.logits, evidence.score[..., None], ranks], -1).float()


def _with_one(x: Tensor) -> Tensor:
    return torch.cat([x, torch.ones_like(x[..., :1])], -1)
