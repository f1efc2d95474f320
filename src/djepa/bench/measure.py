"""A measurement, and the clocks that make one: rates, seconds, peaks of memory."""

import multiprocessing
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from djepa.errors import DjepaError, unknown_name

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


def check_sizes(config: Any, least: Mapping[str, int]) -> None:
    """Sizes of a bench that are too small, or a device that is not here, are named."""
    import torch  # only here: a child that measures a world does not wait for it

    for name, smallest in least.items():
        if getattr(config, name) < smallest:
            raise DjepaError(f"{name} must be at least {smallest}, got {getattr(config, name)}.")
    if config.device not in ("cpu", "cuda"):
        raise unknown_name("device", config.device, ["cpu", "cuda"])
    if config.device == "cuda" and not torch.cuda.is_available():
        raise DjepaError("No CUDA device here. Use --device cpu.")


def describe(config: Any, rows: Sequence[Row], *sizes: str) -> dict[str, Any]:
    """For JSON: on what was measured, with which sizes, and the rows."""
    return {
        **machine(config.device),
        **{name: getattr(config, name) for name in sizes},
        "rows": [row.as_dict() for row in rows],
    }


def machine(device: str) -> dict[str, Any]:
    """The device by its name, threads, and the version of torch."""
    import torch

    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    return {"device": name, "threads": torch.get_num_threads(), "torch": torch.__version__}


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
