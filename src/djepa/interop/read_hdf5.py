"""stable-worldmodel's HDF5 files: a data set per column, all episodes concatenated.

`ep_len` and `ep_offset` give the rows of an episode; the columns `pixels` (n, height, width, 3) and
`action` (n, A) are read.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from djepa.errors import DjepaError, MissingExtraError
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
        if missing := [name for name in wanted if name not in file]:
            raise DjepaError(f"{path} has no {', '.join(missing)}; it has {', '.join(file)}.")
        lengths, offsets, pixels, action = (file[name] for name in wanted)
        for length, begin in zip(lengths[:], offsets[:], strict=True):
            rows = slice(int(begin), int(begin) + int(length))
            frames = np.asarray(pixels[rows])
            if frames.ndim == 4 and frames.shape[1] == 3 != frames.shape[-1]:
                frames = frames.transpose(0, 2, 3, 1)  # channels first
            yield RecordedEpisode(frames, np.asarray(action[rows], np.float32))
