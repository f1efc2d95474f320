"""The life of an alignment: fit → calibrate → decide.

Fitting sees the outcomes of the fitting starts; calibration those of others, and chooses the
checkpoint and the gate; deciding sees evidence alone.

Legend: N starts, K candidates, F token width.
"""

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy.typing as npt
import torch
from torch import Tensor, nn

from djepa.align.fusion import fit_fusion
from djepa.align.gates import (
    CAREFUL,
    POLICIES,
    Gate,
    Mode,
    Policy,
    among,
    calibrate,
    calibrate_on_grid,
)
from djepa.align.mixture import fit_logs
from djepa.align.objectives import TASK_LOCAL, RelationalLoss
from djepa.align.operator import OperatorConfig, RelationalOperator
from djepa.align.outcomes import Outcomes, millionths
from djepa.align.risk import Guarantee, risk_controlled
from djepa.artefacts.store import locate
from djepa.errors import DjepaError, unknown_name
from djepa.evidence.evidence import Evidence, clusters, disjoint, same_weights
from djepa.evidence.fusion import Fusion, fuse
from djepa.evidence.logs import LogMixture
from djepa.evidence.ranks import order
from djepa.evidence.tokens import Tokens
from djepa.seeds import generator, seed_for
from djepa.threads import one_thread

PAIRS = 2**23  # of candidates, that a batch with dropped attention may hold
AT_ONCE = 2**14  # candidates of several starts whose corrections are computed in one go
Given = Outcomes | npt.ArrayLike | Tensor  # an array: (N, K) successes
Mixing = Literal["ranks", "log", "log+ranks", "graded", "graded+ranks"]


@dataclass(frozen=True)
class AlignConfig:
    """Everything that makes an alignment; the defaults are the published dual-model one."""

    may_lack = ("raw", "cosine")  # newer than the suites that are shipped

    dense: tuple[str, ...] = ("lewm", "tdjepa")  # geometries that give directions
    ranked: tuple[str, ...] = ("lewm", "tdjepa")  # and ranks
    base: tuple[str, ...] = ("lewm", "tdjepa")  # mixed into the base score
    mixture: Mixing = "ranks"  # convex in ranks as published; the others: see align/mixture.py
    density: tuple[str, ...] = ()  # geometries whose pool density may be an input of a log mixture
    extras: tuple[str, ...] = ()  # further label-free coordinates, see evidence/tokens.py
    raw: tuple[str, ...] = ()  # geometries whose last latents are coordinates as they are
    operator: OperatorConfig = field(default_factory=lambda: OperatorConfig(inputs=1))
    loss: RelationalLoss = field(default_factory=RelationalLoss)
    updates: int = 1000
    epochs: int = 0  # if not 0: so many passes over the fitting starts instead of `updates`
    batch: int = 8
    rate: float = 3e-4
    decay: float = 1e-4
    cosine: bool = False  # the rate falls to 0 along half a cosine
    clip: float = 1.0
    every: int = 50  # updates, or with `epochs` passes, between two checkpoints
    seed: int = 3072
    mode: Mode = "base_minus_refined"
    policy: Policy = "permissive"
    decimals: int | None = None
    grid: bool = False  # the task-local threshold grid instead of the policy

    def __post_init__(self) -> None:
        if self.mixture not in get_args(Mixing):
            raise unknown_name("mixture", self.mixture, get_args(Mixing))
        if self.policy not in POLICIES:
            raise unknown_name("policy", self.policy, POLICIES)
        Gate(mode=self.mode)  # refuses an unknown one
        if self.density and self.mixture == "ranks":
            raise DjepaError("A density is an input of a log mixture: set mixture to log.")
        if min(self.updates, self.epochs) < 0 or min(self.batch, self.every) < 1:
            raise DjepaError("batch and every are at least 1, updates and epochs 0.")

    @property
    def latents(self) -> tuple[str, ...]:
        """Geometries of which last latents are needed, beside costs."""
        return tuple(dict.fromkeys((*self.dense, *self.density, *self.raw)))

    @property
    def geometries(self) -> tuple[str, ...]:
        """All geometries that are read."""
        return tuple(dict.fromkeys((*self.latents, *self.ranked, *self.base)))

    def tokens(self) -> Tokens:
        """What the operator reads of a candidate."""
        return Tokens(self.dense, self.ranked, self.extras, self.raw)


def task_local(names: Sequence[str]) -> AlignConfig:
    """Three ranks, no directions: the published settings of the shape and appearance tasks.

    The fusion is of the first two (visual and proprioceptive), the third is the native joint rank.
    120 passes, a checkpoint every ten; of equal successes the one whose choices cost least.
    """
    return AlignConfig(
        dense=(),
        ranked=tuple(names),
        base=tuple(names[:2]),
        loss=TASK_LOCAL,
        epochs=120,
        every=10,
        batch=16,
        mode="refined_gap",
        grid=True,
        seed=20260906,
    )


