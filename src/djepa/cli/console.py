"""Output of the commands: progress with an estimate on a terminal, plain lines elsewhere."""

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

NARROW = 40
if (width := os.environ.get("COLUMNS", "")).isdigit() and int(width) < NARROW:
    os.environ["COLUMNS"] = str(NARROW)  # at width 0 errors are lost and tables never end
# No markup: a path may hold square brackets.
console = Console(highlight=False, soft_wrap=True, markup=False)
errors = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
EVERY = 5.0  # seconds between plain lines


class Output:
    """Standard output that continues the work when its reader has closed it."""

    def __init__(self) -> None:
        self._stream: TextIO = sys.__stdout__ or Path(os.devnull).open("w")  # noqa: SIM115
        self.lost: OSError | None = None

    def write(self, text: str) -> int:
        """Write, unless an earlier write has failed."""
        self._try(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        """Flush, unless an earlier write has failed."""
        self._try(self._stream.flush)

    def _try(self, act: Any, *given: str) -> None:
        try:
            if self.lost is None:
                act(*given)
        except OSError as error:
            self.lost = error
            with suppress(OSError, ValueError):  # the rest of its buffer is lost
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def close_with(self, code: int) -> int:
        """The exit status: a closed reader is no error, a full disk is."""
        self.flush()
        if self.lost is None or self.lost.errno == errno.EPIPE:
            return code
        fail(f"The output could not be written: {self.lost.strerror}. The work was done.")
        return code or 1


out = Output()


def prepare_output() -> None:
    """Prepare output for terminals without UTF-8, narrow ones and closed ones."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    if sys.stdout is sys.__stdout__:  # not if a test captures it
        sys.stdout = out


def fail(message: object) -> None:
    """Print an error, with square brackets unchanged."""
    errors.print(Text.assemble(("error: ", "bold red"), str(message)))


class Tick(Protocol):
    """Called with the amounts done and in total."""

    def __call__(self, done: int, total: int) -> None:
        """Report progress."""


@contextmanager
def progress(what: str, unit: str) -> Iterator[Tick]:
    """A progress bar with an ETA, or a line now and then when the output is not a terminal."""
    if sys.stdout.isatty():
        with _bar() as bar:
            task = bar.add_task(f"{what} ({unit})", total=None, visible=False)  # until it begins
            yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)
        return
    yield _Lines(what, unit)


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("elapsed"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
    )


class _Lines:
    """Plain progress: the first state, one line every few seconds, the last state."""

    def __init__(self, what: str, unit: str) -> None:
        self._what, self._unit = what, unit
        self._began = self._said = time.monotonic()
        self._first: int | None = None

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        first = self._first is None
        if self._first is None:
            self._first = done
        if not first and done < total and now - self._said < EVERY:
            return
        self._said = now
        fresh, spent = done - self._first, now - self._began
        going = fresh > 0 and done < total
        left = f", about {spent / fresh * (total - done):.0f} s left" if going else ""
        with suppress(OSError):  # the reader is gone: the work continues
            print(f"{self._what}: {done}/{total} {self._unit}, {spent:.0f} s{left}", flush=True)
