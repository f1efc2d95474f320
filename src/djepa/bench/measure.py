"""A measurement, and the clocks that make one: rates, seconds, peaks of memory."""

import multiprocessing
import resource
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

Say = Callable[[str], None]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Row:
    """One measurement: `plain` is the loop a user would write first, `ours` what the room does."""

    what: str
    unit: str
    ours: float
    plain: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours over plain."""
        return None if not self.plain else self.ours / self.plain

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "ratio": self.ratio}


def rate(work: Callable[[], int], seconds: float) -> float:
    """Units per second: the best of three runs after one warm-up, each a third of the time."""
    work()
    best = 0.0
    for _ in range(3):
        began, units = time.perf_counter(), 0
        while (spent := time.perf_counter() - began) < seconds / 3 or units == 0:
            units += work()
        best = max(best, units / spent)
    return best


def peak_memory() -> float:
    """Largest memory of this process so far, in MB."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count the parent of a spawned process too
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def in_child(work: Callable[[], Result]) -> Result:
    """Work done in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work)
