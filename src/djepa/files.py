"""Files that are whole or not there, and errors that name them."""

import errno
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from djepa.artefacts.store import remote
from djepa.errors import DjepaError

TEMPORARY = ".part"


def to_json(value: Any, strict: bool = False) -> str:
    """JSON with sorted keys: the same value is always the same bytes. `strict`: no NaN."""
    return json.dumps(value, indent=1, sort_keys=True, allow_nan=not strict) + "\n"


def write_atomically(path: Path, data: bytes | Iterable[bytes]) -> None:
    """All of the file under its name, or nothing; on the disk, not only in its cache.

    `data` may come in parts, which are made as they are written.
    """
    if far := remote(path):
        far.write(data)
        return
    part = path.with_name(path.name + TEMPORARY)
    with naming(path):
        try:
            with part.open("wb") as file:
                for chunk in (data,) if isinstance(data, bytes) else data:
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
            flush_folder(path.parent)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def flush_folder(folder: Path) -> None:
    """A new name is only safe once the folder that holds it is on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn a disk that is full or read-only into an error that names the file."""
    try:
        yield
    except OSError as error:
        raise DjepaError(advice(error, path)) from None


def advice(error: OSError, path: Path | str | None = None) -> str:
    """What the system says, about which file, and what to do."""
    named = path or error.filename or error.filename2
    reason = error.strerror or str(error) or type(error).__name__
    if error.errno == errno.ENOENT:
        return f"{named or 'A file'} is not there: {reason}. Check the path."
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    todo = "Make room" if full else "Choose another place"
    return (
        f"Cannot write {named or 'the output'}: {reason}. {todo} and run the same command again; "
        "what was finished is kept."
    )
