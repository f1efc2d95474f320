"""How well a model in training chooses, on development starts."""

import copy
from collections.abc import Sequence
from pathlib import Path

import torch

from djepa.bank.collect import collect
from djepa.bank.read import Bank
from djepa.models.kinds import Model
from djepa.models.predict import predict
from djepa.models.recipes import TrainConfig
from djepa.rollout.engine import LocalEngine
from djepa.rollout.execute import CollectConfig

BATCH = 32  # starts


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
def select(model: Model, banks: Sequence[Bank], look: str, device: torch.device) -> float:
    """Share of the starts on which the native choice succeeds.

    A tie is no choice: a predictor that ignores actions would take the smallest ID, and the
    smallest IDs are the lightest perturbations of the reference.
    """
    model = copy.deepcopy(model).eval()  # a copy is not compiled, so shapes may vary freely
    hits = sum(_hits(model, bank, look, device) for bank in banks)
    return hits / sum(len(bank) for bank in banks)


def _hits(model: Model, bank: Bank, look: str, device: torch.device) -> int:
    decisions, success, hits = bank.decisions, bank.outcomes.success, 0
    scene = bank.scene(look)
    for begin in range(0, len(success), BATCH):
        rows = slice(begin, begin + BATCH)
        cost = predict(model, scene, decisions, rows, device).cost
        choice = cost.argmin(1).cpu().numpy()
        alone = ((cost == cost.amin(1, keepdim=True)).sum(1) == 1).cpu().numpy()
        hits += int((success[rows][range(len(choice)), choice] & alone).sum())
    return hits
