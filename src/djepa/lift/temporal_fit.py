"""Fitting the Reacher variant: operator and transport head minimise `transport_loss` jointly.

    α         grid of 21 points: the most successes, then the least mean cost, then the larger α
    s, c(z̃)   each: cross-entropy to the best executed candidate + 0.25 all ordered pairs, T = 0.1

The head reads ranks of the operator's scores. Ranks have no gradient, so the head's loss does not
reach the operator. Calibration starts choose the checkpoint and, by the conservative policy, the
gate.

Legend: N starts, K candidates, F token width.
"""

import copy
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from djepa.align.fit import Alignment, Fit
from djepa.align.gates import Gate, among, calibrate
from djepa.align.methods import Population
from djepa.align.operator import RelationalOperator
from djepa.align.outcomes import Outcomes
from djepa.errors import DjepaError
from djepa.evidence.evidence import disjoint
from djepa.evidence.fusion import Fusion, fuse
from djepa.evidence.ranks import best, ordinal_ranks
from djepa.lift.temporal import (
    Checkpoint,
    Criterion,
    TemporalAlignment,
    TemporalConfig,
    Trajectories,
)
from djepa.lift.transport import TemporalTransport, transport_loss
from djepa.models.nets import initialise
from djepa.seeds import generator, seed_for
from djepa.threads import one_thread

ALPHAS = tuple(i / 20 for i in range(21))


class Lesson(NamedTuple):
    """Training data of the fitting starts, candidates sorted by ID."""

    tokens: Tensor  # (N, K, F)
    base: Tensor  # (N, K) float64
    ids: Tensor  # (N, K)
    ranks: Tensor  # (N, K, 2) of L and T
    success: Tensor  # (N, K) bool
    cost: Tensor  # (N, K)
    paths: Trajectories

    def rows(self, at: Tensor) -> "Lesson":
        """The data of the chosen starts."""
        outcomes, paths = (self.success[at], self.cost[at]), self.paths.rows(at).to(torch.float32)
        return Lesson(
            self.tokens[at], self.base[at], self.ids[at], self.ranks[at], *outcomes, paths
        )


def fit_temporal(
    fit: Population,
    trajectories: Trajectories,
    calibration: Population,
    criterion: Criterion,
    config: TemporalConfig | None = None,
) -> TemporalAlignment:
    """Fit on the starts of `fit`, choose checkpoint and gate on those of `calibration`.

    Starts of one outcome class are used too, because costs order their candidates. Every fitting
    candidate must have been executed. Calibration starts need no trajectories.
    """
    c = config or TemporalConfig()
    _check(fit, trajectories, calibration, c)
    relational, lesson = _prepare(fit, trajectories, c)
    a, operator, device = c.align, relational.operator, lesson.tokens.device
    assert operator is not None
    trials = []
    with torch.random.fork_rng(devices=[]):  # constructors draw from the global generator
        head = TemporalTransport(c.hidden, c.radius)
    initialise(head, torch.Generator().manual_seed(seed_for("transport", a.seed)))
    head.to(device)
    with one_thread():
        for update, loss in _descend(operator, head, lesson, criterion, c):
            weights = [copy.deepcopy(module.state_dict()) for module in (operator, head)]
            trials.append((_judge(relational, calibration, update, loss), weights))
    # `max` keeps the first of equals: the earlier checkpoint.
    chosen, weights = max(trials, key=lambda trial: (trial[0].successes, -trial[0].cost))
    for module, state in zip((operator, head), weights, strict=True):
        module.load_state_dict(state)
    history = tuple(checkpoint for checkpoint, _ in trials)
    losses = tuple(checkpoint.loss for checkpoint in history if checkpoint.loss is not None)
    assert relational.report is not None
    relational.report = relational.report._replace(losses=losses)
    relational.gate = Gate(chosen.threshold, a.mode, a.decimals)
    return TemporalAlignment(c, relational, head, history)


def fit_alpha(ranks: Tensor, ids: Tensor, outcomes: Outcomes) -> Fusion:
    """(N, K, 2) ranks of L and T -> the fusion with weights (α, 1 - α).

    The most successes win, then the least mean task cost, then the larger α.
    """
    if outcomes.cost is None or not len(ids):
        raise DjepaError(
            "α is chosen by successes and task costs of at least one start: give them."
        )
    wins, paid = [], []
    for alpha in ALPHAS:
        score = fuse(ranks, (alpha, 1 - alpha)).masked_fill(~outcomes.observed, torch.inf)
        winner = best(score, ids)[:, None]
        wins.append(outcomes.success.gather(1, winner)[:, 0])
        paid.append(outcomes.cost.gather(1, winner)[:, 0])

    def choose(rows: Tensor) -> int:
        return max(
            range(len(ALPHAS)),
            key=lambda i: (int(wins[i][rows].sum()), -float(paid[i][rows].mean()), i),
        )

    fold = torch.arange(len(ids), device=ids.device) % 5
    without = {k: choose(fold != k) for k in range(5) if len(ids) > max(k, 1)}
    at, points = choose(fold >= 0), [(alpha, 1 - alpha) for alpha in ALPHAS]
    held_out = sum(int(wins[i][fold == k].sum()) for k, i in without.items())
    folds = tuple(points[i] for i in without.values())
    return Fusion(points[at], int(wins[at].sum()), folds, held_out)


