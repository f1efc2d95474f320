"""Evidence whose hashes agree and whose arrays are wrong: one line that names the file."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from djepa.artefacts.folder import Arrays, encode, load_arrays
from djepa.artefacts.records import sha256
from djepa.artefacts.store import Remote
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence
from djepa.models.predictions import Stored, predict_bank, read_predictions

SHARD = "block-000001.safetensors"


class Sums:
    """Sums of controls as latents: a geometry that costs nothing."""

    name, image, latent = "sums", 16, 3

    def encode(self, frames: Tensor, proprio: Tensor) -> Tensor:
        return proprio[..., :3] / 512

    def rollout(self, context: Tensor, history: Tensor, candidates: Tensor) -> Tensor:
        sums = candidates.unflatten(2, (-1, 5)).mean(3).cumsum(2)
        return context[:, -1][:, None, None] + torch.nn.functional.pad(sums, (0, 1))

    def native_cost(self, futures: Tensor, goal: Tensor) -> Tensor:
        return (futures[:, :, -1] - goal[:, None]).square().mean(-1)


@pytest.fixture
def bank(bank_copy: Path) -> Bank:
    predict_bank(Bank(bank_copy), Sums(), "abc")
    return Bank(bank_copy)


def rewrite(folder: Path, name: str, change: Callable[[Arrays], Arrays]) -> None:
    """What a careless tool might do: other arrays, and the hash of what it has written."""
    manifest = folder / "manifest.json"
    data = encode(change(load_arrays(folder / name, (folder / name).read_bytes())))
    (folder / name).write_bytes(data)
    stated = json.loads(manifest.read_text())
    stated["files"][name], stated["sizes"][name] = sha256(data), len(data)
    manifest.write_text(json.dumps(stated))


CHANGES: dict[str, Callable[[Arrays], Arrays]] = {
    "cost of one axis": lambda a: {**a, "cost": a["cost"][:, 0]},
    "cost of three axes": lambda a: {**a, "cost": a["cost"][..., None]},
    "cost in float64": lambda a: {**a, "cost": a["cost"].astype(np.float64)},
    "cost of fewer starts": lambda a: {**a, "cost": a["cost"][1:]},
    "goal of one axis": lambda a: {**a, "goal": a["goal"][:, 0]},
    "goal without numbers": lambda a: {**a, "goal": a["goal"][:, :0]},
    "futures of two axes": lambda a: {**a, "futures": a["futures"][:, :, 0, 0]},
    "futures of no step": lambda a: {**a, "futures": a["futures"][:, :, :0]},
    "futures of fewer candidates": lambda a: {**a, "futures": a["futures"][:, 1:]},
    "no cost": lambda a: {n: x for n, x in a.items() if n != "cost"},
    "no goal": lambda a: {n: x for n, x in a.items() if n != "goal"},
    "no futures": lambda a: {n: x for n, x in a.items() if n != "futures"},
    "an array nobody knows": lambda a: {**a, "success": a["cost"]},
    "a part of one axis": lambda a: {**a, "part.near": a["cost"][:, 0]},
}


@pytest.mark.parametrize("change", CHANGES)
def test_arrays_that_are_no_evidence_are_refused(change: str, bank: Bank) -> None:
    rewrite(bank.path / "evidence/sums", SHARD, CHANGES[change])
    for read in (
        lambda: Evidence.from_bank(bank, ["sums"], ["sums"]),
        lambda: read_predictions(bank, "sums"),
    ):
        with pytest.raises(DjepaError, match=rf"{SHARD}.*(needed|foreign).*predict again"):
            read()


def test_a_copy_from_a_store_is_compared_with_the_manifest(bank: Bank) -> None:
    """Latents are mapped from a second download, which may differ from the first."""
    pytest.importorskip("fsspec")
    far = Remote("memory://damaged/bank")
    for file in bank.path.rglob("*"):
        if file.is_file():
            (far / file.relative_to(bank.path)).write(file.read_bytes())
    try:
        stored = Stored(Bank(far.url), "sums")
        stored.block(1)
        ends = Stored(bank, "sums").ends(1, [0, 2])
        assert np.array_equal(stored.ends(1, [0, 2]), ends)  # from the copy
        shard = far / f"evidence/sums/{'block-000000.safetensors'}"
        stored.block(0)
        shard.write(shard.read_bytes()[:-2] + b"\1\1")
        with pytest.raises(DjepaError, match=r"block-000000\.safetensors is damaged"):
            stored.ends(0, [0])
    finally:
        for file in far.rglob("*"):
            file.unlink()
