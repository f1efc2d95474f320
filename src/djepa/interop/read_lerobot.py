"""LeRobotDataset v3: `meta/info.json`, Parquet files of many episodes, cameras as PNG or MP4.

meta/episodes/chunk-000/file-000.parquet gives the file of an episode, and its video and start time;
`data/chunk-000/file-000.parquet` has a row per step. The package itself is not needed: pyarrow
reads the tables, PyAV the videos.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from djepa.artefacts.records import LARGEST, decode, read_bytes, typed
from djepa.errors import DjepaError, MissingExtraError, check_name
from djepa.interop.foreign import check_columns, inside, reading, to_controls, to_frames
from djepa.interop.recorded import Columns, RecordedEpisode

INFO = "meta/info.json"
CAMERAS = ("image", "video")
INDEX = "episode_index"


class Head(msgspec.Struct, frozen=True):
    """What every version of `meta/info.json` says."""

    codebase_version: str = ""


class Feature(msgspec.Struct, frozen=True):
    """A column, or a camera."""

    dtype: str


class Info(msgspec.Struct, frozen=True):
    """What is needed of `meta/info.json`."""

    features: dict[str, Feature]
    data_path: str
    video_path: str | None = None
    fps: float = 0.0  # of videos


class Episode(msgspec.Struct, frozen=True):
    """A row of an episode table: how many steps, and in which data file."""

    episode_index: int
    length: int
    chunk: int = msgspec.field(name="data/chunk_index")
    file: int = msgspec.field(name="data/file_index")


class Clip(msgspec.Struct, frozen=True):
    """The part of the same row that a camera has: a video file, and seconds in it."""

    chunk_index: int
    file_index: int
    from_timestamp: float


class Picture(msgspec.Struct, frozen=True):
    """A frame stored in the table, or in a file beside it."""

    data: bytes | None = msgspec.field(default=None, name="bytes")
    path: str | None = None


def read_lerobot(path: Path, columns: Columns) -> Iterator[RecordedEpisode]:
    """Episode after episode; `pixels` names the camera, by default the first."""
    info = _info(path)
    cameras = [name for name, of in info.features.items() if of.dtype in CAMERAS]
    if not cameras:
        raise DjepaError(f"{path} has no camera: nothing can be trained on it.")
    camera = columns.pixels or cameras[0]
    check_name("camera", camera, cameras)
    check_columns(path / INFO, [columns.action], info.features)
    video = info.features[camera].dtype == "video"
    for row, episode, clip in _episodes(path, camera if video else ""):
        file = _file(path, info.data_path, chunk_index=episode.chunk, file_index=episode.file)
        wanted = [columns.action] if video else [columns.action, camera]
        table = _table(file, wanted, [(INDEX, "=", episode.episode_index)])
        if len(table) != episode.length:
            raise DjepaError(
                f"{file} has {len(table)} rows of episode {episode.episode_index}, which "
                f"{row} says has {episode.length}."
            )
        controls = to_controls(file, table.column(columns.action).to_pylist())
        if clip:
            frames = _filmed(path, info, camera, clip, episode)
        else:
            blobs = table.column(camera).to_pylist()
            frames = to_frames(file, [_picture(path, file, blob) for blob in blobs])
        yield RecordedEpisode(frames, controls)


def _info(path: Path) -> Info:
    file = path / INFO
    if not file.is_file():
        raise DjepaError(f"{path} is no LeRobot data set: it has no {INFO}.")
    data = read_bytes(file, LARGEST)
    version = decode(file, data, Head, whole=False).codebase_version
    if not version.startswith("v3"):
        raise DjepaError(
            f"{path} is a LeRobot data set of version {version or 'unknown'}; version 3 is read. "
            "LeRobot converts older ones."
        )
    return decode(file, data, Info, whole=False)


def _episodes(path: Path, filmed: str) -> Iterator[tuple[Path, Episode, Clip | None]]:
    """Rows of all episode tables, each with its file; a clip where a camera is filmed."""
    own = [of.encode_name for of in msgspec.structs.fields(Episode)]
    clip = [of.encode_name for of in msgspec.structs.fields(Clip)] if filmed else []
    seen = set[int]()
    for file in sorted((path / "meta" / "episodes").rglob("*.parquet")):
        names = [*own, *(f"videos/{filmed}/{name}" for name in clip)]
        for row in _table(file, names).to_pylist():
            episode = typed(file, {name: row[name] for name in own}, Episode, whole=False)
            if episode.episode_index in seen:
                raise DjepaError(f"{file} is damaged: episode {episode.episode_index} is repeated.")
            seen.add(episode.episode_index)
            part = {name: row[f"videos/{filmed}/{name}"] for name in clip}
            yield file, episode, typed(file, part, Clip, whole=False) if filmed else None


def _file(path: Path, pattern: str, **where: str | int) -> Path:
    """The file that a pattern of the metadata names."""
    with reading(path / INFO):
        name = pattern.format(**where)
    return inside(path, name)


def _table(file: Path, wanted: list[str], filters: Any = None) -> Any:
    """Some columns of a Parquet file."""
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError("Reading LeRobot data sets", "recorded") from error
    with reading(file):
        known = pq.read_schema(file).names
    check_columns(file, wanted if filters is None else [*wanted, INDEX], known)
    with reading(file):
        return pq.read_table(file, columns=wanted, filters=filters)


def _picture(path: Path, file: Path, stored: Any) -> bytes:
    found = typed(file, stored, Picture, whole=False)
    return read_bytes(inside(path, found.path or "")) if found.data is None else found.data


def _filmed(
    path: Path, info: Info, camera: str, clip: Clip, episode: Episode
) -> npt.NDArray[np.uint8]:
    """(T, height, width, 3) of one episode: the frames at its own times, to half a frame."""
    try:
        import av
    except ImportError as error:
        raise MissingExtraError("Reading videos", "video") from error
    if not info.fps > 0 or not math.isfinite(clip.from_timestamp):
        raise DjepaError(f"{path / INFO} is damaged: videos need frames per second and a start.")
    part = {"chunk_index": clip.chunk_index, "file_index": clip.file_index}
    file = _file(path, info.video_path or "", video_key=camera, **part)
    length, found = episode.length, dict[int, npt.NDArray[np.uint8]]()
    with reading(file), av.open(str(file)) as container:
        stream = container.streams.video[0]
        container.seek(int(clip.from_timestamp * 1e6))  # to the key frame before
        for frame in container.decode(stream):
            number = round((float(frame.time or 0.0) - clip.from_timestamp) * info.fps)
            if 0 <= number < length:
                found.setdefault(number, frame.to_ndarray(format="rgb24"))
            if number >= length - 1:
                break
    if missing := [i for i in range(length) if i not in found]:
        raise DjepaError(f"{file} has no frame {missing[0]} of episode {episode.episode_index}.")
    return np.stack([found[i] for i in range(length)])
