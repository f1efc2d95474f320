"""Options, rows and their table; time, peak memory, and work in a child process."""

import math
import multiprocessing
import resource
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from djepa.errors import DjepaError
from djepa.evaluate.markdown import markdown

Say = Callable[[str], None]
Result = TypeVar("Result")
LEAST = {"starts": 1, "candidates": 2, "many": 1, "fit": 7, "updates": 0, "parity": 1}
LEAST |= {"inputs": 1, "repeats": 1, "compared": 1, "workers": 1}


@dataclass(frozen=True)
class Options:
    """What to measure; every bench reads its own part."""

    world: tuple[str, ...] = ()
    """World: names; push, reacher, granular and traffic."""
    seconds: float = 2.0
    """World: time given to each measurement."""
    scenes: tuple[int, ...] = (28, 112)
    """World: numbers of driving scenes whose peak of memory is measured."""
    geometry: tuple[str, ...] = ()
    """Geometry: names, or folders of weights; all four, or at paper size lewm and tdjepa."""
    size: str = "small"
    """Geometry, plan: small or paper."""
    compiled: tuple[str, ...] = ("bf16",)
    """Geometry, on cuda: precisions to compile too; each takes minutes."""
    starts: int = 16
    """Geometry, onnx: starts of a batch."""
    many: int = 4096
    """Geometry: candidates of the one start that has many."""
    candidates: int = 63
    """World, geometry, align, plan, growth: candidates of a start; a pool may have fewer."""
    fit: int = 448
    """Align: starts to fit on, and to decide; a seventh as many to calibrate on."""
    updates: int = 1000
    """Align: updates of the fit."""
    ways: tuple[str, ...] = ()
    """Plan: names of the ways to predict, in this order; all that the device has."""
    inputs: int = 256
    """Plan: starts of a repeat, in batches of 16."""
    repeats: int = 10
    """Plan: repeats, after two that do not count."""
    compared: int = 512
    """Plan: starts whose choices are compared with those of float32; fewer if time is short."""
    limit: float = 170.0
    """Plan: seconds after which no further way is measured."""
    device: str = "cpu"
    """Geometry, align, plan: cpu or cuda."""
    banks: tuple[int, ...] = ()
    """Growth: numbers of starts of whole banks to take through collect, predict, fit, decide and
    audit, such as 1000 10000 100000; the last takes long."""
    profile: str = "decoy"
    """Growth: pools of these banks; --world says of which world, else reacher."""
    horizon: int = 5
    """Growth: controls of their candidates."""
    workers: int = 1
    """Growth: processes that collect these banks; their CPU time counts too."""
    planner: Path = Path("runs/planner.safetensors")
    """Onnx: file that `djepa export` wrote."""
    parity: int = 512
    """Onnx: starts on which the choices of the graph and of torch are compared."""

    def __post_init__(self) -> None:
        if self.seconds <= 0:
            raise DjepaError(f"seconds must be above 0, got {self.seconds}.")
        if min(self.scenes, default=1) < 1:
            raise DjepaError(f"scenes must be at least 1, got {min(self.scenes)}.")
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise DjepaError(f"{name} must be at least {least}, got {getattr(self, name)}.")


@dataclass(frozen=True)
class Row:
    """One measurement: `plain` is a straightforward implementation, `ours` that of the package."""

    what: str
    unit: str
    ours: float
    plain: float | None = None
    note: str = ""
    details: dict[str, float] = field(default_factory=dict)  # further numbers, for JSON

    @property
    def ratio(self) -> float | None:
        """Ours over plain."""
        return None if not self.plain else self.ours / self.plain

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "ratio": self.ratio}


def bench_markdown(rows: Sequence[Row], against: str = "plain") -> str:
    """Rows as a Markdown table."""
    lines = []
    for row in rows:
        plain = "" if row.plain is None else f"{_number(row.plain)} {row.unit}"
        ratio = "" if row.ratio is None else f"{row.ratio:.1f}x"
        lines.append((row.what, f"{_number(row.ours)} {row.unit}", plain, ratio, row.note))
    return markdown(("what", "ours", against, "ratio", ""), lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:.1f}"


def figures(value: float) -> str:
    """Three significant figures, never an exponent."""
    return np.format_float_positional(value, precision=3, fractional=False, trim="-")


def machine(device: str) -> dict[str, Any]:
    """The device by its name, threads, and the version of torch."""
    import torch  # here, because a child that measures a world does not need it

    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    return {"device": name, "threads": torch.get_num_threads(), "torch": torch.__version__}


def seconds_of(work: Callable[[], object], device: str = "cpu", seconds: float = 0.0) -> float:
    """Seconds of a call: the best of three repeats, each of a third of `seconds` or of one call.

    Two calls before them warm up libraries.
    """
    for _ in range(2):
        work()
    best = math.inf
    for _ in range(3):
        wait(device)
        began, calls = time.perf_counter(), 0
        while calls == 0 or time.perf_counter() - began < seconds / 3:
            work()
            calls += 1
        wait(device)
        best = min(best, (time.perf_counter() - began) / calls)
    return best


def wait(device: str) -> None:
    """Wait until the device has finished its work."""
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def reset_peak(device: str) -> float:
    """Reset the peak; returns the MB in use now."""
    if device == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated() / 1e6
    with suppress(OSError):  # on Linux: sets the peak to the present use
        Path("/proc/self/clear_refs").write_text("5")
    return peak(device)


def peak(device: str) -> float:
    """Largest memory since the reset, in MB: of the GPU, or of this process."""
    if device == "cuda":
        import torch

        return torch.cuda.max_memory_allocated() / 1e6
    if found := peak_of("self"):  # getrusage would count the parent of a spawned process too
        return found
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def peak_of(process: int | str) -> float:
    """Largest memory of a process, in MB; 0 without /proc."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def in_child(work: Callable[[], Result]) -> Result:
    """Run `work` in a new process, which may start others: a peak never falls."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work).result()
