"""Edits that follow from the types of records and from the arrays there are; what was read, hashed.

A record is walked beside its type: msgspec structs, dataclasses, lists and dictionaries. Of lists
and dictionaries the first member stands for all.
"""

import copy
import hashlib
import json
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch import nn

from djepa.artefacts.folder import Folder

Edit = tuple[str, Any, bool]  # what was done where, the record after it, whether any value will do
Arrays = dict[str, np.ndarray[Any, Any]]
BOUND = ("hash", "hashes")  # fields that say which files were read, not what is in them
HUGE = {int: 2**62, float: 1e300}


# --------------------------------------------------------------------------------- of a record


def record_edits(value: Any, kind: Any) -> Iterator[Edit]:
    """Every field that is there: another type, nothing, lost, joined by another, beyond reason."""
    for path, label, found, of, optional in walk(value, kind):
        free = of is Any
        for name, other in _others(found, of, optional):
            yield f"{label}: {name}", _replaced(value, path, other), free
        if path and _in_record(value, path):
            yield f"{label}: missing", _replaced(value, path, _LOST), free
        if _is_record(of) and isinstance(found, dict):
            yield f"{label}: a field too many", _replaced(value, (*path, "trust"), "me"), False


_LOST: Any = object()
Path_ = tuple[str | int, ...]


def walk(
    value: Any, kind: Any, path: Path_ = (), optional: bool = False
) -> Iterator[tuple[Path_, str, Any, Any, bool]]:
    """(path, the same in words, value, type, whether it may be null) of everything in a record."""
    args = [of for of in typing.get_args(kind) if of is not type(None)]
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        kind, optional = (args[0] if len(args) == 1 else Any), type(None) in typing.get_args(kind)
        args = list(typing.get_args(kind))
    yield path, ".".join(map(str, path)), value, kind, optional
    if _is_record(kind) and isinstance(value, dict):
        known = typing.get_type_hints(kind)
        for name in sorted(value.keys() & known.keys()):
            yield from walk(value[name], known[name], (*path, name))
    elif isinstance(value, dict) and value:
        first, inner = next(iter(value)), args[1] if len(args) == 2 else Any
        yield from walk(value[first], inner, (*path, first))
    elif isinstance(value, list) and value:
        yield from walk(value[0], args[0] if args else Any, (*path, 0))


def _is_record(kind: Any) -> bool:
    known = isinstance(kind, type)
    named = known and issubclass(kind, tuple) and hasattr(kind, "_fields")
    return known and (is_dataclass(kind) or issubclass(kind, msgspec.Struct) or named)


def _in_record(value: Any, path: Path_) -> bool:
    """Whether the last step of the path is into an object: members of a list are not lost."""
    for step in path[:-1]:
        value = value[step]
    return isinstance(value, dict)


def _others(value: Any, kind: Any, optional: bool) -> Iterator[tuple[str, Any]]:
    """Other values of one field."""
    if value is not None and not optional:
        yield "null", None
    match value:
        case bool():
            yield from (("in words", "yes"), ("a number", 7))
        case int() | float():
            of = float if kind is float else type(value)
            yield from (("in words", str(value)), ("a list", [value]))
            yield from (("negative", -value - 1), ("huge", HUGE[of]))
        case str():
            yield from (("a number", 7), ("an object", {"a": value}))
        case list():
            yield from (("an object", {"0": value}), ("with null", [*value, None]))
        case dict():
            yield from (("a list", [value]), ("a number", 7))


def _replaced(value: Any, path: Path_, other: Any) -> Any:
    """The record with one field replaced, or lost."""
    if not path:
        return other
    found = at = copy.deepcopy(value)
    for step in path[:-1]:
        at = at[step]
    if other is _LOST:
        del at[path[-1]]
    else:
        at[path[-1]] = other
    return found


# --------------------------------------------------------------------------------- of arrays


def array_edits(arrays: Mapping[str, np.ndarray[Any, Any]]) -> Iterator[tuple[str, Arrays]]:
    """Arrays lost, renamed, one too many; of every type and rank one of other shapes and types."""
    arrays = dict(sorted(arrays.items()))
    first = next(iter(arrays))
    yield "an array too many", {**arrays, "trust": arrays[first]}
    yield "no arrays", {}
    seen = set[tuple[str, int]]()
    for name, array in arrays.items():
        rest = {n: a for n, a in arrays.items() if n != name}
        if len(arrays) < 40 or (array.dtype.name, array.ndim) not in seen:
            yield f"{name}: missing", rest
        if (array.dtype.name, array.ndim) not in seen:
            yield f"{name}: renamed", {**rest, f"{name}x": array}
            for what, other in _other_arrays(array):
                yield f"{name}: {what}", {**arrays, name: other}
        seen.add((array.dtype.name, array.ndim))


def _other_arrays(array: np.ndarray[Any, Any]) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    if array.ndim:
        yield "a row fewer", array[:-1]
        yield "a row too many", np.concatenate([array, array[-1:]])
        yield "no rows", array[:0]
        yield "flat", array.reshape(-1) if array.ndim > 1 else array[:, None]
    if array.ndim > 1:
        yield "a column fewer", array[:, :-1]
    if array.ndim > 1 and array.shape[0] != array.shape[1]:  # a square says not how it lies
        yield "turned", np.ascontiguousarray(array.swapaxes(0, 1))
    yield "one number", np.ascontiguousarray(array.reshape(-1)[0])
    for kind in ("uint8", "int64", "float16", "float64"):
        if kind != array.dtype.name:
            with np.errstate(all="ignore"):
                yield f"as {kind}", array.astype(kind)


# --------------------------------------------------------------------------------- what was read


def content(value: Any) -> str:
    """A hash of all numbers and words in whatever was read. How wide a number is says nothing."""
    digest = hashlib.sha256()
    for part in _parts(value):
        digest.update(part)
    return digest.hexdigest()


def _parts(value: Any) -> Iterator[bytes]:
    yield b"("
    match value:
        case torch.Tensor():
            yield from _parts(value.detach().cpu().numpy())
        case np.ndarray():
            wide = {"f": np.float64, "i": np.int64, "u": np.int64, "b": np.int64}
            same = np.ascontiguousarray(value.astype(wide.get(value.dtype.kind, value.dtype)))
            yield f"{value.dtype.kind in 'f'} {value.shape}".encode() + same.tobytes()
        case nn.Module():
            yield from _parts(dict(value.state_dict()))
            yield from _parts([getattr(value, n, "") for n in ("name", "config", "planning")])
        case Mapping():
            yield from _parts([[key, value[key]] for key in sorted(value)])
        case list() | tuple() | range():
            for one in value:
                yield from _parts(one)
        case msgspec.Struct():
            yield from _parts(msgspec.structs.asdict(value))
        case bool() | int() | float() | str() | None:
            yield json.dumps(value).encode()
        case Path() | Folder() | types.ModuleType():
            yield b"place"
        case _ if is_dataclass(value):
            yield from _parts(
                [getattr(value, f.name) for f in fields(value) if f.name not in BOUND]
            )
        case np.generic():
            yield from _parts(value.item())
        case _:
            yield repr(value).encode()
    yield b")"
