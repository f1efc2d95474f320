"""Fitting and calibrating the driving readouts with the published recipes.

Legend: N scenes, K candidates.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor, nn

from djepa.align.driving import (
    AnchorRelative,
    DrivingEvidence,
    DrivingOutcomes,
    Normal,
    ScoreCorrection,
    switch,
    utility,
)
from djepa.errors import DjepaError
from djepa.evidence.score import Score
from djepa.rollout.engine import Engine, LocalEngine, in_order
from djepa.seeds import seed_for
from djepa.threads import one_thread

HERE = LocalEngine(1)

SCALES = (0.0, 0.25, 0.5, 0.75, 1.0)  # factors of the correction, chosen on calibration scenes
EPOCHS, ALPHAS, RISKS, MARGINS = (
    (8, 16, 32),
    (0.0, 0.1, 0.25, 0.5, 1.0),
    (0.0, 0.1, 0.3),
    (0.0, 0.005, 0.02),
)
Loss = Callable[[Tensor, Tensor, Tensor, DrivingOutcomes], Tensor]


@dataclass(frozen=True)
class Recipe:
    """Settings of AdamW, as published."""

    rate: float
    decay: float
    batch: int
    epochs: int
    clip: float = 1.0


CORRECTION = Recipe(rate=1e-3, decay=1e-4, batch=16, epochs=30)
ANCHOR = Recipe(rate=3e-4, decay=1e-3, batch=64, epochs=max(EPOCHS))


@dataclass(frozen=True)
class Corrected:
    """A fitted score correction; scale 0 is the native choice."""

    network: ScoreCorrection
    normal: Normal
    scale: float
    epoch: int

    @torch.no_grad()
    def score(self, evidence: DrivingEvidence) -> Tensor:
        """(N, K) corrected scores."""
        tokens = self.normal(evidence.tokens(auxiliary=True))
        return evidence.score.double() + self.scale * self.network(tokens).double()

    def decide(self, evidence: DrivingEvidence) -> Tensor:
        """(N,) positions of the chosen candidates."""
        return _best(self.score(evidence), evidence)


@dataclass(frozen=True)
class Setting:
    """One point of the published grid; alpha 0 is the native choice."""

    epochs: int = EPOCHS[0]
    alpha: float = 0.0
    risk: float = 0.0  # λ
    margin: float = 0.0  # m

    def __post_init__(self) -> None:
        grid = {"epochs": EPOCHS, "alpha": ALPHAS, "risk": RISKS, "margin": MARGINS}
        for name, values in grid.items():
            if (own := getattr(self, name)) not in values:
                raise DjepaError(f"{name} of a setting is one of {values}, not {own}.")


@dataclass(frozen=True)
class Anchored:
    """A fitted anchor-relative readout."""

    network: AnchorRelative
    normal: Normal
    setting: Setting

    @torch.no_grad()
    def read(self, evidence: DrivingEvidence) -> tuple[Tensor, Tensor]:
        """(N, K) corrections δ and (N, K, 2) risk logits."""
        tokens = self.normal(evidence.tokens(auxiliary=False))
        return self.network(tokens, evidence.native)

    def score(self, evidence: DrivingEvidence) -> Tensor:
        """(N, K) utilities U."""
        return _utility(evidence, *self.read(evidence), self.setting)

    def decide(self, evidence: DrivingEvidence) -> Tensor:
        """(N,) positions of the chosen candidates."""
        return switch(self.score(evidence), evidence.ids, evidence.native, self.setting.margin)


def fit_correction(
    fit: tuple[DrivingEvidence, DrivingOutcomes],
    calibration: tuple[DrivingEvidence, DrivingOutcomes],
    seed: int = 0,
    relations: bool = True,
    recipe: Recipe = CORRECTION,
) -> Corrected:
    """Fit on the scenes of `fit`, choose epoch and scale on those of `calibration`.

    The most PDMS wins; ties go to the smaller scale, then to the earlier epoch. Without
    `relations` the network reads each candidate alone, as a control.
    """
    _apart(fit[0], calibration[0])
    evidence, outcomes = fit
    tokens = evidence.tokens(auxiliary=True)
    normal = Normal.of(tokens)
    network = ScoreCorrection(tokens.shape[-1], _random("correction", seed), relations)
    native = calibration[0].score.double()
    best = ((-1.0, 0.0, 0), _copy(network))  # (PDMS, -scale, -epoch), weights

    def after(epoch: int) -> None:
        nonlocal best
        delta = Corrected(network, normal, 1.0, epoch).score(calibration[0]) - native
        for scale in SCALES:
            chosen = _best(native + scale * delta, calibration[0])
            key = (_sum(calibration[1].pdms, chosen), -scale, -epoch)
            if key > best[0]:
                best = key, _copy(network)

    _train(network, network.loss, normal(tokens), evidence, outcomes, recipe, seed, after)
    (_, scale, epoch), weights = best
    network.load_state_dict(weights)
    return Corrected(network.eval(), normal, -scale, -epoch)


def fit_anchor(
    evidence: DrivingEvidence,
    outcomes: DrivingOutcomes,
    seed: int = 0,
    risk: bool = True,
    folds: int | None = None,
    recipe: Recipe = ANCHOR,
    engine: Engine = HERE,
) -> Anchored:
    """Choose the setting by leave-one-log-out cross-validation, then fit on all logs.

    The engine's workers run the folds; each fold has its own normalisation. If there are more logs
    than `folds`, a fold holds several. The native choice is kept unless a setting has more PDMS on
    held-out logs; ties go to the larger margin, the larger λ, the smaller α, then fewer epochs.
    """
    left_out = leave_out(evidence.logs, folds)
    risks = RISKS if risk else RISKS[:1]
    grid = [Setting(*point) for point in product(EPOCHS, ALPHAS, risks, MARGINS)]
    shared = _Folds(evidence, outcomes, seed, risk, recipe, grid)
    items = ((fold, (fold, rows)) for fold, rows in enumerate(left_out))
    total = dict.fromkeys(grid, 0.0)
    for found in in_order(engine.map(_fold, items, shared)):
        for setting, pdms in found.items():
            total[setting] += pdms
    order = sorted(grid, key=lambda s: (-round(total[s], 9), -s.margin, -s.risk, s.alpha, s.epochs))
    chosen = order[0] if total[order[0]] > total[Setting()] + 1e-9 else Setting()
    for model in _anchors(evidence, outcomes, seed, -1, risk, recipe):
        if model.setting.epochs == chosen.epochs:
            return Anchored(model.network, model.normal, chosen)
    raise DjepaError(f"The recipe ends before epoch {chosen.epochs}.")


@dataclass(frozen=True, eq=False)
class _Folds:
    """The data and settings that all folds share."""

    evidence: DrivingEvidence
    outcomes: DrivingOutcomes
    seed: int
    risk: bool
    recipe: Recipe
    grid: list[Setting]


def _fold(item: tuple[int, Tensor], of: _Folds) -> dict[Setting, float]:
    """PDMS of every setting on the held-out scenes, after fitting on the others in one thread."""
    fold, rows = item
    mask = torch.ones(len(of.evidence), dtype=torch.bool)
    mask[rows] = False
    inner = mask.nonzero()[:, 0]
    fit = of.evidence.rows(inner), of.outcomes.rows(inner)
    test, pdms = of.evidence.rows(rows), of.outcomes.pdms[rows]
    found = dict.fromkeys(of.grid, 0.0)
    with one_thread():
        for model in _anchors(*fit, of.seed, fold, of.risk, of.recipe):
            read, native = model.read(test), test.native
            for setting in (s for s in of.grid if s.epochs == model.setting.epochs):
                U = _utility(test, *read, setting)
                found[setting] = _sum(pdms, switch(U, test.ids, native, setting.margin))
    return found


def leave_out(logs: Sequence[str], folds: int | None = None) -> list[Tensor]:
    """Positions of the held-out scenes of each fold: one log, or several with fewer `folds`."""
    names = sorted(set(logs))
    if len(names) < 2:
        raise DjepaError("Leaving one log out needs scenes of at least two logs.")
    count = min(folds or len(names), len(names))
    fold = {name: i % count for i, name in enumerate(names)}
    of = torch.tensor([fold[name] for name in logs])
    return [(of == i).nonzero()[:, 0] for i in range(count)]


def _anchors(
    evidence: DrivingEvidence,
    outcomes: DrivingOutcomes,
    seed: int,
    fold: int,
    risk: bool,
    recipe: Recipe,
) -> list[Anchored]:
    """Copies of one network, one after each of the published numbers of epochs."""
    tokens = evidence.tokens(auxiliary=False)
    normal = Normal.of(tokens)
    network = AnchorRelative(tokens.shape[-1], _random("anchor", seed, fold))
    kept: list[Anchored] = []

    def after(epoch: int) -> None:
        if epoch in EPOCHS:
            copy = AnchorRelative(tokens.shape[-1], torch.Generator())
            copy.load_state_dict(_copy(network))
            kept.append(Anchored(copy.eval(), normal, Setting(epoch)))

    def loss(tokens: Tensor, score: Tensor, ids: Tensor, seen: DrivingOutcomes) -> Tensor:
        return network.loss(tokens, score, ids, seen, risk)

    _train(network, loss, normal(tokens), evidence, outcomes, recipe, seed, after)
    return kept


def _train(
    network: nn.Module,
    loss: Loss,
    tokens: Tensor,
    evidence: DrivingEvidence,
    outcomes: DrivingOutcomes,
    recipe: Recipe,
    seed: int,
    after: Callable[[int], None],
) -> None:
    """AdamW over shuffled batches of scenes; `after` is called with 1, 2, ... epochs."""
    optimiser = torch.optim.AdamW(network.parameters(), recipe.rate, weight_decay=recipe.decay)
    score, random = evidence.score.float(), torch.Generator()
    for epoch in range(recipe.epochs):
        random.manual_seed(seed_for("driving", seed, epoch))
        network.train()
        for rows in torch.randperm(len(evidence), generator=random).split(recipe.batch):
            optimiser.zero_grad()
            seen = outcomes.rows(rows)
            loss(tokens[rows], score[rows], evidence.ids[rows], seen).backward()
            nn.utils.clip_grad_norm_(network.parameters(), recipe.clip)
            optimiser.step()
        network.eval()
        after(epoch + 1)


def _random(*key: str | int) -> torch.Generator:
    """The generator of a network's initial weights."""
    return torch.Generator().manual_seed(seed_for(*key) % 2**31)


def _copy(network: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in network.state_dict().items()}


def _best(score: Tensor, evidence: DrivingEvidence) -> Tensor:
    return Score(score, higher_is_better=True).winners(evidence.ids)


def _utility(evidence: DrivingEvidence, delta: Tensor, logits: Tensor, at: Setting) -> Tensor:
    return utility(evidence.score, delta, logits, evidence.native, at.alpha, at.risk)


def _sum(pdms: Tensor, chosen: Tensor) -> float:
    """Sum of PDMS of the chosen candidates over all scenes."""
    return float(pdms.double().gather(1, chosen[:, None]).sum())


def _apart(fit: DrivingEvidence, calibration: DrivingEvidence) -> None:
    shared = sorted(set(fit.logs) & set(calibration.logs))
    if shared:
        raise DjepaError(f"Log {shared[0]} is both in fitting and in calibration scenes.")
