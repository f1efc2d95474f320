"""Fitting predictive plasticity (Eq. 8): every update rolls futures out with gradients.

Predictions are fed back, so from the second block on the inputs of the frozen layers depend on the
adapted ones: gradients run through all blocks of five controls. Constants are computed once:
latents of contexts and goals, the frozen model's futures, and the tails.

Fitting starts give the gradients. Calibration starts choose the checkpoint, the unchanged model
among them: the most successes of the native choice, then the smaller change of latents, then the
earlier update. Among learning rates, the most successes win, then the smaller rate.
"""

import copy
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from djepa.align.outcomes import Outcomes
from djepa.align.plastic import (
    Ends,
    Patch,
    PlasticLoss,
    base_hash,
    grown_tail,
    latent_change,
    open_end,
)
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence, disjoint
from djepa.evidence.ranks import best, check_pools
from djepa.models.lewm import LeWM
from djepa.models.predict import encode_states
from djepa.seeds import generator


@dataclass(frozen=True)
class PlasticConfig:
    """How a patch is fitted; the defaults are the published ones, except for `batch`."""

    loss: PlasticLoss = field(default_factory=PlasticLoss)
    tail: int = 16  # k
    updates: int = 600
    batch: int = 8  # starts
    rates: tuple[float, ...] = (2e-6,)
    decay: float = 1e-3
    clip: float = 0.25
    every: int = 50  # updates between two checkpoints
    seed: int = 3072

    def __post_init__(self) -> None:
        if not self.rates or min(self.rates) <= 0:
            raise DjepaError("Give at least one learning rate, each above 0.")
        if self.updates < 0 or min(self.batch, self.every, self.tail) < 1:
            raise DjepaError("Batch, tail and checkpoint interval must be at least 1, updates 0.")


@dataclass(frozen=True, eq=False)
class Encoded:
    """N starts and their pools for one geometry, with contexts and goals already encoded."""

    identities: tuple[str, ...]
    ids: Tensor  # (N, K) int64
    context: Tensor  # (N, 3, D)
    history: Tensor  # (N, 10, A)
    actions: Tensor  # (N, K, 5 B, A)
    goal: Tensor  # (N, D)

    def __len__(self) -> int:
        return len(self.identities)

    @classmethod
    def from_bank(
        cls,
        model: LeWM,
        bank: Bank,
        rows: Sequence[int] | None = None,
        device: str | torch.device = "cpu",
    ) -> "Encoded":
        """Encode some starts of a bank, or all; reads no outcome. The model must be on `device`."""
        d, scene = bank.decisions, bank.scene()
        at = np.arange(len(d.start_ids)) if rows is None else np.asarray(rows, dtype=np.int64)

        def tensor(array: np.ndarray[Any, Any], kind: type) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(array[at], dtype=kind)).to(device)

        def latents(states: np.ndarray[Any, Any]) -> Tensor:
            # A clone can be saved for the backward pass; an inference-mode tensor cannot.
            return encode_states(model, scene, tensor(states, np.float64)).clone()

        return cls(
            tuple(bytes(row).hex() for row in d.identities[at]),
            tensor(d.candidate_ids, np.int64),
            latents(d.context),
            tensor(d.history, np.float32),
            tensor(d.actions, np.float32),
            latents(d.goal),
        )

    def rows(self, chosen: Tensor) -> "Encoded":
        """The chosen starts."""
        names = tuple(self.identities[i] for i in chosen.tolist())
        tensors = (self.ids, self.context, self.history, self.actions, self.goal)
        return Encoded(names, *(x[chosen] for x in tensors))


class Lesson(NamedTuple):
    """Starts with outcomes, the frozen model's predictions for them, and their tails."""

    starts: Encoded
    success: Tensor  # (N, K) bool
    observed: Tensor  # (N, K) bool
    frozen: Ends
    tail: Tensor  # (N, K) bool

    def rows(self, chosen: Tensor) -> "Lesson":
        """The chosen starts."""
        starts, frozen = self.starts.rows(chosen), self.frozen.rows(chosen)
        return Lesson(
            starts, self.success[chosen], self.observed[chosen], frozen, self.tail[chosen]
        )


class Checkpoint(NamedTuple):
    """The model after `update` updates, evaluated on calibration starts."""

    rate: float
    update: int
    loss: float | None  # of the batch of this update; None before the first
    successes: int  # starts that the native choice solves
    change: float  # mean latent change
    error: float | None = None  # dynamics fine-tuning only: mean squared error to realised latents


Trial = tuple[Checkpoint, dict[str, Tensor]]
LossOf = Callable[[int], Tensor]
Judge = Callable[[int, float | None], Checkpoint]


def futures_of(model: LeWM, starts: Encoded) -> Tensor:
    """(N, K, B, D) futures with gradients: `rollout` without its inference-mode wrapper."""
    rollout = inspect.unwrap(type(model).rollout)
    return rollout(model, starts.context, starts.history, starts.actions)


def roll(model: LeWM, starts: Encoded) -> Ends:
    """Last latents and native costs of all futures, with gradients."""
    futures = futures_of(model, starts)
    return Ends(futures[:, :, -1], model.native_cost(futures, starts.goal))


@torch.no_grad()
def survey(model: LeWM, starts: Encoded, batch: int) -> Ends:
    """As `roll`, without gradients, `batch` starts at a time."""
    parts = [roll(model, starts.rows(at)) for at in torch.arange(len(starts)).split(batch)]
    return Ends(*(torch.cat(part) for part in zip(*parts, strict=True)))


