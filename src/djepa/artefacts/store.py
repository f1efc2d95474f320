"""Location of a folder: a path on this machine, or a URL of an object store (extra `remote`).

`locate` turns either into an object with the methods of `Path` that this package uses. Writes to a
store are atomic, and files are never renamed, appended to or locked there: two runs of the same
command write the same bytes.
"""

import atexit
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, cast

from djepa.errors import DjepaError, MissingExtraError

URL = re.compile(r"([a-z][a-z0-9]+):/+(.*)")  # a Path removes one of the slashes
OBJECTS = ("s3", "gs", "abfs")  # protocols of obstore; fsspec implements the others
PATIENCE = {"timeout": "60s", "connect_timeout": "5s"}
RETRIES = {"max_retries": 5}


def locate(of: "Path | str") -> Path:
    """A path, or a `Remote` if `of` is a URL such as s3://bucket/bank."""
    if far := remote(of):
        return cast(Path, far)
    found = URL.fullmatch(str(of))
    return cast(Path, Remote(f"{found[1]}://{found[2].strip('/')}")) if found else Path(of)


def remote(path: object) -> "Remote | None":
    """`path` if it is in a store; None if it is on this machine."""
    return path if isinstance(path, Remote) else None


class Remote:
    """A file or folder at a URL, with the methods of `Path` that this package uses."""

    def __init__(self, url: str) -> None:
        self.url = url

    @cached_property
    def _at(self) -> tuple[Any, str]:
        """The file system and the name in it."""
        protocol, _, name = self.url.partition("://")
        with self._asked():
            return _system(protocol), name

    def __getstate__(self) -> dict[str, str]:
        return {"url": self.url}

    def __truediv__(self, name: object) -> "Remote":
        return Remote(f"{self.url}/{name}")

    def __str__(self) -> str:
        return self.url

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Remote) and self.url == other.url

    def __lt__(self, other: "Remote") -> bool:
        return self.url < other.url

    def __hash__(self) -> int:
        return hash(self.url)

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return self.url.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The suffix, such as .json."""
        return PurePosixPath(self.name).suffix

    @property
    def parent(self) -> "Remote":
        """The containing folder."""
        return Remote(self.url.rpartition("/")[0])

    def with_name(self, name: str) -> "Remote":
        """Another file in the same folder."""
        return self.parent / name

    def relative_to(self, folder: "Remote") -> PurePosixPath:
        """The name relative to a folder."""
        return PurePosixPath(self.url.removeprefix(f"{folder.url}/"))

    def resolve(self) -> "Remote":
        """The same object: a URL is already absolute."""
        return self

    def mkdir(self, parents: bool = True, exist_ok: bool = True) -> None:
        """Does nothing: in a store a folder is only a prefix of names."""

    def exists(self) -> bool:
        """Whether there is a file or a folder."""
        return self.is_file() or self.is_dir()

    def is_file(self) -> bool:
        """Whether there is a file."""
        system, name = self._at
        with self._asked():
            return bool(system.isfile(name))

    def is_dir(self) -> bool:
        """Whether there is any file below."""
        return bool(self.sizes())

    @property
    def parents(self) -> "tuple[Remote, ...]":
        """The containing folders, from the nearest to the bucket."""
        above = self.parent
        return () if above.url.endswith("/") else (above, *above.parents)

    def stat(self) -> SimpleNamespace:
        """Size, and time of writing if the store reports it."""
        system, name = self._at
        with self._asked():
            of = system.info(name)
        when = of.get("last_modified") or of.get("created")
        age = int(1e9 * when.timestamp()) if when else 0
        return SimpleNamespace(st_size=int(of["size"]), st_mtime_ns=age)

    def read_bytes(self) -> bytes:
        """The bytes of a file."""
        system, name = self._at
        with self._asked():
            return bytes(system.cat_file(name))

    def read_text(self) -> str:
        """The text of a file."""
        return self.read_bytes().decode()

    def sizes(self) -> dict[str, int]:
        """Relative name -> bytes of every file below, by a single request."""
        system, name = self._at
        with self._asked():
            there = system.find(name, detail=True)
        below = {key.lstrip("/").removeprefix(f"{name}/"): of for key, of in there.items()}
        return {
            key: int(of["size"])
            for key, of in sorted(below.items())
            if of.get("type") == "file" and key != name
        }

    def iterdir(self) -> "Iterator[Remote]":
        """Files and folders directly below."""
        return (self / name for name in sorted({one.split("/")[0] for one in self.sizes()}))

    def rglob(self, pattern: str) -> "Iterator[Remote]":
        """All files below, at any depth, that match."""
        assert pattern == "*"
        return (self / name for name in self.sizes())

    def write(self, data: bytes | Iterable[bytes]) -> None:
        """Write a file atomically; parts are first collected on this machine."""
        system, name = self._at
        if isinstance(data, bytes):
            with self._asked():
                system.pipe_file(name, data)
            return
        with tempfile.NamedTemporaryFile() as file:
            file.writelines(data)
            file.flush()
            with self._asked():
                system.put_file(file.name, name)

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove a file."""
        system, name = self._at
        with self._asked(missing_ok):
            system.rm_file(name)

    def local(self, expected: str = "") -> Path:
        """A copy on this machine, kept until the process ends; `expected` is its SHA-256.

        The file is downloaded again, so the copy is verified even if the file was read before.
        """
        target = Path(_copies()) / sha256(f"{self.url} {expected}".encode()).hexdigest()
        if not target.exists():
            data = self.read_bytes()
            if expected and sha256(data).hexdigest() != expected:
                raise DjepaError(
                    f"{self} is damaged: its SHA-256 is not the one that was written. Restore it "
                    "from a copy, or make it again."
                )
            part = target.with_suffix(f".{os.getpid()}")
            part.write_bytes(data)
            part.replace(target)
        return target

    def open(self, *mode: str) -> Any:
        """Always raises: files of a store are read and written whole."""
        raise DjepaError(f"{self} cannot be written bit by bit. Choose a folder on this machine.")

    @contextmanager
    def _asked(self, missing_ok: bool = False) -> Iterator[None]:
        """Turn any error of a store, its library or the network into one line."""
        try:
            yield
        except FileNotFoundError:
            if not missing_ok:
                raise FileNotFoundError(2, "No such file", str(self)) from None
        except DjepaError:
            raise
        except Exception as error:
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            raise DjepaError(
                f"Cannot reach {self}: {reason}. Check address, keys and connection, and run the "
                "same command again; what was finished is kept."
            ) from None


@lru_cache
def _system(protocol: str) -> Any:
    """The file system of a protocol."""
    try:
        import fsspec

        if protocol not in OBJECTS:
            return fsspec.filesystem(protocol)
        from obstore.fsspec import register
    except ImportError:
        raise MissingExtraError(f"A folder at {protocol}://", "remote") from None
    register(protocol)
    plain = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
    options = {**PATIENCE, "allow_http": plain}
    return fsspec.filesystem(protocol, client_options=options, retry_config=RETRIES)


@lru_cache
def _copies() -> str:
    """A folder for copies, removed when the process ends."""
    folder = tempfile.mkdtemp(prefix="djepa-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
