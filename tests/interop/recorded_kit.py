"""Recorded episodes as other libraries write them, made by hand.

The layouts are those that stable-worldmodel 0.1.1 and LeRobot 0.4.4 write.
"""

import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from djepa.interop.recorded import RecordedEpisode

Write = Callable[[Path, list[RecordedEpisode]], Path]
LENGTHS = (7, 5, 9)


def some(lengths: tuple[int, ...] = LENGTHS, size: int = 16) -> list[RecordedEpisode]:
    """Smooth frames, which survive compression; the last control of an episode leads nowhere."""
    rng = np.random.default_rng(0)
    found = []
    for length in lengths:
        levels = rng.integers(40, 200, (length, 1, 1, 3))
        ramp = np.linspace(0, 40, size)[:, None, None]
        frames = np.broadcast_to(levels + ramp, (length, size, size, 3)).astype(np.uint8)
        found.append(RecordedEpisode(frames, rng.normal(size=(length, 3)).astype(np.float32)))
    return found


def as_hdf5(folder: Path, episodes: list[RecordedEpisode]) -> Path:
    h5py = pytest.importorskip("h5py")
    lengths = [len(one.frames) for one in episodes]
    with h5py.File(folder / "data.h5", "w", libver="latest") as file:
        file["pixels"] = np.concatenate([one.frames for one in episodes])
        action = [one.controls.copy() for one in episodes]
        action[0][-1] = np.nan  # as some recorders end an episode
        file["action"] = np.concatenate(action)
        file["ep_len"] = np.array(lengths, np.int32)
        file["ep_offset"] = np.cumsum([0, *lengths[:-1]])
    return folder / "data.h5"


def as_lance(folder: Path, episodes: list[RecordedEpisode]) -> Path:
    lance, pa = pytest.importorskip("lance"), pytest.importorskip("pyarrow")
    rows = [(e, t, one) for e, one in enumerate(episodes) for t in range(len(one.frames))]
    table = pa.table(
        {
            "episode_idx": pa.array([e for e, _, _ in rows], pa.int32()),
            "step_idx": pa.array([t for _, t, _ in rows], pa.int32()),
            "pixels": pa.array([coded(one.frames[t], "JPEG") for _, t, one in rows], pa.binary()),
            "action": pa.array([one.controls[t] for _, t, one in rows], pa.list_(pa.float32(), 3)),
        }
    )
    lance.write_dataset(table, str(folder / "push.lance"))
    return folder


def as_lerobot(folder: Path, episodes: list[RecordedEpisode], video: bool = False) -> Path:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    camera, chunk = "observation.images.top", "chunk-000/file-000"
    features = {camera: {"dtype": "video" if video else "image"}, "action": {"dtype": "float32"}}
    info = {
        "codebase_version": "v3.0",
        "fps": 10,
        "features": features,
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
    }
    for name in ("meta/episodes", "data"):
        (folder / name / "chunk-000").mkdir(parents=True)
    (folder / "meta/info.json").write_text(json.dumps(info))
    rows = [(e, t, one) for e, one in enumerate(episodes) for t in range(len(one.frames))]
    columns = {
        "action": [one.controls[t].tolist() for _, t, one in rows],
        "episode_index": [e for e, _, _ in rows],
    }
    if not video:
        columns[camera] = [{"bytes": coded(one.frames[t]), "path": None} for _, t, one in rows]
    pq.write_table(pa.table(columns), folder / f"data/{chunk}.parquet")
    begin = np.cumsum([0, *(len(one.frames) for one in episodes)]) / 10
    about = [
        {
            "episode_index": e,
            "length": len(one.frames),
            "data/chunk_index": 0,
            "data/file_index": 0,
            f"videos/{camera}/chunk_index": 0,
            f"videos/{camera}/file_index": 0,
            f"videos/{camera}/from_timestamp": float(begin[e]),
        }
        for e, one in enumerate(episodes)
    ]
    pq.write_table(pa.Table.from_pylist(about), folder / f"meta/episodes/{chunk}.parquet")
    if video:
        filmed(
            folder / f"videos/{camera}/{chunk}.mp4", np.concatenate([e.frames for e in episodes])
        )
    return folder


def as_filmed(folder: Path, episodes: list[RecordedEpisode]) -> Path:
    pytest.importorskip("av")
    return as_lerobot(folder, episodes, video=True)


def filmed(path: Path, frames: np.ndarray) -> None:
    import av

    path.parent.mkdir(parents=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width = stream.height = frames.shape[1]
        stream.pix_fmt, stream.options = "yuv420p", {"crf": "10", "g": "4"}
        for frame in frames:
            picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")
            container.mux(stream.encode(picture))
        container.mux(stream.encode())


def coded(frame: np.ndarray, kind: str = "PNG") -> bytes:
    data = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(frame)).save(data, format=kind)
    return data.getvalue()
