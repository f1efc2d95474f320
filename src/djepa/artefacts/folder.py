"""Read a finished folder and verify that every listed file exists, whole and unchanged."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
import safetensors
from safetensors.numpy import load, save

from djepa.artefacts.records import (
    LARGEST,
    MANIFEST,
    Kind,
    decode,
    encode_json,
    read_bytes,
    read_manifest,
    sha256,
    typed,
)
from djepa.artefacts.store import locate, remote
from djepa.errors import DjepaError

if TYPE_CHECKING:
    from torch import Tensor

Arrays = dict[str, npt.NDArray[Any]]
SEAL = "record"  # the one key of a sealed shard's metadata: the order of several is random
T = TypeVar("T")


class Folder:
    """A finished artefact, its manifest checked; files are verified as they are read."""

    def __init__(self, path: Path | str, kind: Kind) -> None:
        self.path, self.kind = locate(path), kind
        self.manifest, self.hash = read_manifest(self.path, kind)
        self._whole = self.manifest.version == kind.version  # earlier versions may lack fields
        about = self.manifest.about
        self.about: Any = typed(self.path / MANIFEST, about, kind.about, self._whole)
        there = far.sizes() if (far := remote(self.path)) else None
        for name in self.manifest.files:
            size = self.manifest.sizes.get(name)
            if there is None:
                check_there(self.path / name, size, kind)
            else:
                check_size(self.path / name, there.get(name), size, kind)

    def read(self, name: str) -> bytes:
        """The verified bytes of one listed file."""
        if name not in self.manifest.files:
            raise DjepaError(f"{self.path / MANIFEST} does not list {name}. {self.kind.again}")
        return read_checked(self.path / name, self.manifest.files[name], None, self.kind)

    def json(self, name: str, kind: type[T]) -> T:
        """A listed JSON file as a record of that type."""
        return decode(self.path / name, self.read(name), kind, self._whole)

    def record(self, name: str) -> Any:
        """A listed JSON file as the record type that its kind of folder declares."""
        return self.json(name, self.kind.records[name])

    def tensors(self, name: str) -> "dict[str, Tensor]":
        """A listed safetensors file."""
        return load_tensors(self.path / name, self.read(name))

    def verify(self) -> None:
        """Verify every file."""
        for name in self.manifest.files:
            self.read(name)

    def belongs(self, what: str, expected: str) -> None:
        """Raise unless the folder was made from `what` with the expected hash."""
        there = self.manifest.made_from.get(what)
        if there != expected:
            raise DjepaError(
                f"{self.path} was made from {what} {str(there)[:12]}, not from {expected[:12]}. "
                "These parts do not belong together; make it again from those that are used."
            )


def check_there(path: Path, size: int | None, kind: Kind) -> None:
    """Refuse a file that is missing or of another size."""
    check_size(path, path.stat().st_size if path.is_file() else None, size, kind)


def check_size(path: Path, found: int | None, size: int | None, kind: Kind) -> None:
    """Raise if the file is missing (`found` is None) or has another size than was written."""
    if found is None:
        raise DjepaError(f"{path} is missing, though it was finished. {kind.again}")
    if size is not None and found != size:
        raise DjepaError(
            f"{path} is cut short or altered: {found} bytes, {size} were written. {kind.again}"
        )


def read_checked(path: Path, expected: str, size: int | None, kind: Kind) -> bytes:
    """The bytes of a file; an error unless size and hash are as written."""
    check_there(path, size, kind)
    if sha256(data := read_bytes(path)) != expected:
        raise DjepaError(
            f"{path} is damaged: its SHA-256 is not the one that was written. {kind.again}"
        )
    return data


def encode(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Arrays -> safetensors; the library would write views in the order of their memory."""
    return bytes(save({name: np.ascontiguousarray(a) for name, a in arrays.items()}))


