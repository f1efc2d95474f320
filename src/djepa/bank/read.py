"""Read a bank strictly: every listed shard must exist, whole and unchanged.

Decisions, outcomes and provenance are read by separate calls from separate sets of files: code
that only decides never opens an outcome. A large bank is read in parts.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import islice
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.artefacts.folder import Arrays, Folder, stacked
from djepa.artefacts.layout import check_blocks
from djepa.artefacts.records import MANIFEST
from djepa.artefacts.store import locate
from djepa.bank.schema import BANK, BLOCK, KINDS, BankRecord, decode, shard_name
from djepa.errors import DjepaError, check_name
from djepa.tasks.task import PLAIN, Scene

Array = npt.NDArray[Any]
PART = 1024  # starts of a part, or more where blocks are larger


@dataclass(frozen=True, eq=False)
class Decisions:
    """What may be known before execution. Legend: N starts, K candidates, H horizon, A action."""

    start_ids: Array  # (N,) int64
    identities: Array  # (N, 32) uint8
    state: Array  # (N, S)
    goal: Array  # (N, S)
    context: Array  # (N, 3, S)
    history: Array  # (N, 2 strides, A)
    candidate_ids: Array  # (N, K) int64
    actions: Array  # (N, K, H, A)
    action_hashes: Array  # (N, K, 32) uint8


@dataclass(frozen=True, eq=False)
class Executions:
    """What execution showed. An unobserved candidate is not a failed one."""

    success: Array  # (N, K) bool
    cost: Array  # (N, K) task cost; success is cost < 1
    observed: Array  # (N, K) bool
    states: Array  # (N, K, B, S) after every stride of controls


@dataclass(frozen=True, eq=False)
class Provenance:
    """How starts and candidates came to be; for statistics, never for a decision."""

    centres: Array  # (N, C, H, A) the reference first
    behaviour: Array  # (N,) str
    family: Array  # (N, K) str
    centre_of: Array  # (N, K) int64: 0 the reference, 1.. decoys, -1 none
    pool_seed: Array  # (N,)
    draws: Array  # (N,) draws until the start was kept
    native_cost: Array | None = None  # (N, K) by which candidates were retained, if so


class Bank:
    """A finished bank."""

    def __init__(self, path: Path | str) -> None:
        self.path = locate(path)
        folder = Folder(path, BANK)
        record: BankRecord = folder.about
        self.config, self.hash, self.files = record.config, folder.hash, folder.manifest.files
        self.manifest = folder.manifest.about
        self.blocks = range(len(record.blocks))  # blocks to read: all, or those of a part
        self._texts: dict[int, tuple[str, ...]] = {}  # identities by block; all parts share it
        self._check_files(folder)
        self._check_counts(record)

    def __len__(self) -> int:
        last = self.config.members(self.blocks[-1])
        return last.stop - self.config.members(self.blocks[0]).start

    def part(self, blocks: range) -> "Bank":
        """The same bank, restricted to these blocks."""
        part, first = copy.copy(self), self.config.members(self.blocks[0]).start
        part.blocks = blocks
        begin = self.config.members(blocks[0]).start - first
        for what in ("decisions", "outcomes", "provenance"):
            if what in self.__dict__:  # already in memory: the part is a view
                part.__dict__[what] = _rows(self.__dict__[what], slice(begin, begin + len(part)))
        return part

    def parts(self, multiple: int = 1) -> Iterator["Bank"]:
        """The bank in consecutive parts; the number of starts of each is a multiple of `multiple`.

        A part is freed before the next is read, so memory does not grow with the bank.
        """
        least = multiple // gcd(multiple, self.config.block)  # least number of blocks for it
        size = least * -(-PART // (least * self.config.block))
        if size >= len(self.blocks):
            yield self
            return
        for first in range(self.blocks.start, self.blocks.stop, size):
            yield self.part(range(first, min(first + size, self.blocks.stop)))

    @property
    def candidates(self) -> int:
        """K, the number of candidates per start."""
        return int(self.manifest["blocks"][0]["candidates"])

    @property
    def split(self) -> str:
        """The population the starts belong to."""
        return self.config.split

    def world(self) -> Any:
        """The world the bank was executed in."""
        return self.config.make_world()

    def scene(self, look: str = PLAIN) -> Scene:
        """The world of the bank as a geometry sees it, in the given look."""
        check_name("look", look, self.config.task.looks)
        return Scene(self.config.world, self.config.shape, look)

    @property
    def identities(self) -> tuple[str, ...]:
        """Identities of the starts as text; evidence and outcomes share the strings."""
        for part in self.parts():
            if not all(block in self._texts for block in part.blocks):
                texts = iter([bytes(row).hex() for row in part.decisions.identities])
                for block in part.blocks:
                    self._texts[block] = tuple(islice(texts, len(self.config.members(block))))
        return tuple(text for block in self.blocks for text in self._texts[block])

    @cached_property
    def decisions(self) -> Decisions:
        """All starts and candidates. Opens no outcome."""
        return Decisions(**self._read("decision"))

    @cached_property
    def outcomes(self) -> Executions:
        """Outcomes, in the rows of `decisions`."""
        return Executions(**self._read("outcome"))

    @cached_property
    def provenance(self) -> Provenance:
        """How starts and candidates were made, in the rows of `decisions`."""
        arrays = self._read("provenance")
        arrays["family"] = arrays["family"].view("S24")[..., 0].astype(str)
        arrays["behaviour"] = np.array(sorted(self.config.task.behaviours))[arrays["behaviour"]]
        return Provenance(**arrays)

    def row(self, start_id: int) -> int:
        """Position of a start in the arrays."""
        if not 0 <= start_id < len(self):
            raise DjepaError(f"{self.path} has no start {start_id}; it has 0 to {len(self) - 1}.")
        return start_id

    def _read(self, kind: str) -> Arrays:
        shards = (self._shard(kind, block) for block in self.blocks)
        return stacked(self.path, shards, len(self))

    def _shard(self, kind: str, block: int) -> Arrays:
        name = shard_name(kind, block)
        members = self.config.members(block)
        sizes = {"N": len(members), "K": self.candidates}
        arrays = decode(self.path / name, kind, self.files[name], sizes)
        if kind == "decision" and arrays["start_ids"].tolist() != list(members):
            raise DjepaError(f"{self.path / name} holds other starts than its block. {BANK.again}")
        return arrays

    def _check_counts(self, record: BankRecord) -> None:
        """Check that the counts in the manifest follow from the configuration and add up."""
        starts = [len(self.config.members(number)) for number in range(self.config.blocks)]
        candidates = {block.candidates for block in record.blocks}
        if [block.starts for block in record.blocks] != starts or len(candidates) != 1:
            raise DjepaError(
                f"{self.path / MANIFEST}: starts or candidates of its blocks are not those of its "
                f"configuration. {BANK.again}"
            )
        each = [block.drops for block in record.blocks]
        same = all(drops.keys() == record.drops.keys() for drops in each)
        if not same or any(
            of != sum(drops[why] for drops in each) or min(drops[why] for drops in each) < 0
            for why, of in record.drops.items()
        ):
            raise DjepaError(
                f"{self.path / MANIFEST}: the drops in the manifest are not those of its blocks. "
                f"{BANK.again}"
            )

    def _check_files(self, folder: Folder) -> None:
        """Check that the folder holds exactly the shards of its configuration."""
        check_blocks(folder, [f"{kind}/{BLOCK}" for kind in KINDS], self.config.blocks)
        for kind in KINDS:
            for file in sorted((self.path / kind).iterdir()):
                if f"{kind}/{file.name}" not in self.files:
                    raise DjepaError(f"{file} does not belong to this bank. Move it away.")


def _rows(whole: Any, rows: slice) -> Any:
    """Decisions, outcomes or provenance restricted to some starts."""
    arrays = {of.name: getattr(whole, of.name) for of in fields(whole)}
    return replace(whole, **{n: array[rows] for n, array in arrays.items() if array is not None})
