"""stable-worldmodel's Lance tables: a row per step, frames as JPEG, episodes in order.

The columns are `episode_idx`, `step_idx`, `pixels` (bytes) and `action` (a list of A numbers).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from djepa.checks import check_int
from djepa.errors import DjepaError, MissingExtraError
from djepa.interop.foreign import check_columns, guarded, to_controls, to_frames
from djepa.interop.recorded import Columns, RecordedEpisode

EPISODE, STEP = "episode_idx", "step_idx"
Row = tuple[Any, ...]  # episode, step, picture, control


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
    wanted = [EPISODE, STEP, columns.pixels or "pixels", columns.action]
    check_columns(path, wanted, table.schema.names)
    batches = table.scanner(columns=wanted, scan_in_order=True).to_reader()
    episode = list[Row]()
    for batch in guarded(path, batches):
        for row in zip(*(batch.column(name).to_pylist() for name in wanted), strict=True):
            _check_order(path, episode[-1] if episode else None, row)
            if episode and row[0] != episode[-1][0]:
                yield _whole(path, episode)
                episode = []
            episode.append(row)
    if episode:
        yield _whole(path, episode)


def _check_order(path: Path, before: Row | None, row: Row) -> None:
    """Refuse a row that is neither the next step of its episode nor the first of a later one."""
    episode = check_int(f"{path}: {EPISODE}", row[0], 0)
    step = check_int(f"{path}: {STEP}", row[1], 0)
    if before is None or episode > before[0]:
        return
    if episode < before[0]:
        raise DjepaError(f"{path}: episode {episode} comes after {before[0]}. Sort the table.")
    if step <= before[1]:
        raise DjepaError(
            f"{path}: step {step} of episode {episode} comes after {before[1]}. Sort the table."
        )


def _whole(path: Path, rows: list[Row]) -> RecordedEpisode:
    """The frames and controls of an episode's rows."""
    frames = to_frames(path, [blob for _, _, blob, _ in rows])
    return RecordedEpisode(frames, to_controls(path, [action for *_, action in rows]))
