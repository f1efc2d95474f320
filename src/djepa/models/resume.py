"""The folder of a training run: its ownership, and the state from which it resumes.

A folder is claimed before anything is simulated; foreign files raise an error and are not
overwritten. Two runs never share a folder. A state is one file: tensors, metadata, and their hash.
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
    """Hold the folder of a training while it runs; of several processes the first holds it."""
    if not first:
        yield
        return
    writer_of(out)
    with held(out):
        yield


def claim(out: Path) -> None:
    """Mark a folder as a training's; raise if it holds other files."""
    writer_of(out).begin_again()


def writer_of(out: Path) -> Writer:
    """The writer of the folder; raises an error that names a foreign file.

    Folders of earlier versions have no mark and are recognised by their state.
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
    """Write tensors and their metadata with a hash of both."""
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
    write_atomically(path, seal_shard(path, arrays, about))


def read_state(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read tensors and metadata. States of earlier versions have no hash and are not checked."""
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
