"""Kinds of folders and the records in them, decoded strictly."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import msgspec

from djepa.errors import DjepaError
from djepa.files import to_json

MANIFEST, BEGUN, JOURNAL, LOCK = "manifest.json", "begun.json", "journal.jsonl", ".lock"
LARGEST = 256 * 2**20  # bytes of a JSON file: 100,000 starts need some 40 MB
T = TypeVar("T")


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `manifest.json` says."""

    format: str
    version: int
    files: dict[str, str]  # name -> SHA-256
    sizes: dict[str, int] = {}  # name -> bytes; folders of earlier versions do not say
    about: dict[str, Any] = {}
    made_from: dict[str, str] = {}  # what -> its hash


class _Head(msgspec.Struct):
    """All that every version of every folder says of itself."""

    format: str
    version: int = msgspec.field(default=1)


@dataclass(frozen=True)
class Kind:
    """One kind of folder."""

    name: str  # in messages
    format: str
    version: int  # that is written
    about: type = dict  # the record that `about` of the manifest is
    reads: tuple[int, ...] = ()  # earlier versions that can be read too
    shards: str = ""  # pattern of files that come in any number; those not finished are swept
    again: str = "Restore it from a copy, or make it again in another folder."
    records: Mapping[str, type] = field(default_factory=dict)  # its JSON files and what they are

    def check(self, path: Path, format: str, version: int) -> None:
        """Refuse a folder of another kind or of a version that is not read."""
        if format != self.format or version not in (self.version, *self.reads):
            raise DjepaError(
                f"{path.parent} is {format} {version}; this version reads {self.format} "
                f"{self.version}. {self.again}"
            )


def sha256(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def decode(path: Path, data: bytes, kind: type[T]) -> T:
    """JSON -> a record of that type, nothing missing and nothing else in it."""
    if len(data) > LARGEST:
        raise DjepaError(f"{path} is damaged: {len(data)} bytes are too many for such a file.")
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DjepaError(f"{path} is damaged: it is not JSON ({error}).") from None
    return typed(path, value, kind)


def typed(path: Path, value: Any, kind: type[T]) -> T:
    """What JSON gave -> a record of that type. A field that the type does not have is refused."""
    try:
        _refuse_unknown(value, kind)
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise DjepaError(f"{path} is damaged or of another make: {error}.") from None


def _refuse_unknown(value: Any, kind: Any) -> None:
    """The library ignores fields that a dataclass does not have; we do not."""
    if isinstance(kind, type) and isinstance(value, dict) and is_dataclass(kind):
        known = {f.name: f.type for f in fields(kind)}
        for name in value.keys() - known.keys():
            raise msgspec.ValidationError(f"unknown field `{name}`")
    elif isinstance(kind, type) and isinstance(value, dict) and issubclass(kind, msgspec.Struct):
        known = {f.name: f.type for f in msgspec.structs.fields(kind)}
    else:
        return
    for name, inner in known.items():
        _refuse_unknown(value.get(name), inner)


def encode_json(path: Path, value: Any) -> bytes:
    """A record as it is written; numbers that JSON does not have are refused."""
    try:
        return to_json(value, strict=True).encode()
    except ValueError:
        raise DjepaError(f"{path} would hold a NaN or an infinity; nothing was written.") from None


def read_manifest(folder: Path, kind: Kind) -> tuple[Manifest, str]:
    """The manifest of a finished folder and its hash."""
    path = folder / MANIFEST
    if not folder.is_dir():
        raise DjepaError(f"There is no {kind.name} at {folder}: no such folder.")
    if not path.is_file():
        if begins(folder) == kind.format:
            raise DjepaError(
                f"The {kind.name} at {folder} is not finished. Run the command that began it again."
            )
        raise DjepaError(f"{folder} holds no finished {kind.name}: it has no {MANIFEST}.")
    data = read_bytes(path, LARGEST)
    raw = decode(path, data, dict[str, Any])
    head = typed(path, {"version": raw.get("schema", 1), **raw}, _Head)
    kind.check(path, head.format, head.version)
    manifest = typed(path, raw, Manifest)
    typed(path, manifest.about, kind.about)
    for name in manifest.files:
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or ".." in parts or "\0" in name:
            raise DjepaError(f"{path} is damaged: it lists '{name}', which lies elsewhere.")
    if manifest.sizes and manifest.sizes.keys() != manifest.files.keys():
        raise DjepaError(f"{path} is damaged: sizes and hashes are not of the same files.")
    return manifest, sha256(data)


def folder_hash(folder: Path) -> str:
    """SHA-256 of the manifest: it stands for everything in a folder of whatever kind."""
    return sha256(read_bytes(folder / MANIFEST))


def begins(folder: Path) -> str:
    """The format of what was begun in a folder, or nothing."""
    try:
        return decode(folder / BEGUN, (folder / BEGUN).read_bytes(), _Head).format
    except (OSError, DjepaError):
        return ""


def read_bytes(path: Path, most: int | None = None) -> bytes:
    """All of a plain file, if it is not too large."""
    try:
        if path.exists() and not path.is_file():
            raise DjepaError(f"{path} is damaged: it is no plain file.")
        if most is not None and path.stat().st_size > most:
            raise DjepaError(f"{path} is damaged: it is too large for such a file.")
        return path.read_bytes()
    except OSError as error:
        raise DjepaError(f"Cannot read {path}: {error.strerror}.") from None
