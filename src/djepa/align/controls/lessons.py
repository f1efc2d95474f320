"""Training data of the controls: the starts of plasticity, with latents of the executed states.

Prediction error is the mean squared error of predicted against realised latents, over all
candidates and blocks; the decision loss is the part of Eq. 8 that reads outcomes,

    L_decision = L_success + λ_B L_boundary.

Calibration starts choose among checkpoints, the unchanged model included: the most successes of the
chosen candidates, then the smaller prediction error, then the earlier one.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from djepa.align.outcomes import Outcomes
from djepa.align.plastic import Ends, PlasticLoss, grown_tail, latent_change
from djepa.align.plastic_fit import Checkpoint, Encoded, PlasticConfig, futures, teaching
from djepa.errors import DjepaError
from djepa.evidence.ranks import best, check_pools
from djepa.models.lewm import LeWM


class Supervised(NamedTuple):
    """Starts, the outcomes of their candidates, and the latents of the executed states."""

    starts: Encoded
    outcomes: Outcomes
    realised: Tensor  # (N, K, B, D), see dynamics.realised

    def rows(self, chosen: Tensor) -> "Supervised":
        """Some of these starts."""
        outcomes = self.outcomes.rows(chosen)
        return Supervised(self.starts.rows(chosen), outcomes, self.realised[chosen])


class Lesson(NamedTuple):
    """A batch on which a control is fitted or evaluated."""

    starts: Encoded
    success: Tensor  # (N, K) bool
    observed: Tensor  # (N, K) bool
    realised: Tensor  # (N, K, B, D)
    frozen: Tensor  # (N, K, B, D) futures of the unchanged model
    tail: Tensor  # (N, K) bool: candidates of the decision boundary, by the unchanged model

    def rows(self, chosen: Tensor) -> "Lesson":
        """Some of these starts."""
        return Lesson(self.starts.rows(chosen), *(x[chosen] for x in self[1:]))


def lessons(
    model: LeWM, fitting: Supervised, calibration: Supervised, config: PlasticConfig
) -> tuple[Lesson, Lesson]:
    """Lessons of the fitting starts that have both classes, and of all calibration starts."""
    rows = teaching(fitting[:2], calibration[:2])
    return lesson(model, fitting.rows(rows), config), lesson(model, calibration, config)


def lesson(model: LeWM, given: Supervised, config: PlasticConfig) -> Lesson:
    """The unchanged model's futures and the tails by its costs, computed once."""
    starts, outcomes, realised = given
    frozen = futures(model, starts, config.batch)
    cost = model.native_cost(frozen, starts.goal)
    check_pools(starts.ids, **{"native cost": cost})
    if realised.shape != frozen.shape:
        raise DjepaError(
            f"Realised latents are {tuple(realised.shape)}, futures {tuple(frozen.shape)}."
        )
    success, observed = (x.to(starts.ids.device) for x in (outcomes.success, outcomes.observed))
    tail = grown_tail(cost, starts.ids, success, observed, config.tail)
    return Lesson(starts, success, observed, realised, frozen, tail)


def decision_loss(loss: PlasticLoss, model: LeWM, predicted: Tensor, given: Lesson) -> Tensor:
    """L_decision of (N, K, B, D) futures; no term keeps them near the unchanged model's."""
    cost = model.native_cost(predicted, given.starts.goal)
    ends = Ends(predicted[:, :, -1], cost)
    outcomes = replace(loss, rank=0.0, latent=0.0)
    return outcomes(ends, ends, given.success, given.observed, given.tail).total


def judged(
    model: LeWM, exam: Lesson, predicted: Tensor, rate: float, update: int, loss: float | None
) -> Checkpoint:
    """Successes of the lowest native cost among observed candidates, and the prediction error."""
    cost = model.native_cost(predicted, exam.starts.goal).double()
    at = best(cost.masked_fill(~exam.observed, torch.inf), exam.starts.ids)
    hits = int(exam.success.gather(1, at[:, None]).sum())
    change = latent_change(predicted[:, :, -1], exam.frozen[:, :, -1]).mean()
    error = (predicted - exam.realised).square().mean()
    return Checkpoint(rate, update, loss, hits, float(change), float(error))


def merit(checkpoint: Checkpoint) -> tuple[int, float, int]:
    """The sort key of checkpoints; the largest is best."""
    return checkpoint.successes, -(checkpoint.error or 0.0), -checkpoint.update
