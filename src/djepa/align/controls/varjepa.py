"""Var-JEPA: the trajectory code learns to reconstruct the realised latents, and to decide.

    L = mean |z̃(u_q) - z|² + β KL(q ‖ p) + λ_D L_decision(z̃(μ_p))      u_q ~ q(u | h, z)

(App. A; after Gögl and Yau, ICML 2026.) Inference uses u = μ_p, so the decision loss is taken there
too. The paper gives neither widths nor β nor λ_D: see docs/controls.md.

Legend: N starts, K candidates, B blocks of five controls, D latent, U width of the code.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from djepa.align.controls.lessons import Lesson, Supervised, decision_loss, judged, lessons, merit
from djepa.align.controls.trajectory import TrajectoryCode, divergence, known_of, prior_futures
from djepa.align.plastic import Patch, base_hash
from djepa.align.plastic_fit import Checkpoint, PlasticConfig, Trial, descend
from djepa.models.lewm import LeWM
from djepa.seeds import generator, seed_for


@dataclass(frozen=True)
class VarConfig:
    """Sizes and fitting of the residual; settings shared with plasticity have its values."""

    fit: PlasticConfig = field(default_factory=lambda: PlasticConfig(rates=(1e-4, 1e-3)))
    code: int = 16  # U
    hidden: int = 256
    divergence: float = 0.1  # β
    decision: float = 0.1  # λ_D


class Losses(NamedTuple):
    """Both parts of L for one batch."""

    decision: Tensor  # λ_D L_decision
    auxiliary: Tensor  # reconstruction + β KL


Combine = Callable[[Losses, Sequence[nn.Parameter]], Tensor]


def fit_residual(
    control: str,
    combine: Combine,
    model: LeWM,
    fitting: Supervised,
    calibration: Supervised,
    config: VarConfig | None = None,
) -> Patch:
    """The code of the best checkpoint over the rates; `combine` joins both parts of the loss."""
    c = config or VarConfig()
    taught, exam = lessons(model, fitting, calibration, c.fit)
    inputs = known_of(model, exam.starts, exam.frozen).shape[-1]
    blocks, latent = exam.frozen.shape[2:]
    trials: list[Trial] = []
    for rate in sorted(c.fit.rates):
        with torch.random.fork_rng(devices=[]):  # layers draw from the global stream when made
            code = TrajectoryCode(inputs, (blocks, latent), c.code, c.hidden)
        seed = seed_for("trajectory code", c.fit.seed) % 2**31
        code.initialise(torch.Generator().manual_seed(seed))
        code.to(exam.frozen.device)
        trials += _descend(code, model, taught, exam, combine, rate, c)
    chosen, tensors = max(trials, key=lambda trial: merit(trial[0]))
    card = {
        "control": control,
        "config": asdict(c),
        "shape": [blocks, latent],
        "inputs": inputs,
        "starts": len(taught.starts),
        "skipped": len(fitting.starts) - len(taught.starts),  # of one class
        "chosen": chosen._asdict(),
        "checkpoints": [checkpoint._asdict() for checkpoint, _ in trials],
    }
    return Patch(model.name, base_hash(model), tensors, card)


def added(of: Losses, parameters: Sequence[nn.Parameter]) -> Tensor:
    """L of Var-JEPA: the sum of both parts."""
    return of.decision + of.auxiliary


fit_varjepa = partial(fit_residual, "Var-JEPA", added)


def losses_of(
    code: TrajectoryCode, model: LeWM, batch: Lesson, noise: Tensor, c: VarConfig
) -> Losses:
    """Both parts of L; `noise` (N, K, U) draws u_q."""
    known = known_of(model, batch.starts, batch.frozen)
    prior, posterior = code.prior(known), code.posterior(known, batch.realised)
    rebuilt = batch.frozen + code.residual(known, posterior.at(noise))
    error = (rebuilt - batch.realised).square().mean()
    decided = batch.frozen + code.residual(known, prior.mean)
    decision = decision_loss(c.fit.loss, model, decided, batch)
    apart = divergence(posterior, prior).mean()
    return Losses(c.decision * decision, error + c.divergence * apart)


def _descend(
    code: TrajectoryCode,
    model: LeWM,
    taught: Lesson,
    exam: Lesson,
    combine: Combine,
    rate: float,
    c: VarConfig,
) -> Iterator[Trial]:
    """Train at one rate; yield checkpoints, the unchanged model first."""
    parameters = dict(code.named_parameters())

    def loss_of(update: int) -> Tensor:
        batch, noise = _batch(taught, update, c)
        return combine(losses_of(code, model, batch, noise, c), list(parameters.values()))

    def judge(update: int, loss: float | None) -> Checkpoint:
        after = prior_futures(model, code, exam.starts, exam.frozen)
        return judged(model, exam, after, rate, update, loss)

    return descend(parameters, rate, c.fit, loss_of, judge)


def _batch(taught: Lesson, update: int, c: VarConfig) -> tuple[Lesson, Tensor]:
    """The same starts and the same noise at the same update, whatever the rate."""
    rng, N, K = generator("residual", c.fit.seed, update), *taught.success.shape
    rows = rng.choice(N, min(c.fit.batch, N), replace=False)
    noise = rng.standard_normal((len(rows), K, c.code), dtype=np.float32)
    return taught.rows(torch.from_numpy(rows)), torch.from_numpy(noise).to(taught.frozen.device)
