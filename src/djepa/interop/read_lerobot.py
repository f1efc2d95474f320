"""LeRobotDataset v3: `meta/info.json`, Parquet files of many episodes, cameras as PNG or MP4.

meta/episodes/chunk-000/file-000.parquet gives the file of an episode, and its video and start time;
`data/chunk-000/file-000.parquet` has a row per step. The package itself is not needed: pyarrow
reads the tables, PyAV the videos.
"""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from djepa.errors import DjepaError, MissingExtraError, check_name
from djepa.interop.recorded import Columns, RecordedEpisode

INFO = "meta/info.json"
CAMERAS = ("image", "video")


def read_lerobot(path: Path, columns: Columns) -> Iterator[RecordedEpisode]:
    """Episode after episode; `pixels` names the camera, by default the first."""
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError("Reading LeRobot data sets", "recorded") from error
    info = _info(path)
    features = info["features"]
    cameras = [name for name, of in features.items() if of["dtype"] in CAMERAS]
    if not cameras:
        raise DjepaError(f"{path} has no camera: nothing can be trained on it.")
    camera = columns.pixels or cameras[0]
    check_name("camera", camera, cameras)
    check_name("column", columns.action, features)
    video = features[camera]["dtype"] == "video"
    files = sorted((path / "meta" / "episodes").rglob("*.parquet"))
    for row in (row for file in files for row in pq.read_table(file).to_pylist()):
        where = {name: row[f"data/{name}"] for name in ("chunk_index", "file_index")}
        wanted = [columns.action] if video else [columns.action, camera]
        table = pq.read_table(
            path / info["data_path"].format(**where),
            columns=wanted,
            filters=[("episode_index", "=", row["episode_index"])],
        )
        controls = np.array(table.column(columns.action).to_pylist(), np.float32)
        controls = controls.reshape(len(controls), -1)
        if video:
            frames = _video(path, info, camera, row, len(controls))
        else:
            blobs = table.column(camera).to_pylist()
            frames = np.stack([_picture(path, blob) for blob in blobs])
        yield RecordedEpisode(frames, controls)


def _info(path: Path) -> dict[str, Any]:
    try:
        info: dict[str, Any] = json.loads((path / INFO).read_text())
    except (OSError, ValueError) as error:
        raise DjepaError(f"{path} is no LeRobot data set: {error}") from error
    version = str(info.get("codebase_version", ""))
    if not version.startswith("v3"):
        raise DjepaError(
            f"{path} is a LeRobot data set of version {version or 'unknown'}; version 3 is read. "
            "LeRobot converts older ones."
        )
    return info


def _picture(path: Path, stored: dict[str, Any]) -> npt.NDArray[np.uint8]:
    """A frame stored in the table, or in a file beside it."""
    data = stored["bytes"]
    data = (path / stored["path"]).read_bytes() if data is None else data
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def _video(
    path: Path, info: dict[str, Any], camera: str, row: dict[str, Any], length: int
) -> npt.NDArray[np.uint8]:
    """(T, height, width, 3) of one episode: the frames at its own times, to half a frame."""
    try:
        import av
    except ImportError as error:
        raise MissingExtraError("Reading videos", "video") from error
    part = {name: row[f"videos/{camera}/{name}"] for name in ("chunk_index", "file_index")}
    file = path / info["video_path"].format(video_key=camera, **part)
    begin, fps = float(row[f"videos/{camera}/from_timestamp"]), float(info["fps"])
    found: dict[int, npt.NDArray[np.uint8]] = {}
    with av.open(str(file)) as container:
        stream = container.streams.video[0]
        container.seek(int(begin * 1e6))  # to the key frame before
        for frame in container.decode(stream):
            number = round((float(frame.time or 0.0) - begin) * fps)
            if 0 <= number < length:
                found.setdefault(number, frame.to_ndarray(format="rgb24"))
            if number >= length - 1:
                break
    if missing := [i for i in range(length) if i not in found]:
        raise DjepaError(f"{file} has no frame {missing[0]} of episode {row['episode_index']}.")
    return np.stack([found[i] for i in range(length)])
