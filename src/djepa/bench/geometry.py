"""How fast geometries decide, and in how much memory, against the plain way in one run.

Legend: N starts, K candidates.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from djepa.bench.measure import Say, check_sizes, in_child, peak_memory
from djepa.bench.measure import describe as measured
from djepa.bench.precision import combined, precision_rows
from djepa.bench.subject import (
    GeometryRow,
    Subject,
    best_seconds,
    figures,
    load_subject,
    stored_subject,
)
from djepa.models.fast import Fast, Inputs
from djepa.models.kinds import GEOMETRIES
from djepa.models.protocol import CONTEXT
from djepa.models.weights import shipped
from djepa.tasks.task import Scene

Keep = Callable[[list[GeometryRow]], None]
VECTORS, FOUR = ("lewm", "tdjepa"), ("lewm", "tdjepa", "jepawm", "dinowm")


@dataclass(frozen=True)
class GeometryBench:
    """What to measure."""

    geometries: tuple[str, ...] = ("lewm", "tdjepa")  # names, or folders of weights
    size: str = "small"
    device: str = "cpu"
    starts: int = 16
    candidates: int = 63
    many: int = 4096  # candidates of the single start that shows what a chunk does
    compiled: tuple[str, ...] = ("bf16",)  # precisions to compile too, on a GPU

    def __post_init__(self) -> None:
        check_sizes(self, {"starts": 1, "candidates": 1, "many": 1})


def bench_geometry(
    config: GeometryBench, say: Say, keep: Keep = lambda rows: None
) -> list[GeometryRow]:
    """All measurements of some geometries; number formats on a GPU alone.

    `keep` is given the rows so far whenever there are more.
    """
    rows: list[GeometryRow] = []
    formats: dict[Scene, list[GeometryRow]] = {}  # by what a decision sees
    for where in config.geometries:
        subject = load_subject(where, config.size, config.device)
        given = subject.decisions(config.starts, config.candidates, config.device)
        say(f"{subject.title}, starts")
        rows.append(_starts(subject, given, config.device))
        if config.device == "cuda":
            more = precision_rows(subject, given, config.compiled, config.device, say)
            formats.setdefault(subject.scene, []).extend(more)
        keep(rows + list(chain(*formats.values())))
    rows += chain(*formats.values(), *map(combined, formats.values()))
    rows += _shipped_formats(config, say)
    keep(rows)
    for where in config.geometries:
        subject = load_subject(where, config.size, config.device)
        say(f"{subject.title}, {config.many} candidates of a start")
        rows += _many(subject, where, config)
        keep(rows)
    return rows


def describe(config: GeometryBench, rows: Sequence[GeometryRow]) -> dict[str, Any]:
    """For JSON: what was measured, on what, and the rows."""
    return measured(config, rows, "starts", "candidates")


def start_by_start(fast: Fast, given: Inputs) -> Tensor:
    """Costs (N, K), one start per call: the plain way."""
    rows = zip(*(tensor.split(1) for tensor in given), strict=True)
    return torch.cat([fast.decide_costs(*row) for row in rows])


def _starts(subject: Subject, given: Inputs, device: str) -> GeometryRow:
    """Context and goal encoded, candidates rolled out and costed; frames are already drawn."""
    model, (N, K) = subject.model, given.candidates.shape[:2]
    every = torch.cat([given.frames, given.goal[:, None]], dim=1)
    z, fast = model.encode(every, given.proprio), Fast(model, device, record=False)

    def per_start(work: Any) -> float:
        return best_seconds(work, device) / N

    ours = per_start(lambda: fast.decide_costs(*given))
    plain = per_start(lambda: start_by_start(fast, given))
    encode = per_start(lambda: model.encode(every, given.proprio))
    rollout = per_start(lambda: model.rollout(z[:, :CONTEXT], given.history, given.candidates))
    return subject.row(
        "starts",
        "starts/s",
        1 / ours,
        1 / plain,
        f"{N} x {K} candidates against start by start; {figures(1e3 * ours)} ms a start, "
        f"{encode / (encode + rollout):.0%} of it encoding",
        ms_per_start=1e3 * ours,
        plain_ms_per_start=1e3 * plain,
        encode_ms_per_start=1e3 * encode,
        rollout_ms_per_start=1e3 * rollout,
    )


class _Rollout(NamedTuple):
    seconds: float
    grown: float  # MB at the peak, above what was there before
    futures: float  # MB of the result


def _many(subject: Subject, where: str, config: GeometryBench) -> list[GeometryRow]:
    """Many candidates of one start in chunks of two sizes: the chunk bounds the memory."""
    chunk = min(subject.model.chunk, config.many)
    sizes = max(1, chunk // 4), chunk
    work = [partial(_rollout, where, config, size) for size in sizes]
    if config.device == "cuda":
        small, large = (measure() for measure in work)
    else:  # the peak of a process never falls: each measurement needs one of its own
        small, large = (in_child(measure) for measure in work)
    many, note = config.many, f"at most {sizes[0]} at a time against {sizes[1]}"
    fits = f"{note}; the futures themselves are {figures(small.futures)} MB of it"
    rate = many / small.seconds, many / large.seconds
    took = f"{note}; {figures(small.seconds)} s against {figures(large.seconds)} s"
    about = {"chunk": sizes[0], "plain_chunk": sizes[1]}
    return [
        subject.row(f"{many} candidates", "candidates/s", *rate, took, **about),
        subject.row(
            f"memory of {many} candidates", "MB", small.grown, large.grown or None, fits, **about
        ),
    ]


def _rollout(where: str, config: GeometryBench, chunk: int) -> _Rollout:
    subject, device = load_subject(where, config.size, config.device), config.device
    model = subject.model
    given = subject.decisions(1, config.many, device)
    context = model.encode(given.frames, given.proprio[:, :CONTEXT])
    model.chunk = chunk

    def work(candidates: int) -> Tensor:
        futures: Tensor = model.rollout(context, given.history, given.candidates[:, :candidates])
        return futures

    work(1)  # libraries set themselves up
    before, began = reset_peak(device), time.perf_counter()
    futures = work(config.many)
    if device == "cuda":
        torch.cuda.synchronize()
    grown = peak(device) - before
    seconds = time.perf_counter() - began  # once: it takes seconds
    megabytes = futures.numel() * futures.element_size() / 1e6
    del futures
    return _Rollout(seconds, grown, megabytes)


def reset_peak(device: str) -> float:
    """Forget the peak; MB in use now."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated() / 1e6
    with suppress(OSError):  # on Linux: let the peak be what is in use now
        Path("/proc/self/clear_refs").write_text("5")
    return peak_memory()


def peak(device: str) -> float:
    """MB at the peak."""
    return torch.cuda.max_memory_allocated() / 1e6 if device == "cuda" else peak_memory()


def _shipped_formats(config: GeometryBench, say: Say) -> list[GeometryRow]:
    """Number formats once more on weights that mean something, where the others do not."""
    rows: list[GeometryRow] = []
    if config.device != "cuda":
        return rows
    for where in (name for name in config.geometries if name in GEOMETRIES and name in shipped()):
        subject = stored_subject(where, config.device)
        if subject.size != config.size:
            given = subject.decisions(config.starts, config.candidates, config.device)
            rows += precision_rows(subject, given, (), config.device, say)
    return rows