@torch.no_grad()
def futures(model: LeWM, starts: Encoded, batch: int) -> Tensor:
    """(N, K, B, D), `batch` starts at a time."""
    parts = torch.arange(len(starts)).split(batch)
    return torch.cat([futures_of(model, starts.rows(at)) for at in parts])


def teaching(fitting: tuple[Encoded, Outcomes], calibration: tuple[Encoded, Outcomes]) -> Tensor:
    """Positions of the fitting starts with both classes; raises where nothing can be fitted."""
    for starts, outcomes in (fitting, calibration):
        outcomes.check(pools_of(starts))
    disjoint(fitting=pools_of(fitting[0]), calibration=pools_of(calibration[0]))
    if not len(calibration[0]):
        raise DjepaError("There are no calibration starts to choose a checkpoint on.")
    return fitting[1].teaching()


def fit_patch(
    model: LeWM,
    fitting: tuple[Encoded, Outcomes],
    calibration: tuple[Encoded, Outcomes],
    config: PlasticConfig | None = None,
) -> Patch:
    """Adapt one copy of the model per learning rate; return the patch of the best checkpoint."""
    c, (starts, outcomes) = config or PlasticConfig(), fitting
    rows = teaching(fitting, calibration)
    frozen = copy.deepcopy(model).eval()
    lesson = _lesson(frozen, starts.rows(rows), outcomes.rows(rows), c)
    exam = _lesson(frozen, *calibration, c)
    trials, history = [], []
    for rate in sorted(c.rates):
        student = copy.deepcopy(frozen)
        loss_of, judge = _lessons(student, lesson, exam, rate, c)
        tries = list(descend(open_end(student), rate, c, loss_of, judge))
        trials.append(max(tries, key=_merit))
        history += [checkpoint._asdict() for checkpoint, _ in tries]
    chosen, tensors = max(trials, key=lambda trial: trial[0].successes)  # the first: smaller rate
    card = {
        "config": asdict(c),
        "starts": len(rows),
        "skipped": len(starts) - len(rows),  # of one class
        "calibration": len(exam.starts),
        "chosen": chosen._asdict(),
        "checkpoints": history,
    }
    return Patch(model.name, base_hash(model), tensors, card)


def descend(
    adapting: dict[str, nn.Parameter], rate: float, c: PlasticConfig, loss_of: LossOf, judge: Judge
) -> Iterator[Trial]:
    """Train the adapting parameters; yield checkpoints, the unchanged model first.

    `loss_of` maps an update to the loss of its batch; `judge` evaluates an update, given its loss.
    """
    yield judge(0, None), _copy(adapting)
    step = torch.optim.AdamW(adapting.values(), rate, weight_decay=c.decay)
    for update in range(1, c.updates + 1):
        loss = loss_of(update)
        step.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(adapting.values(), c.clip)
        if not norm.isfinite():
            raise DjepaError(f"The gradient of update {update} is not finite.")
        step.step()
        if update % c.every == 0 or update == c.updates:
            yield judge(update, loss.item()), _copy(adapting)


def _lessons(
    student: LeWM, lesson: Lesson, exam: Lesson, rate: float, c: PlasticConfig
) -> tuple[LossOf, Judge]:
    """The loss of Eq. 8 of an update's batch, and the evaluation on calibration starts."""

    def loss_of(update: int) -> Tensor:
        rows = batch(len(lesson.starts), update, c)
        starts, success, observed, frozen, tail = lesson.rows(rows)
        return c.loss(roll(student, starts), frozen, success, observed, tail).total

    def judge(update: int, loss: float | None) -> Checkpoint:
        ends = survey(student, exam.starts, c.batch) if update else exam.frozen
        return _judge(exam, ends, rate, update, loss)

    return loss_of, judge


def _judge(exam: Lesson, ends: Ends, rate: float, update: int, loss: float | None) -> Checkpoint:
    """A checkpoint: successes of the native choice among observed candidates, latent change."""
    cost = ends.cost.double().masked_fill(~exam.observed, torch.inf)
    hits = exam.success.gather(1, best(cost, exam.starts.ids)[:, None]).sum()
    change = latent_change(ends.last, exam.frozen.last).mean()
    return Checkpoint(rate, update, loss, int(hits), float(change))


def _merit(trial: Trial) -> tuple[int, float, int]:
    checkpoint = trial[0]
    return checkpoint.successes, -checkpoint.change, -checkpoint.update


def batch(starts: int, update: int, c: PlasticConfig) -> Tensor:
    """Random starts of one batch; they depend on seed and update, not on the learning rate."""
    rng = generator("plastic", c.seed, update)
    return torch.from_numpy(rng.choice(starts, min(c.batch, starts), replace=False))


def _lesson(
    model: LeWM,
    starts: Encoded,
    outcomes: Outcomes,
    c: PlasticConfig,
) -> Lesson:
    ids, frozen = starts.ids, survey(model, starts, c.batch)
    check_pools(ids, **{"native cost": frozen.cost})
    success, observed = outcomes.success.to(ids.device), outcomes.observed.to(ids.device)
    tail = grown_tail(frozen.cost, ids, success, observed, c.tail)
    return Lesson(starts, success, observed, frozen, tail)


def pools_of(starts: Encoded) -> Evidence:
    """Evidence with zero costs, used only to check identities, IDs and outcomes."""
    costs = torch.zeros_like(starts.ids, dtype=torch.float32)
    return Evidence.from_arrays(
        start_ids=starts.identities, candidate_ids=starts.ids, costs={"native": costs}
    )


def _copy(parameters: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in parameters.items()}
