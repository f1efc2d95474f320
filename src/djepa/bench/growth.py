"""Growth of time and memory with starts, candidates and workers; each row against the smallest.

A ratio of 4 for four times the size is linear; the operator's attention is O(K²).
"""

from collections.abc import Callable, Iterator
from functools import partial

from djepa.align.fit import AlignConfig, Alignment
from djepa.bench.align import problem
from djepa.bench.banks import bench_banks
from djepa.bench.measure import Options, Row, Say, figures, in_child, peak, seconds_of
from djepa.bench.world import collecting
from djepa.rollout.engine import usable_cores
from djepa.rollout.execute import CollectConfig

STARTS, CANDIDATES, COLLECTED = (64, 256, 1024), (63, 252, 1008, 4032), (32, 128)


def bench_growth(options: Options, say: Say) -> Iterator[Row]:
    """All measurements, on the CPU; only those of whole banks if `options.banks` is given."""
    say("measuring growth ...")
    if options.banks:
        yield from bench_banks(options)
        return
    yield from _series("decide, starts", STARTS, lambda n: partial(_decide, n, 63))
    yield from _series("decide, candidates", CANDIDATES, lambda k: partial(_decide, 1, k))
    yield from _series("collect, starts", COLLECTED, lambda n: partial(_collect, n, 1))
    starts = COLLECTED[-1]
    for workers in (count for count in (2, 4, 8, 16) if count <= usable_cores()):
        many, one = (_collect(starts, count)[0] for count in (workers, 1))
        note = f"{starts} starts in {figures(many)} s, against one worker"
        yield Row(f"collect, {workers} workers", "starts/s", starts / many, starts / one, note)


def _series(
    what: str, sizes: tuple[int, ...], work: Callable[[int], Callable[[], tuple[float, float]]]
) -> Iterator[Row]:
    """Milliseconds of every size against the smallest; memory in the note."""
    smallest = None
    for size in sizes:
        seconds, grown = in_child(work(size))
        smallest = smallest or 1e3 * seconds
        note = f"{size / sizes[0]:g} times as much; memory grows by {grown:.0f} MB"
        yield Row(f"{what}: {size:,}", "ms", 1e3 * seconds, smallest, note)


def _decide(starts: int, candidates: int) -> tuple[float, float]:
    """Seconds, and megabytes by which the peak grows: the published operator, untrained."""
    fit, calibration = (problem(name, 16, 63) for name in ("fit", "cal"))
    alignment = Alignment(AlignConfig(updates=1)).fit(*fit).calibrate(*calibration)
    evidence, _ = problem("test", starts, candidates)
    before = peak("cpu")
    seconds = seconds_of(lambda: alignment.decide(evidence))
    return seconds, peak("cpu") - before


def _collect(starts: int, workers: int) -> tuple[float, float]:
    """Seconds and megabytes of collecting a bank."""
    before = peak("cpu")
    seconds = collecting(CollectConfig(starts=starts, split="bench", block=8), workers)
    return seconds, peak("cpu") - before
