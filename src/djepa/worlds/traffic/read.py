"""Recorded traffic of any known format."""

from collections.abc import Iterator
from pathlib import Path

from djepa.errors import DjepaError
from djepa.worlds.traffic.av2 import read_av2
from djepa.worlds.traffic.commonroad import read_commonroad
from djepa.worlds.traffic.ngsim import read_npz
from djepa.worlds.traffic.recording import Recording, cut, egos
from djepa.worlds.traffic.scenarionet import read_scenarionet
from djepa.worlds.traffic.scene import Scene

READERS = {".npz": read_npz, ".xml": read_commonroad, ".pkl": read_scenarionet}


def read_recording(path: Path) -> Recording:
    """A file or, for Argoverse 2, a folder -> its recording; refused by name if it is none."""
    if path.is_dir():
        return read_av2(path)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        known = ", ".join(READERS)
        raise DjepaError(f"Cannot read traffic from {path}: known are {known} and folders.")
    return reader(path)


def recorded_scenes(path: Path, start: int = 0) -> Iterator[Scene]:
    """Every scene of a recording that begins at step `start`."""
    recording = read_recording(path)
    yield from (cut(recording, row, start) for row in egos(recording, start))
