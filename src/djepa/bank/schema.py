"""What a bank looks like on disk.

    BANK/
      manifest.json                     schema, configuration, versions, SHA-256 of every shard
      decision/block-000000.safetensors what a decision may see: starts, candidates
      outcome/block-000000.safetensors  what execution showed; deciding never opens these
      provenance/block-000000.safetensors  how starts and candidates were made; nor these

While a collection runs there is no manifest but `config.json` and `journal.jsonl`, one line per
finished block. Legend: N starts of the block, K candidates, H horizon, A action width, C centres,
B recorded states, L controls of the
history, S numbers in a state.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors
from safetensors.numpy import load, save

from djepa.errors import DjepaError

Arrays = dict[str, npt.NDArray[Any]]
FORMAT, SCHEMA = "djepa-bank", 1
KINDS = ("decision", "outcome", "provenance")
MANIFEST, CONFIG, JOURNAL, LOCK = "manifest.json", "config.json", "journal.jsonl", ".lock"

# name -> (dtype kinds allowed, shape in the legend's letters)
LAYOUT: dict[str, dict[str, tuple[str, str]]] = {
    "decision": {
        "start_ids": ("int64", "N"),
        "identities": ("uint8", "N 32"),
        "state": ("float64", "N S"),
        "goal": ("float64", "N S"),
        "context": ("float64", "N 3 S"),
        "history": ("float32", "N L A"),
        "candidate_ids": ("int64", "N K"),
        "actions": ("float16 float32 float64", "N K H A"),
        "action_hashes": ("uint8", "N K 32"),
    },
    "outcome": {
        "success": ("bool", "N K"),
        "cost": ("float64", "N K"),
        "observed": ("bool", "N K"),
        "states": ("float64", "N K B S"),
    },
    "provenance": {
        "centres": ("float32", "N C H A"),
        "behaviour": ("int64", "N"),
        "family": ("uint8", "N K 24"),
        "centre_of": ("int64", "N K"),
        "pool_seed": ("int64", "N"),
        "draws": ("int64", "N"),
    },
}


def shard_name(kind: str, block: int) -> str:
    """Path of a shard, relative to the bank."""
    return f"{kind}/block-{block:06d}.safetensors"


def sha256(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def encode(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Arrays -> bytes of a shard; the library would write views in the order of their memory."""
    return bytes(save({name: np.ascontiguousarray(a) for name, a in arrays.items()}))


def decode(path: Path, kind: str, expected: str | None) -> Arrays:
    """Read one shard strictly: its hash, its names, its dtypes, its shapes."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DjepaError(f"Cannot read {path}: {error.strerror}. The bank is incomplete.") from None
    if expected is not None and sha256(data) != expected:
        raise DjepaError(
            f"{path} is damaged: its SHA-256 differs from the one recorded when it was written. "
            "Restore it from a copy, or collect the bank again into another folder."
        )
    try:
        arrays: Arrays = load(data)
    except (safetensors.SafetensorError, ValueError) as error:
        raise DjepaError(f"{path} is not a complete safetensors file ({error}).") from None
    check_layout(path, kind, arrays)
    return arrays


def check_entry(file: Path, where: str, entry: Any) -> None:
    """What is recorded of one block: starts, candidates, drops, and its three shards."""
    try:
        counts = [entry["starts"], entry["candidates"], *entry["drops"].values()]
        records = [entry["files"][kind] for kind in KINDS]
        counts += [record["bytes"] for record in records]
        names = [record[key] for record in records for key in ("file", "sha256")]
        sound = len(entry["files"]) == len(KINDS) and all(type(n) is int for n in counts)
        sound = sound and all(type(name) is str for name in names)
    except (KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise DjepaError(f"{file} is damaged in {where}: it does not describe a block.")


def check_layout(path: Path, kind: str, arrays: Arrays) -> None:
    """Names, dtypes and shapes of a shard; letters must agree within it."""
    layout, sizes = LAYOUT[kind], dict[str, int]()
    if set(arrays) != set(layout):
        odd = sorted(set(arrays) ^ set(layout))
        raise DjepaError(f"{path}: missing or foreign arrays: {', '.join(odd)}.")
    for name, (dtypes, shape) in layout.items():
        array, letters = arrays[name], shape.split()
        fits = array.dtype.name in dtypes.split() and array.ndim == len(letters)
        for letter, size in zip(letters, array.shape, strict=False):
            fits = fits and size == (
                int(letter) if letter.isdigit() else sizes.setdefault(letter, size)
            )
        if not fits:
            raise DjepaError(
                f"{path}: '{name}' is {array.dtype} {array.shape}; {dtypes} ({shape}) is needed."
            )
