"""One writer at a time: a folder is locked for as long as a process writes into it.

The lock ends with its process, even if that is killed. Object stores have no locks.
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

_LENT: set[Path] = set()  # folders locked by a command of this process, available to its writers


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder inside the context; an error if another process has locked it."""
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
    """Lock a folder for a whole command, whose own writers may lock it in turn."""
    place = folder.resolve()
    with _alone(folder):
        _LENT.add(place)
        try:
            yield
        finally:
            _LENT.discard(place)


def refuse_url(path: Path, option: str) -> None:
    """Refuse a URL for a folder in which files are appended to, or read while it is written."""
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
        (folder / LOCK).unlink(missing_ok=True)  # before unlocking, or a new lock file is removed
        lock.close()


def _lock(path: Path) -> IO[str]:
    """The lock file, locked. A holder removes it at the end, so its name is checked afterwards."""
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
        file.close()  # its holder removed it meanwhile: try again
