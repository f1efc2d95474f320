"""Data that other programs wrote: errors of their libraries, and checks that all readers share.

Libraries raise errors of many types for a damaged file, and none of them names what to look at.
`reading` turns each into a DjepaError that names the file. Metadata are decoded by
`djepa.artefacts.records` into typed records of the fields that are needed; a foreign format may
have others.

Legend: T frames of an episode, A action width.
"""

import io
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image

from djepa.artefacts.records import is_inside
from djepa.errors import DjepaError

LONGEST = 200  # characters of a library's message
T = TypeVar("T")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn every error of a library into one that names the file; put only its calls inside."""
    try:
        yield
    except (DjepaError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # damage can show as any type; a panic in Rust is no Exception
        said = " ".join(str(error).split())[:LONGEST]
        raise DjepaError(
            f"{path} cannot be read: it is damaged or of another make "
            f"({type(error).__name__}: {said})."
        ) from error


def guarded(path: Path, items: Iterable[T]) -> Iterator[T]:
    """The items, each one taken while `reading`."""
    source, end = iter(items), object()
    while True:
        with reading(path):
            item: Any = next(source, end)
        if item is end:
            return
        yield item


def check_columns(path: Path, wanted: Iterable[str], known: Collection[str]) -> None:
    """Refuse a file that lacks a wanted column, and say which ones it has."""
    if missing := [name for name in wanted if name not in known]:
        raise DjepaError(f"{path} has no {', '.join(missing)}; it has {', '.join(known)}.")


def inside(folder: Path, name: str) -> Path:
    """A file that metadata name; it must lie in the folder."""
    if not is_inside(name):
        raise DjepaError(f"{folder} is damaged: it names the file '{name}', which lies elsewhere.")
    return folder / name


def to_controls(path: Path, rows: Any) -> npt.NDArray[np.float32]:
    """(T, A) from T rows of equally many numbers; numbers beyond float32 become infinite."""
    try:
        array = np.asarray(rows)
    except ValueError:  # rows of different lengths
        array = np.empty(0, object)
    if array.dtype.kind not in "biuf" or not array.size:
        raise DjepaError(f"{path}: controls must be equally many numbers at every step.")
    with np.errstate(over="ignore"):
        return array.reshape(len(array), -1).astype(np.float32)


def to_frames(path: Path, pictures: Iterable[bytes]) -> npt.NDArray[np.uint8]:
    """(T, height, width, 3) from compressed pictures of one size."""
    with reading(path):
        frames = [np.asarray(Image.open(io.BytesIO(one)).convert("RGB")) for one in pictures]
    if len({frame.shape for frame in frames}) != 1:
        raise DjepaError(f"{path}: the frames of an episode must have one size.")
    return np.stack(frames)
