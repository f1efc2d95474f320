"""One writer at a time: a folder is locked for as long as a process writes into it.

The lock goes with its process, however that ends. Stores have no locks.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from djepa.artefacts.records import LOCK
from djepa.artefacts.store import locate, remote
from djepa.errors import DjepaError
from djepa.files import naming

_LENT: set[Path] = set()  # folders held by a command of this process, free for one of its writers


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """A folder for ourselves; a clear error if another process has it."""
    if remote(folder):
        yield
        return
    if (place := folder.resolve()) in _LENT:
        _LENT.remove(place)
        try:
            yield
        finally:
            _LENT.add(place)
        return
    with _alone(folder):
        yield


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """A folder for a whole command, whose own writers may lock it one after the other."""
    place = folder.resolve()
    with _alone(folder):
        _LENT.add(place)
        try:
            yield
        finally:
            _LENT.discard(place)


def refuse_url(path: Path, option: str) -> None:
    """Refuse a folder in a store where files are appended to, or read as they appear."""
    if remote(at := locate(path)):
        raise DjepaError(
            f"{option} {at} lies in a store, and this command needs a folder on this machine. "
            "Name one; what is finished can be copied to a store."
        )


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    lock = _lock(folder / LOCK)
    try:
        yield
    finally:
        (folder / LOCK).unlink(missing_ok=True)  # before letting go, or a new one is lost
        lock.close()


def _lock(path: Path) -> IO[str]:
    """The lock file, locked. Its holder removes it, so what we hold must still bear the name."""
    while True:
        with naming(path):
            file = path.open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise DjepaError(
                f"Another process is writing into {path.parent}. "
                "Wait for it, or choose another --out."
            ) from None
        with suppress(FileNotFoundError):
            if os.fstat(file.fileno()).st_ino == path.stat().st_ino:
                return file
        file.close()  # its holder removed it in between: try again
