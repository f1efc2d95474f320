"""Files that a command writes: made anew if they are of our own kind, else left alone.

A kind is known by what its files hold: a mark near either end, or the names at the top of a JSON.
An empty file holds nothing that could be lost.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from djepa.artefacts.records import LARGEST, decode, read_bytes
from djepa.artefacts.store import locate, remote
from djepa.errors import DjepaError
from djepa.files import naming

NEAR = 2**16  # bytes from either end in which a mark stands
Ours = Callable[[Path], bool]  # whether a file that is there is of our own kind


def claim_file(path: Path | str, ours: Ours) -> None:
    """Make the folder of a file, and refuse to write over somebody's; ask before long work."""
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
    """Files that hold these bytes near their beginning or their end."""
    return lambda file: any(mark in part for part in _ends(file))


def named(*names: str) -> Ours:
    """JSON files with these names at the top, or in the first entry of their list."""
    return lambda file: {*names} <= _top(file)


JSON_OF = {
    "audit": named("name", "choices"),
    "bench": named("options", "rows"),
    "control": named("list_hash", "planner"),
    "pools": named("by_family", "choosers"),
}
DECISIONS = marked(b'"format": "djepa-decisions"')
PICTURES = {".png": marked(b"Software\0djepa"), ".svg": marked(b"<dc:title>djepa</dc:title>")}
GRAPH = marked(b"\x05djepa")  # the producer of an ONNX file, a string of five letters


def claim_figure(path: Path | str) -> None:
    """The same for a picture; one whose suffix we do not draw is refused by whoever draws it."""
    claim_file(path, PICTURES.get(locate(path).suffix, lambda file: False))


def metadata_of(suffix: str) -> dict[str, Any]:
    """What our pictures say of themselves, by which they are known; no date."""
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
    """Names at the top of a JSON file, none of another file."""
    try:
        value = decode(file, read_bytes(file, LARGEST), Any)
    except DjepaError:
        return set()
    one = value[0] if isinstance(value, list) and value else value
    return {*one} if isinstance(one, dict) else set()
