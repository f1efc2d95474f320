"""An alignment: fit → calibrate → decide.

`fit` learns base score and operator from outcomes of the fitting starts. `calibrate` chooses the
checkpoint and the gate on outcomes of other starts. `decide` reads evidence alone.

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
from djepa.evidence.blocks import Filled
from djepa.evidence.evidence import Evidence, clusters, disjoint, same_weights
from djepa.evidence.fusion import Fusion, fuse
from djepa.evidence.logs import LogMixture
from djepa.evidence.ranks import ascending, order
from djepa.evidence.tokens import Tokens
from djepa.seeds import generator, seed_for
from djepa.threads import one_thread

PAIRS = 2**23  # pairs of candidates in a batch whose attention weights have dropout
AT_ONCE = 2**14  # candidates, over several starts, that are scored in one call
Given = Outcomes | npt.ArrayLike | Tensor  # an array: (N, K) successes
Mixing = Literal["ranks", "log", "log+ranks", "graded", "graded+ranks"]


@dataclass(frozen=True)
class AlignConfig:
    """All settings of an alignment; the defaults are the published dual-model ones."""

    may_lack = ("raw", "cosine")  # absent from the configurations of shipped suites

    dense: tuple[str, ...] = ("lewm", "tdjepa")  # geometries whose directions enter the tokens
    ranked: tuple[str, ...] = ("lewm", "tdjepa")  # geometries whose ranks enter the tokens
    base: tuple[str, ...] = ("lewm", "tdjepa")  # geometries mixed into the base score
    mixture: Mixing = "ranks"  # convex in ranks as published; the others: see align/mixture.py
    density: tuple[str, ...] = ()  # geometries whose pool density may be an input of a log mixture
    extras: tuple[str, ...] = ()  # further label-free coordinates, see evidence/tokens.py
    raw: tuple[str, ...] = ()  # geometries whose last latents enter the tokens unchanged
    operator: OperatorConfig = field(default_factory=lambda: OperatorConfig(inputs=1))
    loss: RelationalLoss = field(default_factory=RelationalLoss)
    updates: int = 1000
    epochs: int = 0  # if not 0: passes over the fitting starts, in place of `updates`
    batch: int = 8
    rate: float = 3e-4
    decay: float = 1e-4
    cosine: bool = False  # cosine decay of the learning rate to 0
    clip: float = 1.0
    every: int = 50  # updates (with `epochs`: passes) between two checkpoints
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
        """Geometries whose last latents are read, beside their costs."""
        return tuple(dict.fromkeys((*self.dense, *self.density, *self.raw)))

    @property
    def geometries(self) -> tuple[str, ...]:
        """All geometries whose evidence is read."""
        return tuple(dict.fromkeys((*self.latents, *self.ranked, *self.base)))

    def tokens(self) -> Tokens:
        """The coordinates of the operator's tokens."""
        return Tokens(self.dense, self.ranked, self.extras, self.raw)


def task_local(names: Sequence[str]) -> AlignConfig:
    """Three ranks, no directions: the published settings of the shape and appearance tasks.

    The base score fuses the first two (visual and proprioceptive); the third is the native joint
    rank. 120 passes, a checkpoint every ten; ties in successes go to the least mean cost.
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
    """A checkpoint of the operator during fitting."""

    update: int
    trust: float  # trust term of the batch of this update
    weights: dict[str, Tensor]


class Fit(NamedTuple):
    """The report of a fit."""

    starts: int
    skipped: int  # starts whose observed candidates are of one class
    fusion: Fusion | LogMixture
    losses: tuple[float, ...]  # at every checkpoint


class Inputs(NamedTuple):
    """The operator's inputs for N starts, candidates sorted by ID."""

    tokens: Tensor  # (N, K, F) float32
    base: Tensor  # (N, K) float64 base scores
    back: Tensor  # (N, K) positions that restore the original order of the candidates


class Decision(NamedTuple):
    """N label-free decisions."""

    choice: Tensor  # (N,) candidate IDs
    order: Tensor  # (N, K) candidate IDs, best first
    base: Tensor  # (N, K) float64 base scores
    refined: Tensor  # (N, K) float32 aligned scores
    final: Tensor  # (N, K) float64: aligned scores where the gate opened, else base scores
    opened: Tensor  # (N,) bool: the gate opened
    position: Tensor  # (N,) positions of the chosen candidates


