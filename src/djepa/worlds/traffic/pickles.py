"""Pickles of plain values and numpy arrays, read without running anything.

A pickle is a program. Its steps are interpreted one by one without calling anything it names: only
the names in CALLS are known, and arrays are read from bytes whose number was checked.
"""

import math
import pickletools
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from djepa.errors import DjepaError
from djepa.worlds.traffic.reading import MOST_BYTES

ONLY = "only numpy arrays and plain values are admitted"
TYPES = re.compile(r"b1|\?|[iu][1248]|f[248]|[SU]\d{1,6}")  # numbers, truth values, text
DEEPEST = 4  # dimensions of an array


class Plain:
    """Stands for a numpy type: numbers or text, never objects or fields."""

    def __init__(self, name: object, align: object = False, copy: object = True) -> None:
        if not isinstance(name, str) or not TYPES.fullmatch(name):
            raise DjepaError(f"it holds an array of a type that is not plain: {_shown(name)}")
        self.type = np.dtype(name)

    def fill(self, state: object) -> None:
        """Keep the byte order; subarrays, names, fields, other sizes and flags are refused."""
        match state:
            case (3, "<" | ">" | "|" | "=" as order, None, None, None, int(size), int(), 0 | 8) if (
                size in (-1, self.type.itemsize)
            ):
                self.type = self.type.newbyteorder(order)
            case _:
                raise DjepaError("it changes the type of an array to one that is not plain")


