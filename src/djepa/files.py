"""Atomic file writes, and errors that name the file."""

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
    """JSON with sorted keys: equal values give equal bytes. `strict` refuses NaN."""
    return json.dumps(value, indent=1, sort_keys=True, allow_nan=not strict) + "\n"


def write_atomically(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Write the whole file or nothing, and flush it to the disk.

    `data` may be an iterable of parts, each of which is made when it is written.
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
    """Flush a folder to the disk: until then a crash may lose the names of new files in it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn an OSError, such as a full or read-only disk, into an error that names the file."""
    try:
        yield
    except OSError as error:
        raise DjepaError(advice(error, path)) from None


def advice(error: OSError, path: Path | str | None = None) -> str:
    """The message of the system, the file it concerns, and what to do."""
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
