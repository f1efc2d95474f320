"""Predictions of the native driving model for every candidate of a bank, stored beside it.

Its evidence is called `native`: cost is 1 - score, futures are the queries (one step of 256
numbers), parts are the six logits. Legend: N scenes, K candidates.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from djepa.artefacts.folder import Arrays
from djepa.bank.driving import TrafficBank
from djepa.models.predictions import HERE, PART, EvidenceRecord, Missing, write_evidence
from djepa.models.traffic import PARTS, Inputs, TrafficModel, load_native
from djepa.models.traffic_raster import Frame, raster, seen
from djepa.models.weights import CARD, DRIVING, native_hash, open_native
from djepa.pools.driving import Vocabulary
from djepa.rollout.engine import Engine
from djepa.tasks.task import PLAIN
from djepa.threads import threads_for
from djepa.worlds.traffic.scene import Scene, V

NAME = "native"
AT_ONCE = 64  # scenes


@dataclass(frozen=True, eq=False)
class Scorer:
    """A trained native model with the motions that its candidates come from."""

    model: TrafficModel
    vocabulary: Vocabulary
    card: dict[str, Any]
    hash: str  # of weights, card and vocabulary


def load_scorer(where: str | Path = "traffic") -> Scorer:
    """Load from a folder or by name."""
    stored = open_native(where, DRIVING)
    return Scorer(*load_native(stored), stored.record(CARD), native_hash(stored))


def view(scene: Scene) -> Frame:
    """(9, 64, 64) what the model sees of a scene."""
    return raster(scene, scene.ego[:3], seen(scene))


def predict_traffic(
    bank: TrafficBank, scorer: Scorer, device: str = "cpu", engine: Engine = HERE
) -> Path:
    """Write the evidence; blocks already there are kept."""
    known, shared = bank.known, (scorer.model.to(device), device)

    def made(missing: Missing) -> Iterator[tuple[int, Arrays]]:
        blocks = (
            (number, (known.frame[rows], known.ego[rows, V:], known.poses[rows]))
            for number, rows in missing
        )
        return engine.map(_block, blocks, shared, device)

    of = EvidenceRecord(NAME, bank.config.world, PLAIN, "true")
    return write_evidence(bank, of, scorer.hash, made)


@torch.no_grad()
def _block(given: tuple[np.ndarray, ...], shared: tuple[TrafficModel, str]) -> Arrays:
    """Frames, the ego's motion and poses of some scenes -> the arrays of a block."""
    (model, device), parts = shared, []
    with threads_for(device):
        for at in np.array_split(np.arange(len(given[0])), -(-len(given[0]) // AT_ONCE)):
            frames, ego, poses = (torch.from_numpy(x[at]).to(device) for x in given)
            parts.append(model(Inputs(frames, ego.float(), poses.float())))
    joined = {
        name: torch.cat([getattr(part, name) for part in parts]).cpu()
        for name in ("queries", "logits", "latent")
    }
    logits = joined["logits"]
    return {
        "cost": (-logits[..., -1]).sigmoid().numpy(),  # 1 - score, without rounding to 0
        "goal": joined["latent"].half().numpy(),
        "futures": joined["queries"][:, :, None].half().numpy(),
        **{f"{PART}{i}": logits[..., i].numpy() for i in range(PARTS)},
    }
