"""Quality of a geometry's choices on starts that its training did not see."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from djepa.audit.gap import rank_correlations
from djepa.bank.read import Bank
from djepa.evaluate.intervals import rate_of
from djepa.evidence.ranks import best
from djepa.models.predict import encode_states, predict
from djepa.models.protocol import Geometry
from djepa.tasks.task import PLAIN


@dataclass(frozen=True)
class Quality:
    """Shares of starts on which a chooser succeeds, and how predictions compare with execution."""

    geometry: str
    starts: int
    candidates: int
    native: float  # choice by predicted cost
    native_interval: tuple[float, float]  # Wilson 95 %
    realised: float  # choice by the cost of what execution showed, in the same latent space
    random: float
    oracle: float
    tied: float  # share of starts whose lowest predicted cost several candidates share
    spearman: dict[int, float | None]  # shortlist -> mean within starts, predicted : realised
    error_first: float  # mean squared latent error of the first predicted block
    error_last: float  # of the last one
    latent_variance: float  # of the realised latents, to read the errors against
    picks: tuple[bool, ...]  # start by start: did the native choice succeed

    def as_dict(self) -> dict[str, Any]:
        """For JSON, without the start-by-start column."""
        return {name: value for name, value in asdict(self).items() if name != "picks"}


def quality(
    geometry: Geometry, bank: Bank, device: str = "cpu", look: str = PLAIN, batch: int = 32
) -> Quality:
    """Compare predicted futures of every candidate with encoded executed states."""
    decisions, outcomes, scene = bank.decisions, bank.outcomes, bank.scene(look)
    costs, truths, first, last, spread = [], [], [], [], []
    for begin in range(0, len(bank), batch):
        rows = slice(begin, min(begin + batch, len(bank)))
        p = predict(geometry, scene, decisions, rows, device)
        ends = torch.from_numpy(outcomes.states[rows][:, :, [0, -1]]).to(device)
        z = encode_states(geometry, scene, ends)  # (n, K, 2, D)
        costs.append(p.cost)
        truths.append(geometry.native_cost(z[:, :, 1:], p.goal).float())
        first.append(_error(p.futures[:, :, 0], z[:, :, 0]))
        last.append(_error(p.futures[:, :, -1], z[:, :, 1]))
        spread.append(z[:, :, 1].float().var(dim=(0, 1)).mean().item())
    predicted, realised = torch.cat(costs).cpu(), torch.cat(truths).cpu()
    success, ids = outcomes.success, torch.from_numpy(np.array(decisions.candidate_ids))
    N, K = success.shape
    picks = success[np.arange(N), best(predicted, ids).numpy()]
    found = rank_correlations(predicted.numpy(), realised.numpy(), ids.numpy())
    return Quality(
        geometry=geometry.name,
        starts=N,
        candidates=K,
        native=float(picks.mean()),
        native_interval=rate_of(picks).interval,
        realised=float(success[np.arange(N), best(realised, ids).numpy()].mean()),
        random=float(success.mean()),
        oracle=float(success.any(1).mean()),
        tied=float(((predicted == predicted.amin(1, keepdim=True)).sum(1) > 1).double().mean()),
        spearman={one.shortlist: one.within for one in found},
        error_first=float(np.mean(first)),
        error_last=float(np.mean(last)),
        latent_variance=float(np.mean(spread)),
        picks=tuple(picks.tolist()),
    )


def _error(predicted: Tensor, realised: Tensor) -> float:
    return float((predicted.float() - realised.float()).square().mean())
