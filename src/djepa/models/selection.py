"""How well a model in training chooses, on development starts.

Legend: N starts, k candidates of a shortlist.
"""

import copy
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from djepa.bank.collect import collect
from djepa.bank.read import Bank
from djepa.models.kinds import Model
from djepa.models.precision import arithmetic
from djepa.models.predict import encode_states, predict
from djepa.models.recipes import TrainConfig
from djepa.rollout.engine import LocalEngine
from djepa.rollout.execute import CollectConfig

BATCH = 32  # starts
NEAREST = 4  # candidates


class Chosen(NamedTuple):
    """The development scores of a model in training."""

    selection: float  # share of the starts on which the native choice succeeds
    spearman: float  # of predicted and realised cost of the nearest four, mean of starts; or NaN


def collect_each(
    config: TrainConfig, folder: Path, starts: int, split: str = "development"
) -> list[Bank]:
    """Banks of as many starts of every shape as make `starts` together."""
    found, each = [], max(1, starts // len(config.shapes))
    for shape in config.shapes:
        wanted = CollectConfig(config.world, shape, starts=each, split=split, block=min(8, each))
        where = folder if len(config.shapes) == 1 else folder / shape
        found.append(collect(where, wanted, LocalEngine()))
    return found


@torch.inference_mode()
def select(model: Model, banks: Sequence[Bank], look: str, device: torch.device) -> Chosen:
    """How the native choice does on these starts.

    A tie counts as failure: a predictor that ignores actions would choose the smallest ID, and the
    smallest IDs are the lightest perturbations of the reference.
    """
    model = copy.deepcopy(model).eval()  # a copy is not compiled, so shapes may vary freely
    parts = [part for bank in banks for part in _judged(model, bank, look, device)]
    hits, found = (torch.cat(of).double() for of in zip(*parts, strict=True))
    known = found[found.isfinite()]
    return Chosen(hits.mean().item(), known.mean().item() if len(known) else math.nan)


def _judged(
    model: Model, bank: Bank, look: str, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """Start by start: whether the choice succeeds, and the correlation among the nearest."""
    decisions, outcomes, scene = bank.decisions, bank.outcomes, bank.scene(look)
    success = torch.from_numpy(outcomes.success)
    for begin in range(0, len(success), BATCH):
        rows = slice(begin, begin + BATCH)
        predicted = predict(model, scene, decisions, rows, device)
        cost = predicted.cost.cpu()
        alone = (cost == cost.amin(1, keepdim=True)).sum(1) == 1
        hits = success[rows].gather(1, cost.argmin(1, keepdim=True))[:, 0] & alone
        near = cost.argsort(dim=1, stable=True)[:, :NEAREST]
        ends = torch.from_numpy(outcomes.states[rows][:, :, -1:])
        shown = ends[torch.arange(len(near))[:, None], near].to(device)
        with arithmetic(device, "float32"):
            truth = model.native_cost(encode_states(model, scene, shown), predicted.goal).cpu()
        yield hits, _spearman(cost.gather(1, near), truth)


def _spearman(a: Tensor, b: Tensor) -> Tensor:
    """(N, k) twice -> (N,) correlations of average ranks; NaN where one of both is constant."""
    x, y = ((of[:, :, None] - of[:, None]).sign().sum(2).double() for of in (a, b))  # centred ranks
    return (x * y).sum(1) / (x.square().sum(1) * y.square().sum(1)).sqrt()
