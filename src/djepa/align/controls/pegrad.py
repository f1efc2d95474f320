"""PEGrad: prediction is the primary objective, the decision an auxiliary one that must not hurt it.

    g_p = ∇ mean |ẑ - z|²,   g_a = ∇ (L_success + λ_B L_boundary)
    g_a ← g_a - min(⟨g_a, g_p⟩, 0) / ‖g_p‖² g_p,   then   ‖g_a‖ ≤ κ ‖g_p‖
    step along g_p + g_a                                  (App. A; after Peri et al., CoRL 2025)

The parameters are those of plasticity: the last predictor block and the prediction projection. The
paper does not give κ: calibration starts choose it.
"""

import copy
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from torch import Tensor, nn

from djepa.align.controls.lessons import (
    Lesson,
    Supervised,
    decision_loss,
    judged,
    lessons,
    merit,
)
from djepa.align.controls.projection import capped, gradient, with_gradient, without_conflict
from djepa.align.plastic import Patch, base_hash, open_end
from djepa.align.plastic_fit import (
    Checkpoint,
    PlasticConfig,
    Trial,
    batch,
    descend,
    futures,
    futures_of,
)
from djepa.errors import DjepaError
from djepa.models.lewm import LeWM


@dataclass(frozen=True)
class PEGradConfig:
    """How PEGrad is fitted; settings shared with plasticity have its values."""

    fit: PlasticConfig = field(default_factory=PlasticConfig)
    caps: tuple[float, ...] = (0.1, 1.0)  # κ; calibration starts choose one

    def __post_init__(self) -> None:
        if not self.caps or min(self.caps) <= 0:
            raise DjepaError("Give at least one cap, each above 0.")


def fit_pegrad(
    model: LeWM,
    fitting: Supervised,
    calibration: Supervised,
    config: PEGradConfig | None = None,
) -> Patch:
    """The patch of the best checkpoint over caps and rates; ties go to smaller cap, then rate."""
    c, frozen = config or PEGradConfig(), copy.deepcopy(model).eval()
    taught, exam = lessons(frozen, fitting, calibration, c.fit)
    trials = [
        (cap, trial)
        for cap in sorted(c.caps)
        for rate in sorted(c.fit.rates)
        for trial in _descent(copy.deepcopy(frozen), taught, exam, cap, rate, c.fit)
    ]
    cap, (chosen, tensors) = max(trials, key=lambda trial: merit(trial[1][0]))
    card = {
        "control": "PEGrad",
        "config": asdict(c),
        "starts": len(taught.starts),
        "skipped": len(fitting.starts) - len(taught.starts),  # of one class
        "cap": cap,
        "chosen": chosen._asdict(),
        "checkpoints": [{"cap": cap, **trial[0]._asdict()} for cap, trial in trials],
    }
    return Patch(model.name, base_hash(model), tensors, card)


def _descent(
    student: LeWM, taught: Lesson, exam: Lesson, cap: float, rate: float, c: PlasticConfig
) -> Iterator[Trial]:
    end = open_end(student)

    def loss_of(update: int) -> Tensor:
        given = taught.rows(batch(len(taught.starts), update, c))
        predicted = futures_of(student, given.starts)
        primary = (predicted - given.realised).square().mean()
        auxiliary = decision_loss(c.loss, student, predicted, given)
        return combined(primary, auxiliary, list(end.values()), cap)

    def judge(update: int, loss: float | None) -> Checkpoint:
        after = futures(student, exam.starts, c.batch) if update else exam.frozen
        return judged(student, exam, after, rate, update, loss)

    return descend(end, rate, c, loss_of, judge)


def combined(
    primary: Tensor, auxiliary: Tensor, parameters: list[nn.Parameter], cap: float
) -> Tensor:
    """A loss with the primary value and the gradient g_p + projected and capped g_a."""
    first, second = gradient(primary, parameters), gradient(auxiliary, parameters)
    safe = capped(without_conflict(second, first), first, cap)
    return with_gradient(primary, parameters, first + safe)
