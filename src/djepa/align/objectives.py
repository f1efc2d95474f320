"""The training loss of the relational operator, vectorised over starts.

    L_R       = L_success + λ_local L_local + λ_trust mean δ_i²                            (Eq. 2)
    L_success = -log Σ_{y_i = 1} softmax(-s / T)_i                                         (Eq. 6)
    L_local   = mean over successes i and failures j of softplus((μ + s_i - s_j) / T),     (Eq. 7)
                both among the k candidates with the lowest scores (the tail)

Where outcomes are graded, y is a quality in [0, 1]. One term then replaces L_success and L_local:
the expected quality of a choice drawn from softmax(-s / T).

    L_graded  = -log Σ_i y_i softmax(-s / T)_i

Only executed candidates enter: an unobserved one is never a failure. A start whose observed
candidates all succeed or all fail enters the trust term only.

Legend: N starts, K candidates; s score, b base score, δ = s - b, y = 1 success.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from djepa.errors import DjepaError
from djepa.evidence.ranks import strict_ranks

WORTHLESS = 1e-6  # lower bound of a quality, so that its logarithm is finite
LARGE = 512  # larger pools form their pairs start by start, to save memory


@dataclass(frozen=True)
class RelationalLoss:
    """L_R of Eq. 2 with its weights; the defaults are the published ones."""

    may_lack = ("graded",)  # absent from the configurations of shipped suites

    temperature: float = 0.05  # T
    margin: float = 0.02  # μ
    local: float = 0.25  # λ_local
    trust: float = 0.1  # λ_trust
    tail: int = 16  # k, size of the low-score subset
    pooled: bool = False  # task-local variant: mean over all pairs of a batch, tail pairs only
    graded: bool = False  # y is a quality: L_graded + λ_trust mean δ²

    def __post_init__(self) -> None:
        if self.temperature <= 0 or self.tail < 1:
            raise DjepaError("A loss needs a temperature above 0 and a tail of at least 1.")

    def __call__(
        self, scores: Tensor, delta: Tensor, success: Tensor, observed: Tensor, ids: Tensor
    ) -> tuple[Tensor, Tensor]:
        """(N, K) each -> L_R and its trust term, the mean of δ² over observed candidates."""
        trust = (delta.square() * observed).sum() / observed.sum().clamp(min=1)
        if self.graded:
            loss = expected_quality(scores, success, observed, self.temperature).mean()
            return loss + self.trust * trust, trust
        good, bad = success & observed, ~success & observed
        usable = good.any(1) if self.pooled else good.any(1) & bad.any(1)
        mass = success_mass(scores, good, observed, self.temperature)
        mass = (mass * usable).sum() / usable.sum().clamp(min=1)
        low = tail(scores.detach(), ids, observed, self.tail)
        local = self._local if scores.shape[1] <= LARGE else self._local_by_rows
        pairs = local(scores, good, bad, low, usable)
        return mass + self.local * pairs + self.trust * trust, trust

    def _local(
        self, scores: Tensor, good: Tensor, bad: Tensor, low: Tensor, usable: Tensor
    ) -> Tensor:
        """L_local (Eq. 7). If a tail holds one class only, the pairs come from the whole pool."""
        pairs = (good & low)[:, :, None] & (bad & low)[:, None]
        if not self.pooled:
            alone = ~pairs.flatten(1).any(1)
            pairs = torch.where(alone[:, None, None], good[:, :, None] & bad[:, None], pairs)
        gap = (self.margin + scores[:, :, None] - scores[:, None]) / self.temperature
        loss = F.softplus(gap) * pairs
        if self.pooled:
            return loss.sum() / pairs.sum().clamp(min=1)
        rows = loss.flatten(1).sum(1) / pairs.flatten(1).sum(1).clamp(min=1)
        return (rows * usable).sum() / usable.sum().clamp(min=1)

    def _local_by_rows(
        self, scores: Tensor, good: Tensor, bad: Tensor, low: Tensor, usable: Tensor
    ) -> Tensor:
        """L_local for large pools, start by start, so that no (N, K, K) tensor is needed."""
        total, pairs, rows = scores.new_zeros(()), 0, 0
        for s, won, lost, near, counts in zip(scores, good, bad, low, usable, strict=True):
            whole = not self.pooled and not ((won & near).any() and (lost & near).any())
            of = torch.ones_like(near) if whole else near
            gap = (self.margin + s[won & of, None] - s[lost & of]) / self.temperature
            if counts and gap.numel():
                total = total + (F.softplus(gap).sum() if self.pooled else F.softplus(gap).mean())
                pairs, rows = pairs + gap.numel(), rows + 1
        return total / max(1, pairs if self.pooled else rows)


TASK_LOCAL = RelationalLoss(margin=0.0, trust=0.01, pooled=True)


def success_mass(scores: Tensor, good: Tensor, observed: Tensor, temperature: float) -> Tensor:
    """L_success (Eq. 6) of every start, (N,); the softmax is over observed candidates.

    It is 0 for starts without an observed success.
    """
    logits = -scores / temperature
    every = logits.masked_fill(~observed, -torch.inf).logsumexp(1)
    winners = logits.masked_fill(~good, -torch.inf)
    some = good.any(1)
    kept = torch.where(some[:, None], winners, logits).logsumexp(1)
    return torch.where(some, every - kept, torch.zeros_like(every))


def expected_quality(
    scores: Tensor, quality: Tensor, observed: Tensor, temperature: float
) -> Tensor:
    """L_graded of every start, (N,); the softmax is over observed candidates."""
    logits = (-scores / temperature).masked_fill(~observed, -torch.inf)
    worth = quality.clamp(min=WORTHLESS).log().to(logits.dtype)
    return logits.logsumexp(1) - (logits + worth).logsumexp(1)


def tail(scores: Tensor, ids: Tensor, observed: Tensor, k: int) -> Tensor:
    """(N, K) bool: the k observed candidates with the lowest scores, ties to the smaller ID."""
    rank = strict_ranks(scores.masked_fill(~observed, torch.inf), ids)
    return (rank < k) & observed
