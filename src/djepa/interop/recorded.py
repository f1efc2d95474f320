"""Import third-party recorded episodes into a folder for `djepa train` (tasks/recorded.py).

A reader yields one episode after the other: frames and the controls that followed them. There are
readers for LeRobotDataset v3, stable-worldmodel's HDF5 files and its Lance tables.

Legend: T frames of an episode, S side of a stored frame, A action width.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from djepa.artefacts.folder import encode
from djepa.artefacts.write import Writer
from djepa.checks import check_int
from djepa.errors import DjepaError, check_name
from djepa.interop.foreign import guarded
from djepa.tasks.recorded import EXACT, RECORDED, SHARD

Frames = npt.NDArray[np.uint8]
Controls = npt.NDArray[np.float32]
Report = Callable[[int, int], None]
READERS = {
    "lerobot": "djepa.interop.read_lerobot:read_lerobot",
    "hdf5": "djepa.interop.read_hdf5:read_hdf5",
    "lance": "djepa.interop.read_lance:read_lance",
}
BLOCK = 4096  # frames per file, or a few more


@dataclass(frozen=True)
class RecordedEpisode:
    """Frames (T, height, width, 3), and controls (T, A): each leads from its frame to the next."""

    frames: Frames
    controls: Controls


@dataclass(frozen=True)
class Columns:
    """Columns to read; empty takes the format's default."""

    pixels: str = ""
    action: str = "action"

    def __str__(self) -> str:
        return f"frames: {self.pixels or 'default'}, controls: {self.action}"


Reader = Callable[[Path, Columns], Iterator[RecordedEpisode]]


def get_reader(name: str) -> Reader:
    """A reader by the name of its format; whatever goes wrong in it is an error with the path."""
    check_name("format", name, READERS)
    module, _, attribute = READERS[name].partition(":")
    read: Reader = getattr(import_module(module), attribute)
    return lambda path, columns: guarded(path, read(path, columns))


def write_recorded(
    out: Path,
    episodes: Iterable[RecordedEpisode],
    source: str,
    size: int = 112,
    stride: int = 5,
    most: int = 0,
    report: Report = lambda done, frames: None,
) -> Path:
    """All episodes, or the first `most`, into a folder; an unfinished one is continued."""
    check_int("size", size, 8)
    check_int("stride", stride, 1)
    check_int("episodes", most, 0)
    about: dict[str, Any] = {"source": source, "size": size, "stride": stride, "most": most}
    frames = count = actions = 0
    writer = Writer(out, RECORDED, about)
    with writer.opened():
        if writer.complete:
            writer.tidy()
            return out
        done = {int(piece.note["block"]) for piece in writer.pieces}
        for block, part in enumerate(_blocks(source, episodes, most)):
            widths = {one.controls.shape[1] for one in part} | ({actions} if actions else set())
            if len(widths) > 1:
                raise DjepaError(
                    f"{source}: controls have {sorted(widths)} numbers, not always one."
                )
            (actions,) = widths
            frames, count = frames + sum(len(one.frames) for one in part), count + len(part)
            if frames >= EXACT:
                raise DjepaError(f"{source} has more than {EXACT:,} frames; import fewer episodes.")
            if block not in done:
                file = SHARD.format(block)
                writer.write({file: encode(_arrays(part, size))}, {"block": block})
            report(count, frames)
        if not count:
            raise DjepaError(f"{source} holds no episode.")
        writer.finish({**about, "actions": actions, "episodes": count, "frames": frames})
    return out


def _blocks(
    source: str, episodes: Iterable[RecordedEpisode], most: int
) -> Iterator[list[RecordedEpisode]]:
    part, frames = list[RecordedEpisode](), 0
    for number, episode in enumerate(episodes):
        if most and number == most:
            break
        part.append(_whole(f"{source}: episode {number}", episode))
        frames += len(part[-1].frames)
        if frames >= BLOCK:
            yield part
            part, frames = [], 0
    if part:
        yield part


def _whole(name: str, episode: RecordedEpisode) -> RecordedEpisode:
    """Check an episode, and end it after the first NaN control, which some formats use as end."""
    frames, controls = episode.frames, np.asarray(episode.controls, np.float32)
    if frames.ndim != 4 or frames.shape[-1] != 3 or frames.dtype != np.uint8 or not frames.size:
        raise DjepaError(
            f"{name}: frames must be uint8 (T, height, width, 3), none of it 0, got {frames.dtype} "
            f"{frames.shape}."
        )
    if controls.ndim != 2 or len(controls) != len(frames) or not controls.size:
        raise DjepaError(
            f"{name}: {len(frames)} frames need as many controls, got {controls.shape}."
        )
    if np.isinf(controls).any():
        raise DjepaError(f"{name}: a control is infinite, or too large for float32.")
    bad = np.asarray(np.isnan(controls).any(axis=1))
    end = int(bad.argmax()) + 1 if bad.any() else len(frames)
    if bad[:-1].any() and not bad[end - 1 :].all():
        raise DjepaError(f"{name}: control {end - 1} is not finite, later ones are.")
    return RecordedEpisode(frames[:end], np.nan_to_num(controls[:end]))


def _arrays(part: list[RecordedEpisode], size: int) -> dict[str, npt.NDArray[Any]]:
    return {
        "frames": np.concatenate([resized(one.frames, size) for one in part]),
        "controls": np.concatenate([one.controls for one in part]),
        "lengths": np.array([len(one.frames) for one in part], np.int64),
    }


def resized(frames: Frames, size: int) -> Frames:
    """(T, height, width, 3) -> (T, S, S, 3): the middle square, scaled."""
    _, height, width, _ = frames.shape
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    frames = frames[:, top : top + side, left : left + side]
    if side == size:
        return np.ascontiguousarray(frames)
    scaled = [Image.fromarray(frame).resize((size, size), Image.Resampling.BOX) for frame in frames]
    return np.stack([np.asarray(one) for one in scaled])


def import_episodes(
    format: str, path: Path, out: Path, columns: Columns, report: Report, **sizes: int
) -> Path:
    """Read a data set of that format into a folder."""
    if not path.exists():
        raise DjepaError(f"There is no {path}.")
    read = get_reader(format)
    source = f"{format} {path.name} ({columns})"
    return write_recorded(out, read(path, columns), source, report=report, **sizes)
