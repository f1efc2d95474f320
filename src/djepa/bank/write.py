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
from typing import Any

from djepa.bank.schema import (
    CONFIG,
    FORMAT,
    JOURNAL,
    KINDS,
    MANIFEST,
    SCHEMA,
    encode,
    sha256,
    shard_name,
    to_json,
)
from djepa.errors import DjepaError
from djepa.rollout.execute import Block, CollectConfig

TEMPORARY = ".part"


class BankWriter:
    """Owns a bank folder while it is being collected."""

    def __init__(self, path: Path, config: CollectConfig, versions: dict[str, str]) -> None:
        self.path, self.config = path, config
        self._head = {
            "format": FORMAT,
            "schema": SCHEMA,
            "config": dataclasses.asdict(config),
            "versions": versions,
        }
        self.done: dict[int, dict[str, Any]] = {}

    @contextmanager
    def opened(self) -> Iterator["BankWriter"]:
        """Claim the folder, read what is there already, let go at the end."""
        with _naming(self.path):
            for kind in KINDS:
                (self.path / kind).mkdir(parents=True, exist_ok=True)
            lock = (self.path / ".lock").open("w")
        try:
            self._claim(lock.fileno())
            self._resume()
            yield self
        finally:
            lock.close()
            (self.path / ".lock").unlink(missing_ok=True)

    @property
    def complete(self) -> bool:
        """Whether the manifest is written."""
        return (self.path / MANIFEST).exists()

    def missing(self) -> list[int]:
        """Blocks that are not on disk yet."""
        return [b for b in range(self.config.blocks) if b not in self.done and not self.complete]

    def write(self, number: int, block: Block) -> None:
        """Put one block on disk, then into the journal."""
        files = {}
        for kind in KINDS:
            data = encode(getattr(block, kind))
            name = shard_name(kind, number)
            write_atomically(self.path / name, data)
            files[kind] = {"file": name, "bytes": len(data), "sha256": sha256(data)}
        starts, candidates = block.decision["candidate_ids"].shape
        entry = {"starts": starts, "candidates": candidates, "files": files, "drops": block.drops}
        line = json.dumps({"block": number, **entry}, sort_keys=True) + "\n"
        journal = self.path / JOURNAL
        with _naming(journal), journal.open("a") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
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

    def _claim(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DjepaError(
                f"Another process is collecting into {self.path}. "
                "Wait for it, or choose another --out."
            ) from None

    def _resume(self) -> None:
        """Check that the folder is ours to go on with, and what it already holds."""
        for name in (MANIFEST, CONFIG):
            file = self.path / name
            if file.exists():
                self._compare(file)
        if self.complete:
            return
        write_atomically(self.path / CONFIG, to_json(self._head).encode())
        for leftover in self.path.glob(f"*/*{TEMPORARY}"):
            leftover.unlink()
        for number, entry in _read_journal(self.path / JOURNAL):
            for file in entry["files"].values():
                _verify(self.path / file["file"], file)
            self.done[number] = entry

    def _compare(self, file: Path) -> None:
        try:
            there = json.loads(file.read_text())
            theirs = {**there["config"], **there["versions"], "schema": there["schema"]}
        except (OSError, ValueError, KeyError, TypeError):
            raise DjepaError(
                f"{file} is unreadable. Choose another --out, or move it away."
            ) from None
        head: Any = self._head
        ours = {**head["config"], **head["versions"], "schema": SCHEMA}
        if theirs != ours:
            keys = sorted(k for k in {*ours, *theirs} if ours.get(k) != theirs.get(k))
            changes = ", ".join(f"{k}: {theirs.get(k)} there, {ours.get(k)} asked" for k in keys)
            raise DjepaError(
                f"{self.path} holds a bank of another configuration ({changes}). "
                "Nothing was changed; choose another --out."
            )


def _read_journal(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    if not path.exists():
        return
    lines = path.read_text().splitlines(keepends=True)
    for i, line in enumerate(lines):
        try:
            entry = json.loads(line)
        except ValueError:
            # A line cut short can only be the last: its block was in flight and is done again.
            if i == len(lines) - 1:
                path.write_text("".join(lines[:-1]))
                return
            raise DjepaError(f"{path} is damaged in line {i + 1}. Choose another --out.") from None
        yield entry.pop("block"), entry


def _verify(path: Path, record: dict[str, Any]) -> None:
    """A finished shard must be what the journal says; otherwise stop before touching anything."""
    if not path.exists():
        raise DjepaError(
            f"{path} was finished but is missing. Restore it, or choose another --out."
        )
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


def write_atomically(path: Path, data: bytes) -> None:
    """All of the file under its name, or nothing; on the disk, not only in its cache."""
    part = path.with_name(path.name + TEMPORARY)
    with _naming(path):
        try:
            with part.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turn a disk that is full or read-only into an error that names the file."""
    try:
        yield
    except OSError as error:
        raise DjepaError(
            f"Cannot write {path}: {error.strerror or error}. What was finished is kept; "
            "make room or choose another --out, then run the same command again."
        ) from None
