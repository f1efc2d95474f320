"""Driving readouts: two networks that correct the choice of a trajectory scorer.

    score correction   s̃_i = s_i + 0.2 tanh(wᵀh_i + b)                       288 numbers a candidate
    anchor-relative    δ_i = 0.2 tanh(wᵀ(h_i - h_b)),  v_i = p_i^NC + (5/12) p_i^TTC          282
                       U_i = s_i + α δ_i - λ max(v_i - v_b, 0)             (Eq. 11)

b is the native winner: its correction is exactly zero. Higher is better.

Legend: N scenes, K candidates, F token width, D width of the network.
"""

from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from djepa.align.operator import Layer, OperatorConfig, bounded, draw_weights
from djepa.errors import DjepaError
from djepa.evidence.ranks import check_pools, check_values, strict_ranks
from djepa.evidence.score import Score

EPSILON, TTC_SHARE = 0.2, 5 / 12
WIDTH, LAYERS, HEADS, HIDDEN = 64, 2, 4, 128
TOP = 8  # candidates at the top of the native ranking


@dataclass(frozen=True)
class DrivingEvidence:
    """What the native scorer exposes of N scenes before execution."""

    queries: Tensor  # (N, K, 256)
    logits: Tensor  # (N, K, 6) auxiliary outputs of the native scorer
    poses: Tensor  # (N, K, 8, 3)
    score: Tensor  # (N, K) native, higher is better
    ids: Tensor  # (N, K)
    logs: tuple[str, ...]  # (N,) source log of each scene

    def __post_init__(self) -> None:
        check_pools(self.ids, score=self.score)
        check_values(self.ids, queries=self.queries, logits=self.logits, poses=self.poses)
        if len(self.logs) != len(self.ids):
            raise DjepaError(f"{len(self.logs)} log names for {len(self.ids)} scenes.")

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def native(self) -> Tensor:
        """(N,) positions of the native winners."""
        return Score(self.score, higher_is_better=True).winners(self.ids)

    def tokens(self, auxiliary: bool) -> Tensor:
        """(N, K, 288) with the six auxiliary outputs, (N, K, 282) without."""
        scalars = torch.stack([self.score, tied_ranks(self.score)], -1)
        parts = [self.queries, *([self.logits] if auxiliary else []), scalars]
        return torch.cat([*parts, self.poses.flatten(2)], -1).float()

    def rows(self, rows: Tensor) -> "DrivingEvidence":
        """The scenes at these positions."""
        tensors = {f.name: getattr(self, f.name)[rows] for f in fields(self) if f.name != "logs"}
        return DrivingEvidence(**tensors, logs=tuple(self.logs[i] for i in rows.tolist()))


@dataclass(frozen=True)
class DrivingOutcomes:
    """What execution showed, (N, K) each; never seen by a decision."""

    pdms: Tensor  # in [0, 1]
    collision: Tensor  # bool: at fault
    ttc: Tensor  # bool: time to collision failed

    def rows(self, rows: Tensor) -> "DrivingOutcomes":
        """The scenes at these positions."""
        return DrivingOutcomes(self.pdms[rows], self.collision[rows], self.ttc[rows])


@dataclass(frozen=True)
class Normal:
    """Mean and scale of the tokens of the fitting scenes, (F,) each."""

    mean: Tensor
    scale: Tensor

    @classmethod
    def of(cls, tokens: Tensor) -> "Normal":
        """Fit to tokens (N, K, F)."""
        flat = tokens.flatten(0, 1)
        return cls(flat.mean(0), flat.std(0).clamp(min=1e-4))

    def __call__(self, tokens: Tensor) -> Tensor:
        """(N, K, F) standardised and clipped at ±10: columns constant in fitting may vary later."""
        return ((tokens - self.mean) / self.scale).clamp(-10, 10)


def tied_ranks(score: Tensor) -> Tensor:
    """r_i = K⁻¹ (Σ_j [s_i > s_j] + ½ Σ_j [s_i = s_j]), (N, K); the best is near 1."""
    a, b = score[..., :, None], score[..., None, :]
    return ((a > b).double() + 0.5 * (a == b).double()).mean(-1)


class Encoder(nn.Module):
    """Linear, LayerNorm, GELU to 64; then two layers with or without attention over the set."""

    def __init__(self, inputs: int, relations: bool = True) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(inputs, WIDTH), nn.LayerNorm(WIDTH), nn.GELU())
        self.relations = relations
        if relations:
            sizes = OperatorConfig(inputs, WIDTH, LAYERS, HEADS, HIDDEN)
            self.layers = nn.ModuleList(Layer(sizes) for _ in range(LAYERS))
        else:
            hidden = [nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, WIDTH), nn.GELU()]
            self.layers = nn.ModuleList(hidden)

    def forward(self, tokens: Tensor) -> Tensor:
        """(N, K, F) -> (N, K, D)."""
        h = self.embed(tokens)
        for layer in self.layers:
            h = layer(h)
        return h