class Snapshot(NamedTuple):
    """A checkpoint on the way."""

    update: int
    trust: float  # the trust term of its batch
    weights: dict[str, Tensor]


class Fit(NamedTuple):
    """What fitting reports."""

    starts: int
    skipped: int  # of one outcome class: they teach nothing
    fusion: Fusion | LogMixture
    losses: tuple[float, ...]  # at every checkpoint


class Inputs(NamedTuple):
    """What the operator reads of N starts, candidates by ID."""

    tokens: Tensor  # (N, K, F) float32
    base: Tensor  # (N, K) float64 base scores
    back: Tensor  # (N, K) positions that bring candidates back into the order they came in


class Decision(NamedTuple):
    """N label-free decisions."""

    choice: Tensor  # (N,) candidate IDs
    order: Tensor  # (N, K) candidate IDs, best first
    base: Tensor  # (N, K) float64 base scores
    refined: Tensor  # (N, K) float32 aligned scores
    final: Tensor  # (N, K) float64: the one that orders
    opened: Tensor  # (N,) bool: the gate let the aligned choice pass
    position: Tensor  # (N,) of the chosen candidates


def at_once(candidates: int) -> int:
    """Starts whose corrections are computed in one go; other batches might round differently."""
    return max(1, AT_ONCE // candidates)


class Alignment:
    """One alignment; `fit`, then `calibrate`, then `decide`. Out of order it raises."""

    def __init__(self, config: AlignConfig | None = None) -> None:
        self.config = config or AlignConfig()
        self.weights: dict[str, str] = {}  # of the geometries it was fitted with, by hash
        self.gate: Gate | None = None
        self.report: Fit | None = None
        self.operator: RelationalOperator | None = None
        self.tokens: Tokens | None = None
        self._snapshots: list[Snapshot] = []
        self._fitted: Evidence | None = None
        self._calibrated_on: Evidence | None = None

    def fit(self, evidence: Evidence, outcomes: Given) -> "Alignment":
        """Fit base score and operator on outcomes of the fitting starts.

        Here and below, an (N, K) array of successes may stand for outcomes.
        """
        outcomes = Outcomes.of(evidence, outcomes)
        by_id = evidence.ids.argsort(dim=1)  # the order in which candidates come has no effect
        evidence, outcomes = evidence.columns(by_id), outcomes.columns(by_id)
        c, usable = self.config, outcomes.mixed
        if not usable.any():
            raise DjepaError(
                "Every fitting start has outcomes of one class only: there is nothing to learn. "
                "Collect more starts, or pools with both successes and failures."
            )
        self.gate = self.report = self._fitted = None
        fusion = self._mix(evidence, outcomes)
        self.tokens = c.tokens()
        base, rows = self._base(evidence, fusion), usable.nonzero().flatten()
        tokens = self._tokens(evidence)
        self.operator = self.fresh(tokens(rows[:1]).shape[-1]).to(base.device)
        # Batches are small: more threads gain nothing, wait for busy cores and round differently.
        with one_thread():
            losses = self._descend(self.operator, tokens, rows, base, evidence.ids, outcomes)
        self.report = Fit(len(rows), int((~usable).sum()), fusion, losses)
        self._fitted = evidence
        self.weights = {n: of for n, of in evidence.weights.items() if n in c.geometries}
        return self

    def calibrate(self, evidence: Evidence, outcomes: Given) -> "Alignment":
        """Choose the checkpoint and the gate on starts that were not fitted."""
        if self._fitted is None or self.report is None:
            raise DjepaError("Fit before you calibrate.")
        outcomes = Outcomes.of(evidence, outcomes)
        disjoint(fitting=self._fitted, calibration=evidence)
        scores, gates, keys = self._scorer(evidence), [], []
        for snapshot in self._snapshots:
            self._ready().load_state_dict(snapshot.weights)
            gate, successes, cost = self._calibrated(scores(), evidence.ids, outcomes)
            gates.append(gate)
            # Most successes; then the least cost, or the smallest corrections; then the earliest.
            second = cost if self.config.grid else snapshot.trust
            keys.append((successes, -second, -snapshot.update))
        at = keys.index(max(keys))
        self._ready().load_state_dict(self._snapshots[at].weights)
        self.gate, self._calibrated_on = gates[at], evidence
        return self

    def that_saw(self, fitting: Evidence | None, calibration: Evidence | None) -> "Alignment":
        """Itself, calibrated, without its checkpoints, and with this evidence named as what it was
        fitted and calibrated on: none while it travels from one process to another.
        """
        self._snapshots, self._fitted, self._calibrated_on = [], fitting, calibration
        return self

    def guarantee(
        self, evidence: Evidence, outcomes: Given, harm: float, confidence: float = 0.95
    ) -> Guarantee:
        """Replace the gate by one that turns at most a share `harm` of starts into failures.

        The starts must be others than those that chose the checkpoint. Without a threshold that
        can be certified on so many starts, the gate never opens.
        """
        if self.gate is None or self._fitted is None:
            raise DjepaError("Fit and calibrate before you ask for a guarantee.")
        outcomes = Outcomes.of(evidence, outcomes)
        disjoint(fitting=self._fitted, guarantee=evidence)
        if self._calibrated_on is not None:
            disjoint(calibration=self._calibrated_on, guarantee=evidence)
        base, refined = among(outcomes.observed, *self.scores(evidence))
        same, given = clusters(evidence.identities), (evidence.ids, outcomes.success)
        found = risk_controlled(self.gate, base, refined, *given, harm, confidence, same)
        self.gate = found.gate
        return found

    def scores(self, evidence: Evidence) -> tuple[Tensor, Tensor]:
        """Base (N, K) float64 and aligned (N, K) float32 scores, some starts after the other."""
        return self._scored(
            self._inputs(part) for part in evidence.split(at_once(evidence.candidates))
        )

    def _scorer(self, evidence: Evidence) -> Callable[[], tuple[Tensor, Tensor]]:
        """Scores by the operator as it is when called; tokens in memory are made once."""
        if evidence.stored:
            return lambda: self.scores(evidence)
        known = [self._inputs(part) for part in evidence.split(at_once(evidence.candidates))]
        return lambda: self._scored(known)

    def _tokens(self, evidence: Evidence) -> Callable[[Tensor], Tensor]:
        """Rows -> tokens (n, K, F); latents on disk are read when a batch needs them."""
        assert self.tokens is not None
        make = self.tokens
        if evidence.stored:
            return lambda rows: make(evidence.rows(rows))
        return make(evidence).__getitem__

    def _mix(self, evidence: Evidence, outcomes: Outcomes) -> Fusion | LogMixture:
        """The base score that solves, or explains, most fitting starts."""
        c = self.config
        if c.mixture != "ranks":
            good = outcomes.quality if c.mixture.startswith("graded") else outcomes.success
            ranked = c.mixture.endswith("+ranks")
            return fit_logs(evidence, good, outcomes.observed, c.base, c.density, ranked)
        ranks = evidence.ranks(c.base)
        return fit_fusion(ranks, evidence.ids, outcomes.success, observed=outcomes.observed)

    def _base(self, evidence: Evidence, fusion: Fusion | LogMixture) -> Tensor:
        """(N, K) float64."""
        if isinstance(fusion, LogMixture):
            return fusion(evidence)
        return fuse(evidence.ranks(self.config.base), fusion.weights)

    @torch.no_grad()
    def _inputs(self, evidence: Evidence) -> Inputs:
        """What the operator reads of evidence."""
        same_weights(self.weights, evidence.weights)
        if self.tokens is None or self.report is None:
            raise DjepaError("Fit before you score.")
        by_id = evidence.ids.argsort(dim=1)  # sums then round alike in whatever order they come
        known = evidence.columns(by_id)
        base = self._base(known, self.report.fusion)
        return Inputs(self.tokens(known), base, by_id.argsort(dim=1))

    @torch.no_grad()
    def _scored(self, known: Iterable[Inputs]) -> tuple[Tensor, Tensor]:
        bases, scores = [], []
        for tokens, base, back in known:
            refined = self._ready().to(tokens.device)(tokens, base)[0]
            if not refined.isfinite().all():
                raise DjepaError("An aligned score is not finite; the operator's weights overflow.")
            bases.append(base.gather(1, back))
            scores.append(refined.gather(1, back))
        return torch.cat(bases), torch.cat(scores)

    def decide(self, evidence: Evidence) -> Decision:
        """Choose; there is no way for an outcome to get in here."""
        if self.gate is None:
            raise DjepaError("Calibrate before you decide.")
        base, refined = self.scores(evidence)
        opened = self.gate.opens(base, refined, evidence.ids)
        final = self.gate.final(base, refined, evidence.ids)
        places = order(final, evidence.ids)
        ids = evidence.ids.gather(1, places)
        return Decision(ids[:, 0], ids, base, refined, final, opened, places[:, 0])

    def save(self, folder: str | Path, card: Mapping[str, Any] | None = None) -> None:
        """Write a calibrated alignment, for `djepa.load`; the card says what it was made of."""
        from djepa.align.store import save_alignment

        save_alignment(self, locate(folder), dict(card or {}))

    def fresh(self, inputs: int) -> RelationalOperator:
        """An untrained operator that reads tokens of so many numbers."""
        random = torch.Generator().manual_seed(self.config.seed)
        return RelationalOperator(replace(self.config.operator, inputs=inputs), random)

    def _ready(self) -> RelationalOperator:
        if self.operator is None:
            raise DjepaError("Fit before you score.")
        return self.operator

    def _descend(
        self,
        operator: RelationalOperator,
        tokens: Callable[[Tensor], Tensor],
        usable: Tensor,
        base: Tensor,
        ids: Tensor,
        outcomes: Outcomes,
    ) -> tuple[float, ...]:
        """Train the operator on `usable` starts; the losses at the checkpoints."""
        c, losses = self.config, []
        size = self._size(len(usable), ids.shape[1])
        updates, every = self._length(len(usable), size)
        worth = outcomes.quality if c.loss.graded else outcomes.success
        random = torch.Generator(base.device).manual_seed(seed_for("dropout", c.seed) % 2**31)
        self._snapshots = [Snapshot(0, 0.0, copy.deepcopy(operator.state_dict()))]
        step = torch.optim.AdamW(operator.parameters(), c.rate, weight_decay=c.decay)
        for update in range(1, updates + 1):
            if c.cosine:
                rate = c.rate * (1 + math.cos(math.pi * update / updates)) / 2
                step.param_groups[0]["lr"] = rate
            rows = usable[self._batch(len(usable), size, update).to(usable.device)]
            scores, delta = operator(tokens(rows), base[rows], random)
            loss, trust = c.loss(scores, delta, worth[rows], outcomes.observed[rows], ids[rows])
            step.zero_grad()
            loss.backward()
            if not nn.utils.clip_grad_norm_(operator.parameters(), c.clip).isfinite():
                raise DjepaError(f"The gradient of update {update} is not finite.")
            step.step()
            if update % every == 0 or update in (1, updates):
                weights = copy.deepcopy(operator.state_dict())
                self._snapshots.append(Snapshot(update, trust.item(), weights))
                losses.append(loss.item())
        return tuple(losses)

    def _size(self, starts: int, candidates: int) -> int:
        """Starts of a batch: fewer where dropped attention of large pools would fill the memory."""
        c = self.config
        room = max(1, PAIRS // candidates**2) if c.operator.dropout else starts
        return min(c.batch, starts, room)

    def _length(self, starts: int, size: int) -> tuple[int, int]:
        """Updates in all, and between two checkpoints."""
        c, passes = self.config, -(-starts // size)
        return (c.epochs * passes, c.every * passes) if c.epochs else (c.updates, c.every)

    def _batch(self, starts: int, size: int, update: int) -> Tensor:
        """Positions of a batch: drawn anew, or the next part of this pass's order."""
        c = self.config
        if not c.epochs:
            rng = generator("align", c.seed, 0, update)
            return torch.from_numpy(rng.choice(starts, size, replace=False))
        turn, part = divmod(update - 1, -(-starts // size))
        order = generator("align", c.seed, 0, "pass", turn).permutation(starts)
        return torch.from_numpy(order[part * size :][:size])

    def _calibrated(
        self, scores: tuple[Tensor, Tensor], ids: Tensor, outcomes: Outcomes
    ) -> tuple[Gate, int, float]:
        """Gate of a checkpoint; successes, or parts of quality, and mean cost of its choices."""
        c, cost, graded = self.config, outcomes.cost, self.config.policy == "graded"
        base, refined = among(outcomes.observed, *scores)
        gate = Gate(mode=c.mode, decimals=c.decimals)
        good = outcomes.quality if graded else outcomes.success
        if c.grid:
            spent = (~outcomes.success).double() if cost is None else cost
            gate = calibrate_on_grid(gate, base, refined, ids, outcomes.success, spent)
        else:
            known, same = (base, refined, ids, good), clusters(outcomes.identities)
            # Each checkpoint is one more try, but for update 0: it is the base and cannot open.
            level = CAREFUL / max(1, sum(of.update > 0 for of in self._snapshots))
            gate = calibrate(gate, *known, c.policy, cost, same=same, level=level)
        chosen = gate.choose(base, refined, ids)[:, None]
        paid = 0.0 if cost is None else float(cost.gather(1, chosen).mean())
        parts = millionths(good) if graded else good
        return gate, int(parts.gather(1, chosen).sum()), paid
