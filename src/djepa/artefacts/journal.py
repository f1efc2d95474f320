"""The journal of a folder that is being written: one checked line per finished piece of work.

On this machine it is a file to which lines are appended. An object store cannot append: there every
line is a separate file, whose name begins with that of the journal.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from djepa.artefacts.records import decode, read_bytes, sha256
from djepa.artefacts.store import Remote, remote
from djepa.errors import DjepaError
from djepa.files import flush_folder, naming, write_atomically


class Piece(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of the journal: files that were finished together."""

    files: dict[str, str]
    sizes: dict[str, int]
    note: dict[str, Any] = {}


def append(journal: Path, piece: Piece, number: int) -> None:
    """Append a piece as entry `number`."""
    line = json.dumps(msgspec.to_builtins(piece), sort_keys=True, allow_nan=False)
    of = sha256(line.encode())
    if far := remote(journal):
        name = f"{far.name}.{number:08d}-{of[:12]}"
        far.with_name(name).write(f"{of} {line}\n".encode())
        return
    with naming(journal), journal.open("a") as file:
        file.write(f"{of} {line}\n")
        file.flush()
        os.fsync(file.fileno())
        flush_folder(journal.parent)


def pieces_of(journal: Path) -> Iterator[Piece]:
    """All pieces in the journal."""
    for i, line in enumerate(_lines(journal), 1):
        expected, _, text = line.rstrip(b"\n").partition(b" ")
        if sha256(text).encode() != expected:
            raise DjepaError(f"{journal} is damaged in line {i}. Choose another --out.")
        yield decode(journal, text, Piece)


def withdraw(journal: Path, name: str) -> None:
    """Remove the pieces that list a file."""
    keeps = [name not in piece.files for piece in pieces_of(journal)]
    if far := remote(journal):
        for line, keep in zip(_files(far), keeps, strict=True):
            if not keep:
                line.unlink()
        return
    lines = (line for line, keep in zip(_lines(journal), keeps, strict=True) if keep)
    write_atomically(journal, lines)


def clear(journal: Path) -> None:
    """Remove the journal."""
    if far := remote(journal):
        for line in _files(far):
            line.unlink()
    else:
        journal.unlink(missing_ok=True)


def _files(journal: Remote) -> list[Remote]:
    """Lines in a store, in the order in which they were entered."""
    beside = journal.parent
    return [beside / name for name in beside.sizes() if name.startswith(f"{journal.name}.")]


def _lines(path: Path) -> list[bytes]:
    if far := remote(path):
        return [line.read_bytes() for line in _files(far)]
    lines = read_bytes(path).splitlines(keepends=True) if path.exists() else []
    if lines and not lines[-1].endswith(b"\n"):
        # Only the last line can be cut short: its piece was unfinished and is done again.
        lines.pop()
        write_atomically(path, b"".join(lines))
    return lines