def _check(
    fit: Population, trajectories: Trajectories, calibration: Population, c: TemporalConfig
) -> None:
    for population in (fit, calibration):
        population.outcomes.check(population.evidence)
        if population.outcomes.cost is None:
            raise DjepaError("Outcomes are ordered by task cost too: give the task costs.")
    disjoint(fitting=fit.evidence, calibration=calibration.evidence)
    if not fit.outcomes.observed.all():
        raise DjepaError(
            "The loss orders whole pools, and what was not executed is not a failure: "
            "execute every candidate of the fitting starts."
        )
    trajectories.check(fit.evidence, *c.align.base)


def _prepare(
    fit: Population, trajectories: Trajectories, c: TemporalConfig
) -> tuple[Alignment, Lesson]:
    """An alignment with fitted base score and untrained operator, and the training data."""
    by_id = fit.evidence.ids.argsort(dim=1)  # so that the order of candidates has no effect
    evidence, outcomes = fit.evidence.columns(by_id), fit.outcomes.columns(by_id)
    a, relational, ranks = c.align, Alignment(c.align), evidence.ranks(c.align.base)
    fusion = fit_alpha(ranks, evidence.ids, outcomes)
    relational.report = Fit(len(evidence), 0, fusion, ())
    relational.tokens = a.tokens()
    tokens, base = relational.tokens(evidence), fuse(ranks, fusion.weights)
    relational.operator = relational.fresh(tokens.shape[-1]).to(tokens.device)
    assert outcomes.cost is not None
    paths = trajectories.columns(by_id)
    return relational, Lesson(
        tokens, base, evidence.ids, ranks, outcomes.success, outcomes.cost, paths
    )


def _descend(
    operator: RelationalOperator,
    head: TemporalTransport,
    lesson: Lesson,
    criterion: Criterion,
    c: TemporalConfig,
) -> Iterator[tuple[int, float | None]]:
    """Train both; yield (update, loss of its batch) at every checkpoint, first (0, None)."""
    a, parts = c.align, (operator, head)
    weights = [parameter for part in parts for parameter in part.parameters()]
    step = torch.optim.AdamW(weights, a.rate, weight_decay=a.decay)
    yield 0, None
    for update in range(1, a.updates + 1):
        rng = generator("temporal", a.seed, update)
        rows = rng.choice(len(lesson.ids), min(a.batch, len(lesson.ids)), replace=False)
        loss = _loss(operator, head, lesson.rows(torch.from_numpy(rows)), criterion, c)
        step.zero_grad()
        loss.backward(inputs=weights)  # no gradients for the criterion's own parameters
        for part in parts:  # apart: the criterion's scale must not affect the operator
            if not nn.utils.clip_grad_norm_(part.parameters(), a.clip).isfinite():
                raise DjepaError(f"The gradient of update {update} is not finite.")
        step.step()
        if update % a.every == 0 or update == a.updates:
            yield update, loss.item()


def _loss(
    operator: RelationalOperator,
    head: TemporalTransport,
    lesson: Lesson,
    criterion: Criterion,
    c: TemporalConfig,
) -> Tensor:
    """`transport_loss` of one batch.

    The head reads the state of a gate with threshold 0, because the calibrated threshold is chosen
    only after training. The criterion enters as -c / T, in its own unit.
    """
    tokens, base, ids, ranks, success, cost, paths = lesson
    refined, _ = operator.train()(tokens, base)
    gate, scores = Gate(0.0, c.align.mode, c.align.decimals), (base, refined.detach(), ids)
    final = ordinal_ranks(gate.final(*scores), ids)[..., None]
    known = torch.cat([ranks, final], dim=-1)
    futures, _ = head(paths.moved, paths.towards, known, gate.opens(*scores))
    read = criterion(futures, paths.goal)
    if not read.requires_grad:
        raise DjepaError("The criterion gives no gradient: call it outside of inference mode.")
    weights = (c.temperature, c.pairs, c.preserve)
    return transport_loss(refined, read, futures, paths.moved, success, cost, ids, *weights)


def _judge(
    relational: Alignment, calibration: Population, update: int, loss: float | None
) -> Checkpoint:
    """Calibrate the gate for the current operator, and evaluate its choices."""
    a, ids, outcomes = relational.config, calibration.evidence.ids, calibration.outcomes
    base, refined = among(outcomes.observed, *relational.scores(calibration.evidence))
    gate = Gate(mode=a.mode, decimals=a.decimals)
    gate = calibrate(gate, base, refined, ids, outcomes.success, a.policy, outcomes.cost)
    assert outcomes.cost is not None
    at = gate.choose(base, refined, ids)[:, None]
    hits, cost = outcomes.success.gather(1, at).sum(), outcomes.cost.gather(1, at).mean()
    return Checkpoint(update, loss, int(hits), float(cost), gate.threshold)
