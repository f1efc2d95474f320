"""Read a bank strictly: every shard listed must be there, whole and unchanged.

Decisions, outcomes and provenance come by three separate calls, because they are three separate
sets of files: code that only decides never opens an outcome.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.bank.schema import (
    FORMAT,
    JOURNAL,
    KINDS,
    MANIFEST,
    SCHEMA,
    Arrays,
    check_entry,
    decode,
    sha256,
    shard_name,
)
from djepa.errors import DjepaError, unknown_name
from djepa.rollout.execute import CollectConfig
from djepa.tasks.task import PLAIN, Scene

Array = npt.NDArray[Any]


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


class Bank:
    """A finished bank."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.manifest = _read_manifest(self.path)
        try:
            self.config = CollectConfig(**self.manifest["config"])
            blocks = list(self.manifest["blocks"])
            dict(self.manifest["drops"]), dict(self.manifest["versions"])
        except (KeyError, TypeError, AttributeError) as error:
            raise DjepaError(
                f"{self.path / MANIFEST} describes no bank that this version reads ({error})."
            ) from None
        for i, entry in enumerate(blocks):
            check_entry(self.path / MANIFEST, f"block {i}", entry)
        self._records = [record for entry in blocks for record in entry["files"].values()]
        self.hash = sha256((self.path / MANIFEST).read_bytes())
        self._check_files()

    def __len__(self) -> int:
        return self.config.starts

    @property
    def candidates(self) -> int:
        """K."""
        return int(self.manifest["blocks"][0]["candidates"])

    @property
    def split(self) -> str:
        """The population the starts belong to."""
        return self.config.split

    def world(self) -> Any:
        """The world the bank was executed in."""
        return self.config.make_world()

    def scene(self, look: str = PLAIN) -> Scene:
        """What a geometry sees of it."""
        if look not in (known := self.config.task.looks):
            raise unknown_name("look", look, known)
        return Scene(self.config.world, self.config.shape, look)

    @cached_property
    def decisions(self) -> Decisions:
        """All starts and candidates. Opens no outcome."""
        return Decisions(**self._read("decision"))

    @cached_property
    def outcomes(self) -> Executions:
        """What execution showed, row by row as in `decisions`."""
        return Executions(**self._read("outcome"))

    @cached_property
    def provenance(self) -> Provenance:
        """How it was made, row by row as in `decisions`."""
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
        records = [block["files"][kind] for block in self.manifest["blocks"]]
        shards = [decode(self.path / r["file"], kind, r["sha256"]) for r in records]
        return {name: np.concatenate([shard[name] for shard in shards]) for name in shards[0]}

    def _check_files(self) -> None:
        """Listed files exist in full length; nothing else is among them, and none lies outside."""
        listed = {record["file"]: record["bytes"] for record in self._records}
        blocks = range(len(self.manifest["blocks"]))
        named = {shard_name(kind, block) for kind in KINDS for block in blocks}
        if self.config.blocks != len(blocks) or set(listed) != named:
            raise DjepaError(
                f"{self.path / MANIFEST} does not list the shards of its configuration."
            )
        for name, size in listed.items():
            file = self.path / name
            if not file.is_file():
                raise DjepaError(f"{file} is listed but missing. Restore it from a copy.")
            if file.stat().st_size != size:
                raise DjepaError(
                    f"{file} has {file.stat().st_size} bytes, {size} were written: it is cut short "
                    "or altered. Restore it from a copy."
                )
        for kind in KINDS:
            for file in sorted((self.path / kind).iterdir()):
                if f"{kind}/{file.name}" not in listed:
                    raise DjepaError(f"{file} does not belong to this bank. Move it away.")


def _read_manifest(path: Path) -> dict[str, Any]:
    file = path / MANIFEST
    if not path.is_dir():
        raise DjepaError(f"There is no bank at {path}: no such folder.")
    if not file.exists():
        if (path / JOURNAL).exists():
            raise DjepaError(
                f"The bank at {path} is not finished. Run the collect command that began it again."
            )
        raise DjepaError(f"{path} is not a bank: it has no {MANIFEST}.")
    try:
        manifest: dict[str, Any] = json.loads(file.read_text())
        kind, schema = manifest["format"], manifest["schema"]
    except (ValueError, KeyError, TypeError):
        raise DjepaError(f"{file} is not a bank manifest, or it is damaged.") from None
    if kind != FORMAT or schema != SCHEMA:
        raise DjepaError(f"{file} is {kind} schema {schema}; this version reads {FORMAT} {SCHEMA}.")
    return manifest
