"""stable-worldmodel's Lance tables: a row per step, frames as JPEG, episodes in order.

The columns are `episode_idx`, `step_idx`, `pixels` (bytes) and `action` (a list of A numbers).
"""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from djepa.errors import DjepaError, MissingExtraError
from djepa.interop.recorded import Columns, RecordedEpisode

EPISODE = "episode_idx"


def read_lance(path: Path, columns: Columns) -> Iterator[RecordedEpisode]:
    """Episode after episode of one table: a folder NAME.lance, or the folder that holds it."""
    try:
        import lance
    except ImportError as error:
        raise MissingExtraError("Reading Lance tables", "lance") from error
    inside = sorted(path.glob("*.lance"))
    if path.suffix != ".lance":
        if len(inside) != 1:
            raise DjepaError(f"{path} holds {len(inside)} Lance tables; name one of them.")
        path = inside[0]
    try:
        table = lance.dataset(str(path))
    except (OSError, ValueError) as error:
        raise DjepaError(f"{path} is no Lance table: {error}") from error
    wanted = [EPISODE, columns.pixels or "pixels", columns.action]
    if missing := [name for name in wanted if name not in table.schema.names]:
        known = ", ".join(table.schema.names)
        raise DjepaError(f"{path} has no {', '.join(missing)}; it has {known}.")
    frames, controls, number = list[Any](), list[Any](), -1
    for batch in table.scanner(columns=wanted, scan_in_order=True).to_reader():
        rows = (batch.column(name).to_pylist() for name in wanted)
        for episode, blob, action in zip(*rows, strict=True):
            if episode < number:
                raise DjepaError(f"{path}: episode {episode} comes after {number}. Sort the table.")
            if episode != number and frames:
                yield RecordedEpisode(np.stack(frames), np.array(controls, np.float32))
                frames, controls = [], []
            number = episode
            frames.append(np.asarray(Image.open(io.BytesIO(blob)).convert("RGB")))
            controls.append(action)
    if frames:
        yield RecordedEpisode(np.stack(frames), np.array(controls, np.float32))
