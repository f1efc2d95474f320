"""Write a bank block by block, so that whatever was finished survives a crash.

A shard is written to a temporary name, flushed to the disk and renamed; then its block goes into
the journal. The manifest comes last and replaces the journal. Nothing finished is ever overwritten.
"""

import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from djepa.bank.schema import (
    CONFIG,
    FORMAT,
    JOURNAL,
    KINDS,
    LOCK,
    MANIFEST,
    SCHEMA,
    check_entry,
    check_layout,
    encode,
    sha256,
    shard_name,
)
from djepa.errors import DjepaError
from djepa.files import TEMPORARY, flush_folder, naming, to_json, write_atomically
from djepa.rollout.execute import Block, CollectConfig


class BankWriter:
    """Owns a bank folder while it is being collected."""

    def __init__(
        self,
        path: Path,
        config: CollectConfig,
        versions: dict[str, str],
        source: dict[str, Any] | None = None,
    ) -> None:
        self.path, self.config = path, config
        self._head: dict[str, Any] = {
            "format": FORMAT,
            "schema": SCHEMA,
            "config": dataclasses.asdict(config),
            "source": source,  # settings of a search that proposes, if one does
            "versions": versions,
        }
        self.done: dict[int, dict[str, Any]] = {}
        self.complete = False

    @contextmanager
    def opened(self) -> Iterator["BankWriter"]:
        """Claim the folder, read what is there already, let go at the end."""
        with naming(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self._refuse_strangers()
        lock = _lock(self.path / LOCK)
        try:
            self._resume()
            yield self
        finally:
            (self.path / LOCK).unlink(missing_ok=True)  # before letting go, or a new one is lost
            lock.close()

    def missing(self) -> list[int]:
        """Blocks that are not on disk yet."""
        return [] if self.complete else [b for b in range(self.config.blocks) if b not in self.done]

    def write(self, number: int, block: Block) -> None:
        """Put one block on disk, then into the journal."""
        self._check(number, block)
        files = {}
        for kind in KINDS:
            data = encode(getattr(block, kind))
            name = shard_name(kind, number)
            write_atomically(self.path / name, data)
            files[kind] = {"file": name, "bytes": len(data), "sha256": sha256(data)}
        starts, candidates = block.decision["candidate_ids"].shape
        entry = {"starts": starts, "candidates": candidates, "files": files, "drops": block.drops}
        _append(self.path / JOURNAL, json.dumps({"block": number, **entry}, sort_keys=True))
        self.done[number] = entry

    def finish(self) -> None:
        """Write the manifest, in block order whatever the order of completion, and tidy up."""
        if not self.complete:
            blocks = [self.done[number] for number in range(self.config.blocks)]
            drops = {why: sum(b["drops"][why] for b in blocks) for why in blocks[0]["drops"]}
            manifest = {**self._head, "blocks": blocks, "drops": drops}
            write_atomically(self.path / MANIFEST, to_json(manifest).encode())
        for name in (JOURNAL, CONFIG):
            (self.path / name).unlink(missing_ok=True)

    def _check(self, number: int, block: Block) -> None:
        """Refuse a block that could not be read back with the others."""
        for kind in KINDS:
            check_layout(self.path / shard_name(kind, number), kind, getattr(block, kind))
        _, K, H, _ = block.decision["actions"].shape
        others = {entry["candidates"] for entry in self.done.values()} | {K}
        if self.config.horizon != H or len(others) > 1:
            raise DjepaError(
                f"Block {number} has {K} candidates of {H} controls; a bank has one number of "
                f"candidates ({sorted(others)}) and {self.config.horizon} controls throughout."
            )

    def _resume(self) -> None:
        """Check that the folder is ours to go on with, and what it already holds."""
        manifest, config, journal = (self.path / name for name in (MANIFEST, CONFIG, JOURNAL))
        self.complete = manifest.exists()
        if self.complete:
            self._compare(manifest)
            for i, entry in enumerate(json.loads(manifest.read_text()).get("blocks", [{}])):
                check_entry(manifest, f"block {i}", entry)
                self._verify(entry)
            return
        begun = journal.exists() and journal.stat().st_size > 0
        if config.exists() and begun:
            self._compare(config)
        write_atomically(config, to_json(self._head).encode())
        with naming(self.path):
            for kind in KINDS:
                (self.path / kind).mkdir(exist_ok=True)
                for leftover in (self.path / kind).glob(f"block-*{TEMPORARY}"):
                    leftover.unlink()
        for number, entry in _read_journal(journal):
            self._verify(entry)
            self.done[number] = entry
        self._sweep()

    def _sweep(self) -> None:
        """Remove shards of our own that were written but never entered in the journal."""
        known = {r["file"] for entry in self.done.values() for r in entry["files"].values()}
        for kind in KINDS:
            for shard in (self.path / kind).glob("block-*.safetensors"):
                if f"{kind}/{shard.name}" not in known:
                    shard.unlink()

    def _refuse_strangers(self) -> None:
        """A folder is ours if it is empty or says so; anything else in it is somebody's."""
        ours = any(_says_bank(self.path / name) for name in (MANIFEST, CONFIG))
        begun = (LOCK, CONFIG + TEMPORARY)  # all that a kill in the first moment leaves
        if not ours and any(file.name not in begun for file in self.path.iterdir()):
            raise DjepaError(
                f"{self.path} is not empty and not a bank. Nothing was changed; "
                "choose another --out."
            )

    def _verify(self, entry: dict[str, Any]) -> None:
        for record in entry["files"].values():
            _verify(self.path / record["file"], record)

    def _compare(self, file: Path) -> None:
        try:
            theirs = _flat(json.loads(file.read_text()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise DjepaError(f"{file} is not that of a bank. Choose another --out.") from None
        ours = _flat(self._head)
        if theirs != ours:
            keys = sorted(k for k in {*ours, *theirs} if ours.get(k) != theirs.get(k))
            changes = ", ".join(f"{k}: {theirs.get(k)} there, {ours.get(k)} asked" for k in keys)
            raise DjepaError(
                f"{self.path} holds a bank of another configuration ({changes}). "
                "Nothing was changed; choose another --out."
            )


def _says_bank(file: Path) -> bool:
    try:
        return bool(json.loads(file.read_text())["format"] == FORMAT)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _flat(head: dict[str, Any]) -> dict[str, Any]:
    """What must agree for two runs to belong together."""
    rest = {"schema": head["schema"], "source": head["source"]}
    return {**head["config"], **head["versions"], **rest}


def _lock(path: Path) -> IO[str]:
    """The lock file, held. Its holder removes it, so what we hold must still bear the name."""
    while True:
        with naming(path):
            file = path.open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise DjepaError(
                f"Another process is collecting into {path.parent}. "
                "Wait for it, or choose another --out."
            ) from None
        if path.exists() and os.fstat(file.fileno()).st_ino == path.stat().st_ino:
            return file
        file.close()  # its holder removed it in between: try again


def _append(journal: Path, line: str) -> None:
    with naming(journal), journal.open("a") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())
        flush_folder(journal.parent)


def _read_journal(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    text = path.read_text(errors="replace") if path.exists() else ""
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        # A line cut short can only be the last: its block was in flight and is done again.
        lines.pop()
        write_atomically(path, "".join(lines).encode())
    for i, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            number = entry.pop("block")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise DjepaError(f"{path} is damaged in line {i}. Choose another --out.") from None
        check_entry(path, f"line {i}", entry)
        yield number, entry


def _verify(path: Path, record: dict[str, Any]) -> None:
    """A finished shard must be what the journal says; otherwise stop before touching anything."""
    if not path.exists():
        raise DjepaError(f"{path} was finished but is gone. Restore it, or choose another --out.")
    data = path.read_bytes()
    if len(data) != record["bytes"]:
        raise DjepaError(
            f"{path} is cut short or grown: {len(data)} bytes, {record['bytes']} were written. "
            "Restore it from a copy, or choose another --out."
        )
    if sha256(data) != record["sha256"]:
        raise DjepaError(
            f"{path} is damaged: its SHA-256 is not the one that was written. "
            "Restore it from a copy, or choose another --out."
        )
