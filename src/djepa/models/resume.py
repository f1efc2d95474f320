"""The folder of a training: whose it is, and the state from which one that was cut off goes on.

A folder is claimed before anything is simulated: what is somebody's is named, not overwritten. Two
trainings never share one. A state is one sealed file: tensors, what they are of, the hash of both.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from djepa.artefacts.folder import SEAL, read_shard, seal_shard
from djepa.artefacts.lock import held
from djepa.artefacts.records import MANIFEST, begins
from djepa.artefacts.write import Writer
from djepa.errors import DjepaError
from djepa.files import write_atomically
from djepa.models.weights import GEOMETRY, TENSORS

STATE, BEST, LOG = "resume.safetensors", "best.safetensors", "log.jsonl"
LEFT = (TENSORS, "config.json", "card.json", "loss.png")  # what a finished training leaves
PASSING = (STATE, BEST, LOG, "best", "development", "test")  # what one writes before


@contextmanager
def owned(out: Path, first: bool = True) -> Iterator[None]:
    """The folder of a training as long as it runs. Of several processes the first one holds it."""
    if not first:
        yield
        return
    writer_of(out)
    with held(out):
        yield


def claim(out: Path) -> None:
    """Mark a folder as that of a training; refuse one that holds what is not of a training."""
    writer_of(out).begin_again()


def writer_of(out: Path) -> Writer:
    """Who may write into the folder, or an error that names what is somebody's there.

    Before folders were marked, a state said whose they were.
    """
    writer = Writer(out, GEOMETRY, alone=False)
    marked = begins(out) == GEOMETRY.format
    writer.claim(LEFT if marked or _has_state(out) else (*LEFT, *PASSING))
    if (out / MANIFEST).exists():
        raise DjepaError(f"{out} holds finished weights. Choose another --out.")
    return writer


def _has_state(out: Path) -> bool:
    try:
        return "config" in read_state(out / STATE)[1]
    except DjepaError:
        return False


def write_state(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Tensors and what they are of, sealed."""
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
    write_atomically(path, seal_shard(path, arrays, about))


def read_state(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What was written. States of earlier versions carry no hash; they are read as they are."""
    try:
        with safe_open(path, "pt") as file:
            said = file.metadata() or {}
        if SEAL not in said:
            return load_file(path), json.loads(said["head"]) if path.name == STATE else {}
        arrays, about = read_shard(path)
        return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}, about
    except (SafetensorError, OSError, ValueError, KeyError):
        then = "begins anew" if path.name == STATE else "goes on without it"
        raise DjepaError(
            f"{path} is damaged. Remove it and run the same command again: the training {then}."
        ) from None
