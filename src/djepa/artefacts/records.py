"""Kinds of folders and the records in them, decoded strictly."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from itertools import repeat
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from djepa.errors import DjepaError
from djepa.files import to_json

MANIFEST, BEGUN, JOURNAL, LOCK = "manifest.json", "begun.json", "journal.jsonl", ".lock"
LARGEST = 256 * 2**20  # bytes of a JSON file: 100,000 starts need some 40 MB
T = TypeVar("T")


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of `manifest.json`."""

    format: str
    version: int
    files: dict[str, str]  # name -> SHA-256
    sizes: dict[str, int] = {}  # name -> bytes; absent in earlier versions
    about: dict[str, Any] = {}
    made_from: dict[str, str] = {}  # input -> its hash


class _Head(msgspec.Struct):
    """The fields that every version of every folder has."""

    may_lack = ("version",)  # absent in the first one

    format: str
    version: int = msgspec.field(default=1)


@dataclass(frozen=True)
class Kind:
    """One kind of folder."""

    name: str  # in messages
    format: str
    version: int  # that new folders have
    about: type = dict  # type of `about` in the manifest
    reads: tuple[int, ...] = ()  # earlier versions that can also be read
    shards: str = ""  # pattern of files of which there is any number; unfinished ones are removed
    again: str = "Restore it from a copy, or make it again in another folder."
    records: Mapping[str, type] = field(default_factory=dict)  # JSON file -> its type
    bare: bool = False  # its manifest only lists files

    def check(self, path: Path, format: str, version: int) -> None:
        """Refuse a folder of another kind or of an unreadable version."""
        if format != self.format or version not in (self.version, *self.reads):
            raise DjepaError(
                f"{path.parent} is {format} {version}; this version reads {self.format} "
                f"{self.version}. {self.again}"
            )


def sha256(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def decode(path: Path, data: bytes, kind: type[T], whole: bool = True) -> T:
    """JSON -> a record of that type with exactly its fields; see `typed`."""
    if len(data) > LARGEST:
        raise DjepaError(f"{path} is damaged: {len(data)} bytes are too many for such a file.")
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DjepaError(f"{path} is damaged: it is not JSON ({error}).") from None
    return typed(path, value, kind, whole)


def typed(path: Path, value: Any, kind: type[T], whole: bool = True) -> T:
    """Decoded JSON -> a record of that type. Unknown and missing fields are refused.

    Defaults are for programs, not for files: only fields in `may_lack` of a type may be absent,
    such as a field that is newer than existing folders. `whole` is False for an earlier version or
    for another program's file: either may omit fields with a default.
    """
    try:
        _check_fields(value, kind, whole)
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise DjepaError(f"{path} is damaged or of another make: {error}.") from None


def _check_fields(value: Any, kind: Any, whole: bool) -> None:
    """Refuse unknown and missing fields, which the library ignores or fills in for dataclasses."""
    if not _holds_records(kind):
        return
    if get_args(kind):
        for one, inner in _members(value, kind):
            _check_fields(one, inner, whole)
    elif isinstance(value, dict):
        known = _fields(kind)
        if is_dataclass(kind) and (odd := sorted(value.keys() - known.keys())):
            raise msgspec.ValidationError(f"unknown field `{odd[0]}`")
        lost = sorted(known.keys() - value.keys() - {*getattr(kind, "may_lack", ())})
        if whole and lost:
            raise msgspec.ValidationError(f"missing field `{lost[0]}`")
        for name in known.keys() & value.keys():
            _check_fields(value[name], known[name], whole)


def _members(value: Any, kind: Any) -> Iterator[tuple[Any, Any]]:
    """Members of a list or a dictionary with their types; or a value of a union with its types."""
    args, of = get_args(kind), get_origin(kind)
    if of is dict:
        yield from ((one, args[1]) for one in value.values()) if isinstance(value, dict) else ()
    elif of in (list, tuple):
        kinds = repeat(args[0]) if of is list or args[-1] is Ellipsis else args
        members = value if isinstance(value, list | tuple) else ()
        yield from zip(members, kinds, strict=False)  # their number is checked later
    else:
        yield from ((value, one) for one in args)


@cache
def _holds_records(kind: Any) -> bool:
    """Whether a type is or contains a record; other parts of a large file need no check."""
    is_record = isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, msgspec.Struct))
    return is_record or any(map(_holds_records, get_args(kind)))


@cache
def _fields(kind: Any) -> dict[str, Any]:
    """Fields of a record and their types."""
    known = get_type_hints(kind)
    every = fields(kind) if is_dataclass(kind) else msgspec.structs.fields(kind)
    return {of.name: known[of.name] for of in every}


def encode_json(path: Path, value: Any) -> bytes:
    """A record as JSON; NaN and infinity are refused."""
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
    whole = head.version == kind.version  # earlier ones may lack fields
    manifest = typed(path, raw, Manifest, whole and not kind.bare)
    typed(path, manifest.about, kind.about, whole)
    for name in manifest.files:
        if not is_inside(name):
            raise DjepaError(f"{path} is damaged: it lists '{name}', which lies elsewhere.")
    if manifest.sizes and manifest.sizes.keys() != manifest.files.keys():
        raise DjepaError(f"{path} is damaged: sizes and hashes are not of the same files.")
    return manifest, sha256(data)


def is_inside(name: str) -> bool:
    """Whether the name of a file, as metadata give it, stays in their folder."""
    parts = PurePosixPath(name).parts
    return bool(parts) and not name.startswith("/") and ".." not in parts and "\0" not in name


def folder_hash(folder: Path) -> str:
    """SHA-256 of the manifest, which identifies the whole content of a folder."""
    return sha256(read_bytes(folder / MANIFEST))


def begins(folder: Path) -> str:
    """The format of an unfinished folder, or an empty string."""
    try:
        return decode(folder / BEGUN, (folder / BEGUN).read_bytes(), _Head).format
    except (OSError, DjepaError):
        return ""


def read_bytes(path: Path, most: int | None = None) -> bytes:
    """The bytes of a regular file; an error if it is too large."""
    try:
        if path.exists() and not path.is_file():
            raise DjepaError(f"{path} is damaged: it is no plain file.")
        if most is not None and path.stat().st_size > most:
            raise DjepaError(f"{path} is damaged: it is too large for such a file.")
        return path.read_bytes()
    except OSError as error:
        raise DjepaError(f"Cannot read {path}: {error.strerror}.") from None