def at_once(candidates: int) -> int:
    """Starts scored in one call; fixed, because other batch sizes may round differently."""
    return max(1, AT_ONCE // candidates)


class Alignment:
    """One alignment: call `fit`, then `calibrate`, then `decide`; any other order raises."""

    def __init__(self, config: AlignConfig | None = None) -> None:
        self.config = config or AlignConfig()
        self.weights: dict[str, str] = {}  # geometry -> hash of the weights it was fitted with
        self.gate: Gate | None = None
        self.report: Fit | None = None
        self.operator: RelationalOperator | None = None
        self.tokens: Tokens | None = None
        self._snapshots: list[Snapshot] = []
        self._fitted: Evidence | None = None
        self._calibrated_on: Evidence | None = None

    def fit(self, evidence: Evidence, outcomes: Given) -> "Alignment":
        """Fit base score and operator on outcomes of the fitting starts.

        Here and below, outcomes may also be an (N, K) array of successes.
        """
        outcomes = Outcomes.of(evidence, outcomes)
        if not ascending(evidence.ids):  # so that the order of candidates has no effect
            by_id = evidence.ids.argsort(dim=1)
            evidence, outcomes = evidence.columns(by_id), outcomes.columns(by_id)
        c, rows = self.config, outcomes.teaching()
        self.gate = self.report = self._fitted = None
        fusion = self._mix(evidence, outcomes)
        self.tokens = c.tokens()
        base = self._base(evidence, fusion)
        tokens = self.tokens.reader(evidence)
        self.operator = self.fresh(tokens(rows[:1]).shape[-1]).to(base.device)
        # Batches are small: more threads save no time, and would change the rounding.
        with one_thread():
            losses = self._descend(self.operator, tokens, rows, base, evidence.ids, outcomes)
        self.report = Fit(len(rows), len(evidence) - len(rows), fusion, losses)
        self._fitted = evidence
        self.weights = {n: of for n, of in evidence.weights.items() if n in c.geometries}
        return self

    def calibrate(self, evidence: Evidence, outcomes: Given) -> "Alignment":
        """Choose the checkpoint and the gate on starts that fitting did not see."""
        if self._fitted is None or self.report is None:
            raise DjepaError("Fit before you calibrate.")
        outcomes = Outcomes.of(evidence, outcomes)
        disjoint(fitting=self._fitted, calibration=evidence)
        scores, gates, keys = self._scorer(evidence), [], []
        for snapshot in self._snapshots:
            self._ready().load_state_dict(snapshot.weights)
            gate, successes, cost = self._calibrated(scores(), evidence.ids, outcomes)
            gates.append(gate)
            # Ties in successes: the least cost or the smallest corrections, then the earliest.
            second = cost if self.config.grid else snapshot.trust
            keys.append((successes, -second, -snapshot.update))
        at = keys.index(max(keys))
        self._ready().load_state_dict(self._snapshots[at].weights)
        self.gate, self._calibrated_on = gates[at], evidence
        return self

    def that_saw(self, fitting: Evidence | None, calibration: Evidence | None) -> "Alignment":
        """Drop the checkpoints, set the evidence of fitting and of calibration, and return self.

        Both are None while an alignment is sent from one process to another.
        """
        self._snapshots, self._fitted, self._calibrated_on = [], fitting, calibration
        return self

    def guarantee(
        self, evidence: Evidence, outcomes: Given, harm: float, confidence: float = 0.95
    ) -> Guarantee:
        """Replace the gate by one that harms at most a share `harm` of starts (align/risk.py).

        The starts must differ from those that chose the checkpoint. If no threshold can be
        certified on this many starts, the gate never opens.
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
        """Base (N, K) float64 and aligned (N, K) float32 scores, computed in batches of starts."""
        parts = evidence.split(at_once(evidence.candidates))
        return self._scored(map(self._inputs, parts), len(evidence))

    def _scorer(self, evidence: Evidence) -> Callable[[], tuple[Tensor, Tensor]]:
        """A function that scores with the operator's current weights.

        Tokens that fit into memory are computed once.
        """
        if self.tokens is not None and not self.tokens.kept(evidence):
            return lambda: self.scores(evidence)
        known = [self._inputs(part) for part in evidence.split(at_once(evidence.candidates))]
        return lambda: self._scored(known, len(evidence))

    def _mix(self, evidence: Evidence, outcomes: Outcomes) -> Fusion | LogMixture:
        """Fit the base score: a convex mixture of ranks, or a likelihood mixture."""
        c = self.config
        if c.mixture != "ranks":
            good = outcomes.quality if c.mixture.startswith("graded") else outcomes.success
            ranked = c.mixture.endswith("+ranks")
            return fit_logs(evidence, good, outcomes.observed, c.base, c.density, ranked)
        ranks = evidence.ranks(c.base)  # of all starts: every mixture of the grid reads them again
        return fit_fusion(ranks, evidence.ids, outcomes.success, observed=outcomes.observed)

    def _base(self, evidence: Evidence, fusion: Fusion | LogMixture) -> Tensor:
        """(N, K) float64 base scores b."""
        if isinstance(fusion, LogMixture):
            return fusion(evidence)
        weights, names = fusion.weights, self.config.base
        return evidence.apart(lambda part: fuse(part.ranks(names), weights))

    @torch.no_grad()
    def _inputs(self, evidence: Evidence) -> Inputs:
        """The operator's inputs for this evidence, refused if its weights have other hashes."""
        same_weights(self.weights, evidence.weights)
        if self.tokens is None or self.report is None:
            raise DjepaError("Fit before you score.")
        by_id = evidence.ids.argsort(dim=1)  # so that sums round alike for any order
        known = evidence.columns(by_id)
        base = self._base(known, self.report.fusion)
        return Inputs(self.tokens(known), base, by_id.argsort(dim=1))

    @torch.no_grad()
    def _scored(self, known: Iterable[Inputs], starts: int) -> tuple[Tensor, Tensor]:
        found = Filled(starts)
        for tokens, base, back in known:
            refined = self._ready().to(tokens.device)(tokens, base)[0]
            if not refined.isfinite().all():
                raise DjepaError("An aligned score is not finite; the operator's weights overflow.")
            found.add(base=base.gather(1, back), refined=refined.gather(1, back))
        return found.arrays["base"], found.arrays["refined"]

    def decide(self, evidence: Evidence) -> Decision:
        """Choose one candidate per start from evidence alone; outcomes are not an argument."""
        if self.gate is None:
            raise DjepaError("Calibrate before you decide.")
        base, refined = self.scores(evidence)
        opened = self.gate.opens(base, refined, evidence.ids)
        final = self.gate.final(base, refined, evidence.ids)
        places = order(final, evidence.ids)
        ids = evidence.ids.gather(1, places)
        return Decision(ids[:, 0], ids, base, refined, final, opened, places[:, 0])

    def save(self, folder: str | Path, card: Mapping[str, Any] | None = None) -> None:
        """Write a calibrated alignment for `djepa.load`; `card` records how it was made."""
        from djepa.align.store import save_alignment

        save_alignment(self, locate(folder), dict(card or {}))

    def fresh(self, inputs: int) -> RelationalOperator:
        """An untrained operator for tokens of width `inputs`, seeded by the configuration."""
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
        """Train the operator on `usable` starts; returns the losses at the checkpoints."""
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
        """Starts per batch: fewer if attention with dropout on large pools needs much memory."""
        c = self.config
        room = max(1, PAIRS // candidates**2) if c.operator.dropout else starts
        return min(c.batch, starts, room)

    def _length(self, starts: int, size: int) -> tuple[int, int]:
        """Total number of updates, and updates between two checkpoints."""
        c, passes = self.config, -(-starts // size)
        return (c.epochs * passes, c.every * passes) if c.epochs else (c.updates, c.every)

    def _batch(self, starts: int, size: int, update: int) -> Tensor:
        """Positions of one batch: a fresh random draw, or the next part of a shuffled pass."""
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
        """The calibrated gate of a checkpoint, then the successes and the mean cost of its choices.

        Where outcomes are graded, millionths of quality take the place of successes.
        """
        c, cost, graded = self.config, outcomes.cost, self.config.policy == "graded"
        base, refined = among(outcomes.observed, *scores)
        gate = Gate(mode=c.mode, decimals=c.decimals)
        good = outcomes.quality if graded else outcomes.success
        if c.grid:
            spent = (~outcomes.success).double() if cost is None else cost
            gate = calibrate_on_grid(gate, base, refined, ids, outcomes.success, spent)
        else:
            known, same = (base, refined, ids, good), clusters(outcomes.identities)
            # Bonferroni over the checkpoints but update 0, which is the base and never opens.
            level = CAREFUL / max(1, sum(of.update > 0 for of in self._snapshots))
            gate = calibrate(gate, *known, c.policy, cost, same=same, level=level)
        chosen = gate.choose(base, refined, ids)[:, None]
        paid = 0.0 if cost is None else float(cost.gather(1, chosen).mean())
        parts = millionths(good) if graded else good
        return gate, int(parts.gather(1, chosen).sum()), paid
