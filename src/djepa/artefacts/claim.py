"""Files that a command writes: overwritten if they are of the same kind, else left unchanged.

The content of a file identifies its kind: a mark near either end, or the top-level names of a JSON
file. An empty file may be overwritten.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from djepa.artefacts.records import LARGEST, decode, read_bytes
from djepa.artefacts.store import locate, remote
from djepa.errors import DjepaError
from djepa.files import naming

NEAR = 2**16  # bytes from either end in which a mark is searched
Ours = Callable[[Path], bool]  # whether an existing file is of the same kind


def claim_file(path: Path | str, ours: Ours) -> None:
    """Make the folder of a file, and refuse to overwrite a file of another kind.

    Call it before long work.
    """
    file = locate(path)
    with naming(file):
        file.parent.mkdir(parents=True, exist_ok=True)
    if file.is_dir():
        raise DjepaError(f"Cannot write {file}: it is a folder. Name a file.")
    if file.exists() and file.stat().st_size and not ours(file):
        raise DjepaError(
            f"{file} is there already, and is nothing that this command writes. "
            "Nothing was changed; move that file away or name another one."
        )


def marked(mark: bytes) -> Ours:
    """A test for files with these bytes near their beginning or their end."""
    return lambda file: any(mark in part for part in _ends(file))


def named(*names: str) -> Ours:
    """A test for JSON files with these top-level names, or with them in the first list entry."""
    return lambda file: {*names} <= _top(file)


JSON_OF = {
    "audit": named("name", "choices"),
    "bench": named("options", "rows"),
    "control": named("list_hash", "planner"),
    "pools": named("by_family", "choosers"),
}
DECISIONS = marked(b'"format": "djepa-decisions"')
PICTURES = {".png": marked(b"Software\0djepa"), ".svg": marked(b"<dc:title>djepa</dc:title>")}
AUDITED = "djepa audit"  # the maker of its pages
PAGE = marked(f'<meta name="generator" content="{AUDITED}">'.encode())
GRAPH = marked(b"\x05djepa")  # the producer of an ONNX file, a string of five letters


def claim_figure(path: Path | str) -> None:
    """`claim_file` for a picture; the drawing function refuses unknown suffixes."""
    claim_file(path, PICTURES.get(locate(path).suffix, lambda file: False))


def metadata_of(suffix: str) -> dict[str, Any]:
    """Metadata that identify our pictures; no date."""
    return {"Software": "djepa"} if suffix == ".png" else {"Creator": "djepa", "Date": None}


def _ends(file: Path) -> tuple[bytes, ...]:
    if remote(file):  # a store is read whole
        data = file.read_bytes()
        return data[:NEAR], data[-NEAR:]
    with naming(file), file.open("rb") as opened:
        first = opened.read(NEAR)
        opened.seek(max(0, file.stat().st_size - NEAR))
        return first, opened.read(NEAR)


def _top(file: Path) -> set[str]:
    """Top-level names of a JSON file; empty for another file."""
    try:
        value = decode(file, read_bytes(file, LARGEST), Any)
    except DjepaError:
        return set()
    one = value[0] if isinstance(value, list) and value else value
    return {*one} if isinstance(one, dict) else set()