class Packed:
    """Stands for a numpy array of numbers or text."""

    def __init__(self, values: NDArray[Any]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def fill(self, state: object) -> None:
        """State: version, shape, type, are columns first, bytes."""
        match state:
            case (_, shape, kind, 0 | 1 as columns, data):
                self.values = _array(data, kind, shape, "F" if columns else "C").values
            case _:
                raise DjepaError("it holds an array in an unknown form")


def _array(data: object, kind: object, shape: object, order: object, axes: Any = None) -> Packed:
    """An array over bytes that are exactly as many as its shape and type need."""
    if not isinstance(kind, Plain) or not isinstance(data, bytes):
        raise DjepaError("it holds an array of objects")
    if not isinstance(shape, tuple) or len(shape) > DEEPEST:
        raise DjepaError(f"it holds an array of more than {DEEPEST} dimensions")
    whole = all(type(side) is int and 0 <= side <= MOST_BYTES for side in shape)
    if not whole or math.prod(shape) * kind.type.itemsize != len(data):
        raise DjepaError("it holds an array whose bytes do not fit its shape")
    values = np.frombuffer(data, kind.type).reshape(shape, order="F" if order == "F" else "C")
    return Packed(values if axes is None else values.transpose(axes))


def _scalar(kind: object, data: object) -> Any:
    """A Python number or text."""
    value = _array(data, kind, (), "C").values
    if value.dtype.kind != "U":
        return value.item()
    code = "utf-32-le" if value.dtype.isnative == (sys.byteorder == "little") else "utf-32-be"
    return value.tobytes().decode(code).rstrip("\0")


def _begun(*_: object) -> Packed:
    """An array that is filled later."""
    return Packed(np.zeros(0))


def _bytes(text: str, code: object) -> bytes:
    """Bytes as protocol 2 encodes them."""
    return text.encode("latin1")


def _items(items: Iterable[Any] = ()) -> list[Any]:
    """A set as a list, so that its items are not hashed."""
    return items if isinstance(items, list) else [*items]


CALLS: dict[str, Callable[..., Any]] = {
    "numpy.multiarray _reconstruct": _begun,
    "numpy.multiarray scalar": _scalar,
    "numpy.numeric _frombuffer": _array,
    "numpy dtype": Plain,
    "_codecs encode": _bytes,
    "collections defaultdict": lambda *_: {},
    "builtins set": _items,
    "builtins frozenset": _items,
    "builtins bytes": lambda: b"",
}
NAMED = {
    "numpy ndarray",
    "builtins int",
    "builtins long",
}  # arguments of the above; they are never called
ALIKE = ((re.compile(r"^numpy\._?core\."), "numpy."), (re.compile(r"^__builtin__ "), "builtins "))

LITERALS = {
    *("INT", "LONG", "LONG1", "LONG4", "BININT", "BININT1", "BININT2", "FLOAT", "BINFLOAT"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
EMPTY: dict[str, type] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_SET": list}
KEYS = (str, bytes, int, float, type(None))  # hashing deep tuples can crash the process


class Name(str):
    """A name of CALLS or NAMED, of a type that distinguishes it from texts of the pickle."""


class Steps:
    """Interpreter for pickles of dicts, lists, tuples, plain values and arrays of them."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.made = 0  # bytes

    def follow(self, data: bytes) -> Any:
        """Interpret `data` and return its value."""
        for step, value, _ in pickletools.genops(data):
            if step.name == "STOP":
                return self.stack.pop()
            self._one(step.name, value)
        raise DjepaError("it has no end")

    def _one(self, step: str, value: Any) -> None:
        if step in LITERALS:
            self.stack.append(bytes(value) if isinstance(value, bytearray) else value)
        elif step in CONSTANTS:
            self.stack.append(CONSTANTS[step])
        elif step in EMPTY:
            self.stack.append(EMPTY[step]())
        elif step == "MARK":
            self.marks.append(len(self.stack))
        elif step in {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}:
            self.memo[len(self.memo) if value is None else value] = self.stack[-1]
        elif step in {"GET", "BINGET", "LONG_BINGET"}:
            self.stack.append(self.memo[value])
        elif step not in {"PROTO", "FRAME"}:
            self._joined(step, value)

    def _joined(self, step: str, value: Any) -> None:
        """Perform steps that take values from the stack, and names."""
        match step:
            case "TUPLE" | "LIST" | "FROZENSET":
                items = self._last()
                self.stack.append(tuple(items) if step == "TUPLE" else items)
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                self.stack.append(tuple(self._last(int(step[-1]))))
            case "APPEND" | "APPENDS" | "ADDITEMS":
                items = self._last(1 if step == "APPEND" else None)
                self._top(list).extend(items)
            case "DICT":
                self.stack.append(_keyed(self._last()))
            case "SETITEM" | "SETITEMS":
                items = self._last(2 if step == "SETITEM" else None)
                self._top(dict).update(_keyed(items))
            case "GLOBAL":
                self.stack.append(_name(value))
            case "STACK_GLOBAL":
                self.stack.append(_name(" ".join(self._last(2))))
            case "REDUCE":
                name, given = self._last(2)
                if not isinstance(name, Name) or name not in CALLS:
                    raise DjepaError(f"it calls {_shown(name)}; {ONLY}")
                self.stack.append(self._made(CALLS[name](*given)))
            case "BUILD":
                (state,) = self._last(1)
                self._top(Plain, Packed).fill(state)
            case _:
                raise DjepaError(f"it takes the step {step}; {ONLY}")

    def _made(self, value: Any) -> Any:
        """Count the bytes of a new value: a few steps can repeat a long text many times."""
        self.made += len(value) if isinstance(value, str | bytes) else 0
        if self.made > MOST_BYTES:
            raise DjepaError(f"it unpacks to more than {MOST_BYTES >> 20} MiB")
        return value

    def _last(self, many: int | None = None) -> list[Any]:
        """Take `many` values from the stack; without a number, all since the last mark."""
        start = self.marks.pop() if many is None else len(self.stack) - many
        if start < 0:
            raise DjepaError("it takes more than it holds")
        taken = self.stack[start:]
        del self.stack[start:]
        return taken

    def _top(self, *kinds: type) -> Any:
        if not isinstance(self.stack[-1], kinds):
            raise DjepaError("it changes something that is no dict, list or array")
        return self.stack[-1]


def _shown(value: object) -> str:
    return value[:40] if isinstance(value, str) else type(value).__name__


def _keyed(items: list[Any]) -> dict[Any, Any]:
    """Key, value, key, value ... as a dict."""
    if not all(isinstance(key, KEYS) for key in items[::2]):
        raise DjepaError("a key is neither text nor a number")
    return dict(zip(items[::2], items[1::2], strict=True))


def _name(name: str) -> Name:
    """One name for what numpy 1 and 2, Python 2 and 3 name differently."""
    known = name
    for pattern, usual in ALIKE:
        known = pattern.sub(usual, known)
    if known not in CALLS and known not in NAMED:
        raise DjepaError(f"it asks for {name.replace(' ', '.')[:80]}; {ONLY}")
    return Name(known)
