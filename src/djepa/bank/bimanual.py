"""Banks of bimanual starts: what may be known before execution, and separately its outcomes.

    BANK/
      manifest.json                      configuration, blocks, SHA-256 of every shard
      decision/block-000000.safetensors  snapshot, image, candidates and their features
      outcome/block-000000.safetensors   success, cost, first success, length, error; deciding opens
                                         none

A candidate whose physics could not be executed is marked by `error` and counts as a failure, with
the cost of the start. Version 1 had no such mark and is refused.

Legend: N starts, K candidates, H commands, P target coordinates, S numbers in a state.
"""

from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from djepa.artefacts.folder import Arrays, Folder
from djepa.artefacts.layout import Layout, check_blocks
from djepa.artefacts.records import MANIFEST, Kind
from djepa.bank.known import KINDS, read_kind, write_blocks
from djepa.bank.schema import BLOCK, StartsRecord
from djepa.errors import DjepaError
from djepa.pools.bimanual import P
from djepa.rollout.bimanual import BimanualConfig, BimanualWork, Propose, run_bimanual
from djepa.rollout.engine import Engine
from djepa.worlds.bimanual.world import COMMAND

Array = npt.NDArray[Any]
LAYOUT: dict[str, Layout] = {
    "decision": {
        "number": ("int64", "N"),
        "identity": ("uint8", "N 32"),
        "state": ("float64", "N S"),
        "image": ("uint8", "N height width 3"),
        "ids": ("int64", "N K"),
        "commands": ("float32", f"N K H {COMMAND}"),
        "targets": ("float64", f"N K {P}"),
        **dict.fromkeys(("seen", "expected"), ("float64", f"N {P}")),
        **dict.fromkeys(
            ("apart", "visual", "scene", "effort", "timing", "missed"), ("float64", "N K")
        ),
        **dict.fromkeys(("relation", "distance", "doubt"), ("float64", "N")),
    },
    "outcome": {
        "success": ("bool", "N K"),
        "cost": ("float64", "N K"),
        "first": ("int64", "N K"),
        "length": ("int64", "N K"),
        "error": ("bool", "N K"),
    },
}


class BimanualRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the manifest says."""

    config: BimanualConfig
    blocks: list[StartsRecord]


BIMANUAL = Kind(
    "bank of bimanual starts",
    "djepa-bimanual",
    2,
    BimanualRecord,
    shards=rf"({'|'.join(KINDS)})/block-\d{{6}}\.safetensors",
    again="Remove it, and the starts are executed again.",
)


@dataclass(frozen=True, eq=False)
class Known:
    """What may be known before execution."""

    number: Array  # (N,)
    identity: Array  # (N, 32) uint8
    state: Array  # (N, S) the snapshot, for execution and pictures alone
    image: Array  # (N, 60, 80, 3) uint8, what the policy saw
    ids: Array  # (N, K)
    commands: Array  # (N, K, H, 14) float32
    targets: Array  # (N, K, P) where candidates grasp and place
    seen: Array  # (N, P) the targets predicted from colours
    expected: Array  # (N, P) the targets predicted from the whole scene
    apart: Array  # (N, K) m between targets of a candidate and of the native chunk
    visual: Array  # (N, K) m between `targets` and `seen`
    scene: Array  # (N, K) m between `targets` and `expected`
    effort: Array  # (N, K) rad, how unevenly joints move
    timing: Array  # (N, K) difference of the time of grasping to the demonstrations'
    missed: Array  # (N, K) m, largest error of inverse kinematics
    relation: Array  # (N,) q of the native chunk
    distance: Array  # (N,) m, least distance of the native chunk to the predicted grasps
    doubt: Array  # (N,) rad, the policy's estimate of its own error

    @property
    def names(self) -> tuple[str, ...]:
        """N names of starts."""
        return tuple(bytes(row).hex() for row in self.identity)


class BimanualBank:
    """A finished bank."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._folder = Folder(path, BIMANUAL)
        record: BimanualRecord = self._folder.about
        self.config, self.hash = record.config, self._folder.hash
        self.manifest = self._folder.manifest.about
        check_blocks(self._folder, [f"{kind}/{BLOCK}" for kind in KINDS], self.config.blocks)
        starts = [len(self.config.members(block)) for block in range(self.config.blocks)]
        if [block.starts for block in record.blocks] != starts:
            raise DjepaError(
                f"{path / MANIFEST}: its blocks do not have the starts of its configuration. "
                f"{BIMANUAL.again}"
            )

    def __len__(self) -> int:
        return self.config.starts

    @cached_property
    def known(self) -> Known:
        """Everything known before execution. Opens no outcome."""
        return Known(**self._read("decision"))

    @cached_property
    def outcome(self) -> Arrays:
        """Name -> (N, K): success, cost, first, length, error."""
        return self._read("outcome")

    def _read(self, kind: str) -> Arrays:
        blocks = {b: len(self.config.members(b)) for b in range(self.config.blocks)}
        return read_kind(self._folder, kind, LAYOUT, blocks, self._complaint)

    def _complaint(self, block: int, arrays: Arrays) -> str:
        same = np.array_equal(arrays["number"], self.config.members(block))
        return "" if same else "does not hold the starts of its block"


def collect_bimanual(
    path: Path, config: BimanualConfig, engine: Engine, propose: Propose
) -> BimanualBank:
    """Execute all candidates of all starts into the bank at `path`; resumes a partial bank."""
    work = partial(BimanualWork, config, propose=propose)
    write_blocks(
        path, BIMANUAL, config, engine, run_bimanual, work, "There is no start to execute."
    )
    return BimanualBank(path)
