"""Layout of a bank on disk.

    BANK/
      manifest.json                     configuration, versions, blocks, SHA-256 of every shard
      decision/block-000000.safetensors what a decision may see: starts, candidates
      outcome/block-000000.safetensors  what execution showed; deciding never opens these
      provenance/block-000000.safetensors  how starts and candidates were made; nor these

While a collection runs there is a journal instead of a manifest, one line per finished block; see
djepa.artefacts. Legend: N starts of the block, K candidates, H horizon, A action width, C centres,
B recorded states, L controls of the history, S numbers in a state.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from djepa.artefacts.folder import Arrays, load_arrays, read_checked
from djepa.artefacts.layout import Layout, check_layout
from djepa.artefacts.records import Kind, read_bytes
from djepa.rollout.execute import CollectConfig

KINDS = ("decision", "outcome", "provenance")
BLOCK = "block-{:06d}.safetensors"  # the file of a block, of each kind


class BlockRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the manifest says of one block."""

    starts: int
    candidates: int
    drops: dict[str, int]


class StartsRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What manifests of banks of driving and of two arms say of one block."""

    starts: int


class BankRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the manifest says of a bank."""

    config: CollectConfig
    source: dict[str, Any] | None  # settings of the search that proposed candidates, if any
    versions: dict[str, str]
    blocks: list[BlockRecord]
    drops: dict[str, int]


BANK = Kind(
    "bank",
    "djepa-bank",
    2,
    BankRecord,
    shards=rf"({'|'.join(KINDS)})/block-\d{{6}}\.safetensors",
    again="Restore it from a copy, or collect the bank again into another --out.",
)

LAYOUT: dict[str, Layout] = {
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
        "native_cost": ("float64", "N K"),
    },
}
OPTIONAL = ("native_cost",)  # present if candidates were retained by it


def shard_name(kind: str, block: int) -> str:
    """Path of a shard, relative to the bank."""
    return f"{kind}/{BLOCK.format(block)}"


def decode(
    path: Path, kind: str, expected: str | None, sizes: Mapping[str, int] | None = None
) -> Arrays:
    """Read one shard strictly: its hash, its names, its dtypes, its shapes."""
    data = read_bytes(path) if expected is None else read_checked(path, expected, None, BANK)
    arrays = load_arrays(path, data)
    check_shard(path, kind, arrays, sizes)
    return arrays


def check_shard(
    path: Path, kind: str, arrays: Arrays, sizes: Mapping[str, int] | None = None
) -> None:
    """Check names, dtypes and shapes of a shard; each letter must have one size within it."""
    layout = {n: of for n, of in LAYOUT[kind].items() if n in arrays or n not in OPTIONAL}
    check_layout(path, arrays, layout, sizes, BANK.again)
