"""Recorded traffic of any known format."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from djepa.errors import DjepaError
from djepa.worlds.traffic.av2 import files_of_log, is_log, read_av2
from djepa.worlds.traffic.commonroad import read_commonroad
from djepa.worlds.traffic.ngsim import read_npz
from djepa.worlds.traffic.reading import reading
from djepa.worlds.traffic.recording import Recording, cut, egos
from djepa.worlds.traffic.scenarionet import read_scenarionet
from djepa.worlds.traffic.scene import Scene

TAKE = ("take", "take_start")
READERS = {".npz": read_npz, ".xml": read_commonroad, ".pkl": read_scenarionet}


def read_recording(path: Path) -> Recording:
    """A file or, for Argoverse 2, a folder -> its recording; errors name the path."""
    if path.is_dir():
        return read_av2(path)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        known = ", ".join(READERS)
        raise DjepaError(f"Cannot read traffic from {path}: known are {known} and folders.")
    return reader(path)


def is_recording(path: Path) -> bool:
    """Whether a path looks like recorded traffic: a file of a known kind, or a folder."""
    return is_log(path) if path.is_dir() else path.suffix.lower() in READERS


def files_of(path: Path) -> tuple[Path, ...]:
    """The files of a recording, by name."""
    if not path.is_dir():
        return (path,)
    with reading(path):
        return tuple(sorted(files_of_log(path)))


def moment_of(path: Path) -> tuple[str, int] | None:
    """The take a recording was cut from and its first step there, if the file says so."""
    if path.suffix.lower() != ".npz" or path.is_dir():
        return None
    with reading(path), np.load(path, allow_pickle=False) as file:
        if not set(TAKE) <= set(file.files):
            return None
        if any(file.zip.getinfo(f"{name}.npy").file_size > 4096 for name in TAKE):
            raise DjepaError("the name of its take is too long")
        take, start = (file[name] for name in TAKE)
        return str(take), int(start)


def recorded_scenes(path: Path, start: int = 0) -> Iterator[Scene]:
    """Every scene of a recording that begins at step `start`."""
    recording = read_recording(path)
    yield from (cut(recording, row, start) for row in egos(recording, start))
