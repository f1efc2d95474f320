"""Result rows: one per (pools, method, start), the source of every table, figure and page.

Stored as gzipped CSV without a time stamp, so that equal rows give equal bytes.
"""

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.errors import DjepaError
from djepa.files import write_atomically


@dataclass(frozen=True)
class Row:
    """The choice of one method at one start, and its outcome."""

    study: str  # such as pusht
    pools: str  # reference, decoy or planner
    method: str  # as the tables name it
    start: int  # its place in the bank
    identity: str  # first 16 hex digits of the start's identity
    eligible: bool  # by the study's rule: a start on which the decision matters
    chosen: int  # candidate ID; of an episode the controls until success, -1 without it
    success: bool
    cost: float  # task cost; success is cost < 1
    opened: bool  # the gate was open; the choice may still be the base's
    rule: str  # name and version of the success rule
    bank: str  # first 12 hex digits of the bank's hash
    checkpoint: str  # likewise of the fitted weights; empty where nothing was fitted


_KINDS = {field.name: str(getattr(field.type, "__name__", "str")) for field in fields(Row)}
_AS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": lambda text: bool(int(text)),
}


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """All rows to one file, booleans as 0 and 1."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(_KINDS)
    for row in rows:
        table.writerow([int(x) if isinstance(x, bool) else x for x in astuple(row)])
    write_atomically(path, gzip.compress(text.getvalue().encode(), mtime=0))


def read_rows(path: Path) -> list[Row]:
    """All rows of a file; an error names a file that is not of this format."""
    try:
        head, *lines = csv.reader(io.StringIO(gzip.decompress(path.read_bytes()).decode()))
        rows = _parse(lines) if head == list(_KINDS) else None
    except (OSError, EOFError, ValueError, TypeError, zlib.error) as error:
        raise DjepaError(f"{path} cannot be read as result rows: {error}.") from None
    if rows is None:
        raise DjepaError(f"{path} does not hold result rows of this version.")
    return rows


def successes(rows: Iterable[Row]) -> dict[str, npt.NDArray[np.bool_]]:
    """Method -> (N,) successes of the same starts in the same order; gaps are refused."""
    found: dict[str, dict[int, bool]] = {}
    for row in rows:
        of = found.setdefault(row.method, {})
        if row.start in of:
            raise DjepaError(f"Start {row.start} stands twice for {row.method}; filter by pools.")
        of[row.start] = row.success
    starts = {frozenset(of) for of in found.values()}
    if len(starts) > 1:
        raise DjepaError("Not all methods were run on the same starts.")
    return {name: np.array([of[s] for s in sorted(of)], bool) for name, of in found.items()}


def _parse(lines: list[list[str]]) -> list[Row]:
    """Column by column, which is many times faster than cell by cell."""
    columns = zip(*lines, strict=True) if lines else [() for _ in _KINDS]
    values = [map(_AS[kind], of) for kind, of in zip(_KINDS.values(), columns, strict=True)]
    return [Row(*cells) for cells in zip(*values, strict=True)]
