"""Write a folder piece by piece, so that finished pieces survive a crash.

A file is written to a temporary name, flushed to the disk and renamed; then it is entered in the
journal. The manifest is written last and replaces the journal. A folder that holds anything else is
refused, and two processes never write one folder at the same time.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from djepa.artefacts.folder import Folder, check_size, read_checked
from djepa.artefacts.journal import Piece, append, clear, pieces_of, withdraw
from djepa.artefacts.lock import locked
from djepa.artefacts.records import (
    BEGUN,
    JOURNAL,
    LOCK,
    MANIFEST,
    Kind,
    begins,
    decode,
    encode_json,
    read_bytes,
    read_manifest,
    sha256,
)
from djepa.artefacts.store import locate, remote
from djepa.errors import DjepaError
from djepa.files import TEMPORARY, naming, write_atomically


class Writer:
    """Writes one folder, which it locks meanwhile."""

    def __init__(
        self,
        path: Path | str,
        kind: Kind,
        about: Mapping[str, Any] | None = None,
        made_from: Mapping[str, str] | None = None,
        alone: bool = True,
    ) -> None:
        """`alone`: whether the folder may hold nothing else; otherwise nothing is overwritten."""
        self.path, self.kind, self.alone = locate(path), kind, alone
        self.about, self.made_from = dict(about or {}), dict(made_from or {})
        self.pieces: list[Piece] = []
        self.complete = False

    @contextmanager
    def opened(self, names: tuple[str, ...] = (), fresh: bool = False) -> Iterator["Writer"]:
        """Lock the folder and verify finished files; unlock it at the end.

        `names`: files to be written, if others may be beside them; `fresh`: write all again.
        """
        self.claim(names)
        with locked(self.path):
            if fresh and (self.path / MANIFEST).exists():
                self.complete, self.pieces = True, [_finished(self.path, self.kind)]
            elif fresh:
                self.begin_again()
            else:
                self._resume()
            yield self

    def claim(self, names: tuple[str, ...] = ()) -> None:
        """Make the folder, and refuse one with foreign files; call it before long work."""
        with naming(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self._refuse_strangers(names)

    def begin_again(self) -> None:
        """Claim the folder as if it were empty, then remove its manifest."""
        write_atomically(self.path / BEGUN, encode_json(self.path / BEGUN, self._head()))
        (self.path / MANIFEST).unlink(missing_ok=True)
        clear(self.path / JOURNAL)
        self.complete, self.pieces = False, []

    @property
    def files(self) -> dict[str, str]:
        """Finished files: name -> SHA-256."""
        return {name: of for piece in self.pieces for name, of in piece.files.items()}

    def write(self, files: Mapping[str, bytes], note: Mapping[str, Any] | None = None) -> Piece:
        """Write files, then enter them in the journal."""
        for name, data in files.items():
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path / name, data)
        return self.enter(files, note)

    def enter(self, files: Mapping[str, bytes], note: Mapping[str, Any] | None = None) -> Piece:
        """Enter files that are already written in the journal."""
        hashes = {name: sha256(data) for name, data in files.items()}
        sizes = {name: len(data) for name, data in files.items()}
        piece = Piece(hashes, sizes, dict(note or {}))
        append(self.path / JOURNAL, piece, len(self.pieces))
        self.pieces.append(piece)
        return piece

    def withdraw(self, name: str) -> None:
        """Remove a file from the journal before it is rewritten, in an unfinished folder.

        If it is not rewritten, the next run finds it missing and makes it again.
        """
        assert not self.complete
        withdraw(self.path / JOURNAL, name)
        self.pieces = [piece for piece in self.pieces if name not in piece.files]

    def finish(self, about: Mapping[str, Any] | None = None) -> None:
        """Write the manifest, which does not depend on the order of completion, and tidy up."""
        sizes = {name: size for piece in self.pieces for name, size in piece.sizes.items()}
        manifest = {
            "format": self.kind.format,
            "version": self.kind.version,
            "files": self.files,
            "sizes": sizes,
            "about": dict(self.about if about is None else about),
            "made_from": self.made_from,
        }
        data = encode_json(self.path / MANIFEST, manifest)
        if not (self.complete and read_bytes(self.path / MANIFEST) == data):
            write_atomically(self.path / MANIFEST, data)
        self.tidy()

    def tidy(self) -> None:
        """Remove what only an unfinished folder needs."""
        clear(self.path / JOURNAL)
        (self.path / BEGUN).unlink(missing_ok=True)

    def _head(self) -> dict[str, Any]:
        head = {"format": self.kind.format, "version": self.kind.version}
        return {**head, "about": self.about, "made_from": self.made_from}

    def _resume(self) -> None:
        self.complete = (self.path / MANIFEST).exists()
        if self.complete:  # may be continued, if settings agree and files are undamaged
            there, _ = read_manifest(self.path, self.kind)
            of = {"format": there.format, "version": there.version, "made_from": there.made_from}
            self._compare({**of, "about": {name: there.about.get(name) for name in self.about}})
            self.pieces = [_finished(self.path, self.kind)]
            return
        self.pieces = list(pieces_of(self.path / JOURNAL))
        if self.pieces and (self.path / BEGUN).exists():
            theirs = decode(self.path / BEGUN, read_bytes(self.path / BEGUN), dict[str, Any])
            self._compare(theirs)
        write_atomically(self.path / BEGUN, encode_json(self.path / BEGUN, self._head()))
        self._check_finished()
        self._sweep()

    def _check_finished(self) -> None:
        """Check that finished files are unchanged; in a store only their sizes."""
        there = far.sizes() if (far := remote(self.path)) else None
        for piece in self.pieces:
            for name, expected in piece.files.items():
                if there is None:
                    read_checked(self.path / name, expected, piece.sizes.get(name), self.kind)
                else:
                    check_size(self.path / name, there.get(name), piece.sizes[name], self.kind)

    def _sweep(self) -> None:
        """Remove shards of our own that were written but never entered in the journal."""
        if not self.kind.shards:
            return
        own, known = re.compile(self.kind.shards + f"({re.escape(TEMPORARY)})?"), self.files
        with naming(self.path):
            for file in list(self.path.rglob("*")):
                name = file.relative_to(self.path).as_posix()
                if own.fullmatch(name) and name not in known:
                    file.unlink()

    def _refuse_strangers(self, names: tuple[str, ...]) -> None:
        """Refuse a folder that is neither empty nor marked as ours.

        A foreign mark, or a journal without our mark, is refused even in a folder that we finished:
        the mark would be overwritten, the journal removed.
        """
        if begins(self.path) == self.kind.format:
            return
        if finished := (self.path / MANIFEST).exists():
            read_manifest(self.path, self.kind)  # raises, naming the actual kind
        first = (LOCK, BEGUN + TEMPORARY)  # may remain after a kill at the beginning
        for file in self.path.iterdir():
            of_others = file.name == BEGUN or file.name.startswith(JOURNAL)
            in_our_way = not finished and (self.alone or file.name in names)
            if file.name not in first and (of_others or in_our_way):
                raise DjepaError(self._strange(file, finished))

    def _strange(self, file: Path, finished: bool) -> str:
        """The conflicting content, for a message."""
        name = f"{'an' if self.kind.name[0] in 'aeiou' else 'a'} {self.kind.name}"
        of = f" of {other}" if (other := begins(self.path)) and file.name == BEGUN else ""
        what = f"is {name}, but not all of it" if finished else f"is not empty and not {name}"
        return (
            f"{self.path} {what} (it holds {file.name}{of}). "
            "Nothing was changed; choose another --out."
        )

    def _compare(self, theirs: dict[str, Any]) -> None:
        ours, there = _flat(self._head()), _flat(theirs)
        if ours != there:
            keys = sorted(k for k in {*ours, *there} if ours.get(k) != there.get(k))
            changes = ", ".join(f"{k}: {there.get(k)} there, {ours.get(k)} asked" for k in keys)
            raise DjepaError(
                f"{self.path} holds a {self.kind.name} of another configuration ({changes}). "
                f"Nothing was changed. {self.kind.again}"
            )


def save(
    path: Path | str,
    kind: Kind,
    files: Mapping[str, bytes],
    about: Mapping[str, Any] | None = None,
    made_from: Mapping[str, str] | None = None,
    alone: bool = True,
    replace: bool = False,
) -> None:
    """Write a whole folder. A finished one is kept, unless it may be replaced."""
    writer = Writer(path, kind, about, made_from, alone)
    with writer.opened(tuple(files), fresh=True):
        if writer.complete and writer.files == {n: sha256(data) for n, data in files.items()}:
            writer.tidy()
            return
        if writer.complete and not replace:
            raise DjepaError(f"{path} holds a finished {kind.name} already. Choose another folder.")
        if writer.complete:
            writer.begin_again()
        writer.write(files)
        writer.finish()


def _finished(path: Path, kind: Kind) -> Piece:
    """All of a finished folder, every file verified."""
    folder = Folder(path, kind)
    sizes = folder.manifest.sizes
    if not (remote(path) and sizes):
        sizes = {name: len(folder.read(name)) for name in folder.manifest.files}
    return Piece(folder.manifest.files, sizes, folder.manifest.about)


def _flat(head: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that must agree between two runs of one folder, with flattened names."""
    found: dict[str, Any] = {}
    for name, value in json.loads(json.dumps(dict(head))).items():
        if name in ("about", "made_from", "config", "versions"):
            found |= _flat(value)
        else:
            found[name] = value
    return found
