"""Layouts of the files of a folder: names, types and shapes of their arrays.

A layout gives for every array its types and its axes, one word per axis. A number is a length, a
letter is the same length wherever it occurs, `*` is any length.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from djepa.artefacts.folder import Arrays, Folder
from djepa.artefacts.records import MANIFEST
from djepa.errors import DjepaError

Layout = Mapping[str, tuple[str, str]]  # array -> types, axes
ANY = "*"


def check_layout(
    path: Path,
    arrays: Arrays,
    layout: Layout,
    sizes: Mapping[str, int] | None = None,
    again: str = "",
) -> dict[str, int]:
    """Refuse arrays that do not match a layout. Returns the lengths of all letters.

    `sizes` are lengths known before; the others must not be 0. `again`: advice in the error.
    """
    known = dict(sizes or {})
    if odd := sorted({*arrays} ^ {*layout}):
        names = ", ".join(odd)
        raise DjepaError(f"{path}: missing or foreign arrays: {names}. {again}".rstrip())
    for name, (types, axes) in layout.items():
        array, words = arrays[name], axes.split()
        fits = array.dtype.name in types.split() and array.ndim == len(words)
        if not fits or not all(map(_fits, words, array.shape, [known] * len(words))):
            wanted = " ".join(_said(word, known) for word in words)
            raise DjepaError(
                f"{path}: '{name}' is {array.dtype} {array.shape}; {types} ({wanted}) is needed. "
                f"{again}".rstrip()
            )
    return known


def _said(word: str, known: Mapping[str, int]) -> str:
    """An axis, for a message."""
    length = known.get(word)
    return word if length is None else f"{word} above 0" if length < 0 else f"{word}={length}"


def _fits(word: str, length: int, known: dict[str, int]) -> bool:
    """Whether an axis has the required length; a new letter is added to `known`."""
    if word == ANY or word.isdigit():
        return word == ANY or length == int(word)
    return length == known.setdefault(word, length or -1)


def check_blocks(folder: Folder, patterns: Sequence[str], blocks: int) -> None:
    """Refuse a manifest that does not list exactly the files of `blocks` blocks."""
    files = folder.manifest.files
    if len(files) != blocks * len(patterns) or any(
        pattern.format(block) not in files for pattern in patterns for block in range(blocks)
    ):
        raise DjepaError(
            f"{folder.path / MANIFEST} does not list the shards of its configuration. "
            f"{folder.kind.again}"
        )