def load_arrays(path: Path, data: bytes) -> Arrays:
    """Safetensors -> arrays."""
    return _loaded(path, data, load)


def stacked(path: Path, parts: Iterable[Arrays], rows: int) -> Arrays:
    """Concatenate arrays of several shards along axis 0, `rows` rows in total.

    Only one shard at a time is in memory beside the result.
    """
    found, at = dict[str, npt.NDArray[Any]](), 0
    for part in parts:
        known = {name: (a.dtype, a.shape[1:]) for name, a in part.items()}
        found = found or {n: np.empty((rows, *shape), of) for n, (of, shape) in known.items()}
        size = {len(a) for a in part.values()}
        if known != {name: (a.dtype, a.shape[1:]) for name, a in found.items()} or len(size) != 1:
            raise DjepaError(f"{path} is damaged: its shards do not hold the same arrays.")
        end = at + size.pop()
        for name, array in part.items():
            if end <= rows:
                found[name][at:end] = array
        at = end
    if at != rows:
        raise DjepaError(f"{path} is damaged: its shards hold {at} starts, not {rows}.")
    return found


def load_tensors(path: Path, data: bytes) -> "dict[str, Tensor]":
    """Safetensors -> tensors."""
    from safetensors.torch import load as load_torch

    return _loaded(path, data, load_torch)


def _loaded(path: Path, data: bytes, how: Callable[[bytes], dict[str, T]]) -> dict[str, T]:
    try:
        return dict(how(data))
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise DjepaError(f"{path} is not a complete safetensors file ({error}).") from None


def seal_shard(path: Path, arrays: Arrays, record: Mapping[str, Any]) -> bytes:
    """Bytes of a self-contained file: arrays, their record, and the hash of both."""
    stored = {**record, "sha256": _digest(arrays, record)}
    text = encode_json(path, stored).decode()
    whole = {n: np.asarray(a, order="C") for n, a in arrays.items()}  # keeps scalars 0-dimensional
    return bytes(save(whole, {SEAL: text}))


def read_shard(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Verified arrays of a sealed file, and its record."""
    arrays = load_arrays(path, data := read_bytes(path))
    stored = _sealed(path, data)
    expected = stored.pop("sha256", None)
    if expected != _digest(arrays, stored):
        raise DjepaError(f"{path} is damaged. Remove it, and it is made again.")
    return arrays, stored


def open_shard(path: Path, record: Mapping[str, Any]) -> Arrays:
    """Verified arrays of a sealed file; an error if its record is another one."""
    arrays, stored = read_shard(path)
    if stored != dict(record):
        raise DjepaError(f"{path} holds {stored}, not {dict(record)}. Choose another folder.")
    return arrays


def shard_record(path: Path) -> dict[str, Any]:
    """The record of a sealed file. Its arrays are not read, so nothing is verified."""
    try:
        with path.open("rb") as file:
            size = file.read(8)
            data = size + file.read(min(LARGEST, int.from_bytes(size, "little")))
    except OSError as error:
        raise DjepaError(f"Cannot read {path}: {error.strerror}.") from None
    return _sealed(path, data)


def _sealed(path: Path, data: bytes) -> dict[str, Any]:
    """The record in the head of a safetensors file: eight bytes of length, then JSON."""
    head = decode(path, data[8 : 8 + int.from_bytes(data[:8], "little")], dict[str, Any])
    there = head.get("__metadata__", {}).get(SEAL)
    if there is None:
        raise DjepaError(f"{path} does not say what it holds. Remove it, and it is made again.")
    return decode(path, there.encode(), dict[str, Any])


def _digest(arrays: Arrays, record: Mapping[str, Any]) -> str:
    head = [f"{name} {a.dtype} {a.shape}" for name, a in sorted(arrays.items())]
    parts = [np.ascontiguousarray(a).tobytes() for _, a in sorted(arrays.items())]
    return sha256(encode_json(Path(), [dict(record), head]) + b"".join(parts))
