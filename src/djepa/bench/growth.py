"""How time and memory grow with starts, candidates and workers; every row against the smallest.

A ratio of 4 where there is four times as much is linear; the operator's attention is O(K²).

Legend: N starts, K candidates.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from djepa.align.fit import AlignConfig, Alignment
from djepa.bank.collect import collect
from djepa.bench.align_work import problem
from djepa.bench.measure import Row, Say, in_child, peak_memory
from djepa.bench.subject import best_seconds, figures
from djepa.rollout.engine import LocalEngine, usable_cores
from djepa.rollout.execute import CollectConfig

STARTS, CANDIDATES, COLLECTED = (64, 256, 1024), (63, 252, 1008, 4032), (32, 128)
LATENT = 192
Measure = Callable[[int], tuple[float, float]]  # size -> seconds, megabytes


def bench_growth(say: Say) -> list[Row]:
    """All measurements, on the CPU."""
    rows: list[Row] = []
    say("deciding, by starts")
    rows += _series("decide, starts", STARTS, lambda n: in_child(partial(_decide, n, 63)))
    say("deciding, by candidates of one start")
    rows += _series("decide, candidates", CANDIDATES, lambda k: in_child(partial(_decide, 1, k)))
    say("collecting, by starts")
    rows += _series("collect, starts", COLLECTED, lambda n: in_child(partial(_collect, n, 1)))
    say("collecting, by workers")
    counts = [count for count in (1, 2, 4, 8, 16) if count <= usable_cores()]
    for count in counts[1:]:
        one, many = (_collect(COLLECTED[-1], c)[0] for c in (1, count))
        note = f"{COLLECTED[-1]} starts in {figures(many)} s, against one worker"
        rate = [COLLECTED[-1] / seconds for seconds in (many, one)]
        rows.append(Row(f"collect, {count} workers", "starts/s", rate[0], rate[1], note))
    return rows


def _series(what: str, sizes: tuple[int, ...], measure: Measure) -> list[Row]:
    """Seconds of every size against the smallest; memory in the note."""
    found = [measure(size) for size in sizes]
    return [
        Row(
            f"{what}: {size:,}",
            "ms",
            1000 * seconds,
            1000 * found[0][0],
            f"{size / sizes[0]:g} times as much; memory grows by {grown:.0f} MB",
        )
        for size, (seconds, grown) in zip(sizes, found, strict=True)
    ]


def _decide(starts: int, candidates: int) -> tuple[float, float]:
    """Seconds, and megabytes by which the peak grows: the published operator, untrained."""
    fit, calibration = (problem(name, 16, 63, LATENT, "cpu") for name in ("fit", "cal"))
    alignment = Alignment(AlignConfig(updates=1)).fit(*fit).calibrate(*calibration)
    evidence, _ = problem("test", starts, candidates, LATENT, "cpu")
    before = peak_memory()
    seconds = best_seconds(lambda: alignment.decide(evidence), "cpu")
    return seconds, peak_memory() - before


def _collect(starts: int, workers: int) -> tuple[float, float]:
    """Likewise: draw, propose, execute, write."""
    config = CollectConfig(starts=starts, split="bench", block=8)
    with TemporaryDirectory() as folder:
        before, began = peak_memory(), time.perf_counter()
        collect(Path(folder) / "bank", config, LocalEngine(workers))
        return time.perf_counter() - began, peak_memory() - before
