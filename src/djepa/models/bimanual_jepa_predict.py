"""Predictions of the patch JEPA for the candidates of a bank, in a file beside the bank.

They use the first picture, the joints and the commands; no outcome is read. The file is bound to
the hashes of bank and weights, and is recomputed if either differs.

Legend: N starts, K candidates, D = R + 20 coordinates of an end.
"""

from pathlib import Path

import numpy as np

from djepa.artefacts.folder import Arrays, read_shard, seal_shard
from djepa.bank.bimanual import BimanualBank, Known
from djepa.errors import DjepaError
from djepa.files import write_atomically
from djepa.models.bimanual_jepa import Trained, cost_of
from djepa.rollout.bimanual import world_of
from djepa.worlds.bimanual.world import COMMAND

FORMAT, VERSION = "djepa-bimanual-predicted", 1


def predicted(bank: BimanualBank, jepa: Trained) -> Arrays:
    """Costs (N, K) float64, ends (N, K, D) and goals (N, D) float32."""
    file = predictions_of(bank.path)
    record = {"format": FORMAT, "version": VERSION, "bank": bank.hash, "weights": jepa.hash}
    if file.exists():
        try:
            arrays, there = read_shard(file)
        except DjepaError:
            there = {}  # damaged: recompute it
        if there == record:
            return arrays
    arrays = predict(bank.known, bank.config.task, jepa)
    write_atomically(file, seal_shard(file, arrays, record))
    return arrays


def predictions_of(bank: Path) -> Path:
    """The file beside a bank."""
    return bank.with_name(f"{bank.name}-predicted.safetensors")


def predict(known: Known, task: str, jepa: Trained) -> Arrays:
    """Predict every start alone, so that the other starts do not affect rounding."""
    world, found = world_of(task), []
    for image, state, commands in zip(known.image, known.state, known.commands, strict=True):
        ends, goal = jepa.read(world, image, state[-COMMAND:], commands)
        cost = cost_of(ends.double(), goal.double())
        found.append([one.numpy() for one in (cost, ends, goal)])
    names = ("cost", "ends", "goals")
    return {name: np.stack(of) for name, of in zip(names, zip(*found, strict=True), strict=True)}
