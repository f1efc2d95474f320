"""A control of plasticity: dynamics fine-tuning on the same data and parameters.

    L_dyn = mean over candidates and blocks of |ẑ - z|²        z: latents of the executed states

If fitting the motion of executed candidates improves decisions as much as fitting their outcomes,
alignment has shown no benefit. Calibration starts choose the checkpoint by the same error; success
labels are never read.
"""

import copy
from dataclasses import asdict

import numpy as np
import torch
from torch import Tensor

from djepa.align.plastic import Patch, base_hash, latent_change, open_end
from djepa.align.plastic_fit import (
    Checkpoint,
    Encoded,
    PlasticConfig,
    Trial,
    batch,
    descend,
    futures,
    futures_of,
    pools_of,
)
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.evidence.evidence import disjoint
from djepa.models.lewm import LeWM
from djepa.models.predict import encode_states


def realised(model: LeWM, bank: Bank, rows: list[int], device: str | torch.device) -> Tensor:
    """(N, K, B, D) latents of the executed states, one after every fifth control."""
    scene, states = bank.scene(), bank.outcomes.states[np.asarray(rows)]
    if not bank.outcomes.observed[np.asarray(rows)].all():
        raise DjepaError("Dynamics fine-tuning needs pools of which every candidate was executed.")
    parts = [encode_states(model, scene, torch.from_numpy(s).to(device)) for s in states]
    return torch.stack(parts).clone()  # a clone is no inference-mode tensor


def fine_tune(
    model: LeWM,
    fitting: tuple[Encoded, Tensor],
    calibration: tuple[Encoded, Tensor],
    config: PlasticConfig | None = None,
) -> Patch:
    """The patch with the smallest error on calibration starts, over rates and checkpoints."""
    c, (starts, targets) = config or PlasticConfig(), fitting
    disjoint(fitting=pools_of(starts), calibration=pools_of(calibration[0]))
    frozen = copy.deepcopy(model).eval()
    before = futures(frozen, calibration[0], c.batch)
    trials: list[Trial] = []
    for rate in sorted(c.rates):
        student = copy.deepcopy(frozen)

        def loss_of(update: int, student: LeWM = student) -> Tensor:
            rows = batch(len(starts), update, c)
            return (futures_of(student, starts.rows(rows)) - targets[rows]).square().mean()

        def judge(
            update: int, loss: float | None, student: LeWM = student, rate: float = rate
        ) -> Checkpoint:
            after = futures(student, calibration[0], c.batch)
            error = (after - calibration[1]).square().mean()
            change = latent_change(after[:, :, -1], before[:, :, -1]).mean()
            return Checkpoint(rate, update, loss, 0, float(change), float(error))

        trials += descend(open_end(student), rate, c, loss_of, judge)
    chosen, tensors = min(trials, key=lambda trial: trial[0].error or 0.0)
    card = {
        "config": asdict(c),
        "starts": len(starts),
        "chosen": chosen._asdict(),
        "checkpoints": [checkpoint._asdict() for checkpoint, _ in trials],
    }
    return Patch(model.name, base_hash(model), tensors, card)