class ScoreCorrection(nn.Module):
    """A bounded correction of every native score, initially zero."""

    def __init__(self, inputs: int, random: Generator, relations: bool = True) -> None:
        super().__init__()
        self.encoder, self.head = Encoder(inputs, relations), nn.Linear(WIDTH, 1)
        draw_weights(self.encoder, random)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """(N, K, F) -> (N, K) corrections δ, |δ| ≤ 0.2."""
        return bounded(self.head(self.encoder(tokens))[..., 0], EPSILON)

    def loss(self, tokens: Tensor, score: Tensor, ids: Tensor, seen: DrivingOutcomes) -> Tensor:
        """Squared error to quality + pairwise loss near the native choice + mean δ²."""
        delta = self(tokens)
        fitted, near = score + delta, near_choice(score, ids)
        pairs = ordered_pairs(fitted, seen.pdms, near)
        return F.mse_loss(fitted, seen.pdms) + PAIRS * pairs + TRUST * delta.square().mean()


class AnchorRelative(nn.Module):
    """Benefit δ_i of a candidate over the native winner, and its risk logits (Eq. 11)."""

    def __init__(self, inputs: int, random: Generator) -> None:
        super().__init__()
        self.encoder = Encoder(inputs)
        self.head, self.risk = nn.Linear(WIDTH, 1, bias=False), nn.Linear(WIDTH, 2)
        draw_weights(self.encoder, random)
        draw_weights(self.risk, random)
        nn.init.zeros_(self.head.weight)

    def forward(self, tokens: Tensor, native: Tensor) -> tuple[Tensor, Tensor]:
        """(N, K, F), (N,) native winners -> (N, K) δ with δ_b = 0, (N, K, 2) NC and TTC logits."""
        h = self.encoder(tokens)
        anchor = h.gather(1, native[:, None, None].expand(-1, 1, h.shape[2]))
        return bounded(self.head(h - anchor)[..., 0], EPSILON), self.risk(h)

    def loss(
        self, tokens: Tensor, score: Tensor, ids: Tensor, seen: DrivingOutcomes, risk: bool
    ) -> Tensor:
        """Weighted smooth L1 of the benefit + pairwise loss + mean δ² (+ risk cross-entropy)."""
        native = Score(score, higher_is_better=True).winners(ids)[:, None]
        delta, logits = self(tokens, native[:, 0])
        near = near_choice(score, ids)
        failed = torch.stack([seen.collision, seen.ttc], -1)
        kept = failed.gather(1, native[..., None].expand(-1, 1, 2))
        unsafe = (failed & ~kept).any(-1)  # fails where the native winner does not
        weight = 1 + (BOUNDARY - 1) * near + (UNSAFE - 1) * unsafe
        weight = weight / weight.mean()
        benefit = seen.pdms - seen.pdms.gather(1, native)
        fitted = score + delta
        gain = fitted - score.gather(1, native)
        total = (weight * F.smooth_l1_loss(gain, benefit, reduction="none", beta=0.1)).mean()
        total = total + PAIRS * ordered_pairs(fitted, benefit, near)
        total = total + TRUST * delta.square().mean()
        if risk:
            entropy = F.binary_cross_entropy_with_logits(logits, failed.float(), reduction="none")
            total = total + RISK * (weight[..., None] * entropy).mean()
        return total


PAIRS, TRUST, RISK = 0.25, 0.1, 0.5  # weights of the terms of the losses
BOUNDARY, UNSAFE = 2.0, 4.0  # weights of candidates
TEMPERATURE, LEAST = 0.05, 0.01  # T of the pairs; least difference in quality of a pair


def near_choice(score: Tensor, ids: Tensor) -> Tensor:
    """(N, K) bool: the TOP candidates by native score."""
    return strict_ranks(Score(score, higher_is_better=True).cost, ids) < TOP


def ordered_pairs(score: Tensor, quality: Tensor, use: Tensor) -> Tensor:
    """Mean over pairs of better and worse candidates of softplus((s_worse - s_better) / T)."""
    better = quality[:, :, None] > quality[:, None] + LEAST
    pairs = better & use[:, :, None] & use[:, None]
    gap = (score[:, None] - score[:, :, None]) / TEMPERATURE
    return TEMPERATURE * (F.softplus(gap) * pairs).sum() / pairs.sum().clamp(min=1)


def utility(
    score: Tensor, delta: Tensor, logits: Tensor, native: Tensor, alpha: float, risk: float
) -> Tensor:
    """U (N, K) of Eq. 11; `risk` is λ."""
    p = logits.double().sigmoid()
    v = p[..., 0] + TTC_SHARE * p[..., 1]
    more = (v - v.gather(1, native[:, None])).clamp(min=0)
    return score.double() + alpha * delta.double() - risk * more


def switch(U: Tensor, ids: Tensor, native: Tensor, margin: float) -> Tensor:
    """(N,) positions: argmax U where it exceeds U of the native winner by > m, else the latter."""
    j = Score(U, higher_is_better=True).winners(ids)
    gain = U.gather(1, j[:, None]) - U.gather(1, native[:, None])
    return torch.where(gain[:, 0] > margin, j, native)
