"""stable-worldmodel's HDF5 files: a data set per column, all episodes concatenated.

`ep_len` and `ep_offset` give the rows of an episode; the columns `pixels` (n, height, width, 3) and
`action` (n, A) are read.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from djepa.errors import DjepaError, MissingExtraError
from djepa.interop.foreign import check_columns, reading, to_controls
from djepa.interop.recorded import Columns, RecordedEpisode


def read_hdf5(path: Path, columns: Columns) -> Iterator[RecordedEpisode]:
    """Episode after episode of one file."""
    try:
        import h5py
    except ImportError as error:
        raise MissingExtraError("Reading HDF5", "recorded") from error
    with suppress(ImportError):
        import hdf5plugin  # noqa: F401  # compressed files need its filters
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise DjepaError(f"{path} is no HDF5 file: {error}") from error
    with file:
        wanted = ("ep_len", "ep_offset", columns.pixels or "pixels", columns.action)
        check_columns(path, wanted, list(file))
        lengths, offsets, pixels, action = (_column(path, file, name) for name in wanted)
        if len(pixels) != len(action):
            raise DjepaError(f"{path} has {len(pixels)} frames and {len(action)} controls.")
        for rows in _episodes(path, lengths, offsets, len(pixels)):
            with reading(path):
                frames, controls = np.asarray(pixels[rows]), np.asarray(action[rows])
            if frames.ndim == 4 and frames.shape[1] == 3 != frames.shape[-1]:
                frames = frames.transpose(0, 2, 3, 1)  # channels first
            yield RecordedEpisode(frames, to_controls(path, controls))


def _column(path: Path, file: Any, name: str) -> Any:
    """A data set of at least one axis; a group or a single number is refused."""
    with reading(path):
        found = file[name]
        if not getattr(found, "shape", ()):
            raise DjepaError(f"{path}: {name} is no data set with a row per step or episode.")
        return found


def _episodes(path: Path, lengths: Any, offsets: Any, steps: int) -> list[slice]:
    """Rows of every episode, which must lie in the file and apart."""
    with reading(path):
        length, begin = np.asarray(lengths[:]), np.asarray(offsets[:])
    whole = all(array.dtype.kind in "iu" for array in (length, begin))
    if not whole or length.ndim != 1 or length.shape != begin.shape:
        raise DjepaError(f"{path}: ep_len and ep_offset must be one integer per episode.")
    found = [slice(a, a + n) for a, n in zip(begin.tolist(), length.tolist(), strict=True)]
    end = 0
    for rows in sorted(found, key=lambda rows: rows.start):
        if not (0 <= rows.start < rows.stop <= steps) or rows.start < end:
            raise DjepaError(
                f"{path}: an episode is said to have rows {rows.start} to {rows.stop}; they must "
                f"be among the {steps} rows, and of no other episode."
            )
        end = rows.stop
    return found
