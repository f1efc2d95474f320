"""Memory and time of every stage against the starts of a bank: what was stored, and its figure."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from djepa.report.style import PAGE, SOFT, canvas, legend_beneath, looks, save

RESULTS = Path(__file__).parents[2] / "docs" / "results"
STAGES = ("collect", "predict", "fit", "decide", "audit")


@cache
def scale_results() -> Any:
    """What docs/results/scale.json holds."""
    return json.loads((RESULTS / "scale.json").read_text())


def growth_rows() -> dict[str, dict[int, dict[str, float]]]:
    """Stage -> starts -> CPU seconds and peak."""
    found: dict[str, dict[int, dict[str, float]]] = {stage: {} for stage in STAGES}
    for row in scale_results()["growth"]:
        of = row["details"]
        found[row["what"].split(",")[0]][int(of["starts"])] = {"s": row["ours"], **of}
    return found


def draw_growth(folder: Path) -> list[Path]:
    """Peak memory, and CPU seconds beside what is proportional to the starts."""
    stages = growth_rows()
    sizes = sorted({starts for of in stages.values() for starts in of})
    rows = []
    with canvas(PAGE, 2.6) as figure:
        memory, time = figure.subplots(1, 2)
        for stage, look in looks(stages).items():
            of = stages[stage]
            memory.plot(sizes, [of[n]["peak_mb"] for n in sizes], label=stage, **look)
            time.plot(sizes, [of[n]["s"] for n in sizes], **look)
            rows += [(stage, n, of[n]["s"], of[n]["peak_mb"]) for n in sizes]
        plain = {"color": SOFT, "linewidth": 0.8, "linestyle": (0, (4, 3))}
        time.plot(sizes, [1e-3 * n for n in sizes], **plain)
        memory.plot([], label="1 ms a start", **plain)
        for axes in (memory, time):
            axes.set_xscale("log")
            axes.set_xticks(sizes, [f"{n:,}" for n in sizes])
            axes.set_xticks([], minor=True)
            axes.set_xlabel("starts of the bank")
        memory.set(ylim=(0, None), ylabel="peak memory, MB")
        time.set(yscale="log", ylabel="CPU time, s")
        time.set_yticks([1, 10, 100], ["1", "10", "100"])
        time.set_yticks([], minor=True)
        legend_beneath(figure, memory, 6)
        return save(figure, folder / "growth", ("stage", "starts", "cpu_s", "peak_mb"), rows)
