"""Every bench in one run, for one table."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from djepa.bench.align import AlignBench, bench_align
from djepa.bench.geometry import GeometryBench, bench_geometry
from djepa.bench.growth import bench_growth
from djepa.bench.measure import Row, Say, machine
from djepa.bench.world import WorldBench, bench_world
from djepa.models.weights import shipped

OTHERS = {"reacher": "reacher-lewm", "granular": "granular-dinowm"}  # one of each other world


@dataclass(frozen=True)
class AllBench:
    """What to measure; growth has nothing to choose."""

    world: WorldBench
    geometry: GeometryBench
    align: AlignBench


@dataclass
class Measured:
    """Rows of every bench so far, and how long each took."""

    rows: dict[str, Sequence[Row]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def bench_all(
    config: AllBench, say: Say, keep: Callable[[Measured], None] = lambda measured: None
) -> Measured:
    """All measurements; `keep` is given those so far whenever a bench is done."""
    benches: dict[str, Callable[[Say], Sequence[Row]]] = {
        "world": partial(bench_world, config.world),
        "geometry": partial(bench_geometry, config.geometry),
        "align": partial(bench_align, config.align),
        "growth": bench_growth,
    }
    measured = Measured()
    for name, bench in benches.items():
        say(f"the {name} bench")
        began = time.perf_counter()
        measured.rows[name] = bench(say)
        measured.seconds[name] = time.perf_counter() - began
        keep(measured)
    return measured


def of_other_worlds(worlds: Sequence[str]) -> list[str]:
    """A geometry for each of these worlds that is not push, where one is shipped."""
    return [OTHERS[world] for world in worlds if OTHERS.get(world) in shipped()]


def describe(config: AllBench, measured: Measured) -> dict[str, Any]:
    """For JSON: what was measured, on what, and the rows, each with the bench that it is from."""
    rows = [
        {"bench": name, **row.as_dict()} for name, rows in measured.rows.items() for row in rows
    ]
    return {**machine(config.geometry.device), "seconds": measured.seconds, "rows": rows}
