"""What docs/scale.md shows, computed from docs/results/scale.json.

The file holds what was measured: `growth` (rows of `djepa bench growth --banks`), `full` (the same
on push banks of 63 candidates), `blocks` (peaks of several runs before and after a change) and
`soak`.
"""

import json
import statistics
from collections.abc import Callable

from tools.docs.growth import RESULTS, growth_rows, scale_results

from djepa.evaluate.markdown import markdown

Measured = dict[str, float]


def scale_memory() -> str:
    """Peak memory by stage and starts."""
    return _by_stage(
        lambda of: f"{of['peak_mb']:,.0f} MB", "more per start", lambda of: f"{_slope(of):.2f} kB"
    )


def _by_stage(
    cell: Callable[[Measured], str], last: str, of_all: Callable[[dict[int, Measured]], str]
) -> str:
    """Stages against starts, and one more column."""
    sizes = sorted({starts for of in growth_rows().values() for starts in of})
    lines = [
        (stage, *(cell(of[n]) if n in of else "" for n in sizes), of_all(of))
        for stage, of in growth_rows().items()
    ]
    return markdown(("stage", *(f"{n:,} starts" for n in sizes), last), lines)


def _slope(of: dict[int, dict[str, float]]) -> float:
    """KB by which the peak grows per start, between the two largest banks."""
    a, b = sorted(of)[-2:]
    return max(0.0, 1e3 * (of[b]["peak_mb"] - of[a]["peak_mb"]) / (b - a))


def scale_time() -> str:
    """CPU seconds by stage and starts, and how many times as long ten times as many take."""
    return _by_stage(
        lambda of: f"{of['s']:,.1f} s",
        "starts/s, largest",
        lambda of: f"{max(of) / of[max(of)]['s']:,.0f}",
    )


def scale_pool() -> str:
    """Candidates and controls of the banks of the curve."""
    of = scale_results()["growth"][0]["details"]
    return f"{of['candidates']:.0f} candidates of {of['horizon']:.0f} controls"


def _full() -> dict[str, dict[int, dict[str, float]]]:
    """Stage -> starts -> what was measured on push banks of 63 candidates of 25 controls."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    for row in scale_results()["full"]:
        of = row["details"]
        found.setdefault(row["what"].partition(",")[0], {})[of["starts"]] = of
    return found


def _largest() -> dict[str, dict[str, float]]:
    return {stage: of[max(of)] for stage, of in _full().items()}


def scale_full() -> str:
    """Every stage on the largest push bank of 63 candidates; memory beside that of the smallest."""
    small, large = min(_full()["collect"]), max(_full()["collect"])
    peaks, lines = [f"peak, {n:,} starts" for n in (small, large)], []
    for stage, by in _full().items():
        of = by[large]
        disk = f"{of['stored_mb'] / 1000:,.2f} GB" if of["stored_mb"] > 10 else ""
        used = [f"{by[n]['peak_mb']:,.0f} MB" for n in (small, large)]
        spent = (f"{of['seconds']:,.0f} s", f"{large / of['seconds']:,.0f}")
        lines.append((stage, *spent, *used, disk))
    return markdown(("stage", "CPU", "starts/s", *peaks, "on disk"), lines)


def scale_blocks() -> str:
    """Peaks of fit and audit before and after they worked in blocks of starts: medians of runs."""
    rows = scale_results()["blocks"]["rows"]
    lines = []
    for stage in dict.fromkeys(row["stage"] for row in rows):
        of = sorted((row for row in rows if row["stage"] == stage), key=lambda row: row["starts"])
        few, many = of[0]["starts"], of[-1]["starts"]
        slopes = []
        for when in ("before_mb", "after_mb"):
            low, high = (statistics.median(row[when]) for row in (of[0], of[-1]))
            slopes.append(1e3 * (high - low) / (many - few))
            lines.append((f"{stage}, {when.removesuffix('_mb')}", f"{low:,.0f} MB",
                          f"{high:,.0f} MB", f"{slopes[-1]:.1f} kB"))  # fmt: skip
        lines.append(("after / before", "", "", f"{slopes[1] / slopes[0]:.2f}"))
    return markdown(("stage", f"{few:,} starts", f"{many:,} starts", "more per start"), lines)


def scale_shape() -> str:
    """Candidates and controls of these banks."""
    of = scale_results()["blocks"]
    return f"{of['candidates']} candidates of {of['horizon']} controls"


def scale_starts() -> str:
    """Starts of the largest of these banks."""
    return f"{max(_full()['collect']):,}"


def _gpu() -> float:
    """Starts per second that a GPU predicts with a LeWM of the paper's size."""
    rows = json.loads((RESULTS / "bench-geometry-gpu.json").read_text())["rows"]
    return next(r["ours"] for r in rows if r["what"] == "lewm paper, float32 + recorded")


def scale_needs(starts: int = 10_000_000, cores: int = 64) -> str:
    """Storage, hours and memory that so many starts would need, from the measured rates."""
    full, stored = _largest(), scale_results()
    share = starts / full["collect"]["starts"]

    def hours(stage: str) -> float:
        return full[stage]["seconds"] * share / 3600

    def memory(stage: str) -> str:
        by = _full()[stage]
        used = 1e3 * by[max(by)]["peak_mb"] + _slope(by) * (starts - max(by))
        return f"{used / 1e6:,.1f} GB"

    bank = full["collect"]["stored_mb"] * share / 1e6
    evidence = stored["evidence_bytes"] * starts / 1e12
    rows = (
        ("collect", f"{bank:.2f} TB", _cores(hours("collect"), cores), memory("collect")),
        ("predict, per geometry", f"{evidence:.2f} TB", f"{starts / _gpu() / 3600:.1f} h of a GPU",
         memory("predict")),
        ("fit", "", _cores(hours("fit"), cores), memory("fit")),
        ("decide, with its record", f"{full['decide']['stored_mb'] * share / 1e6:.2f} TB",
         _cores(hours("decide"), cores), memory("decide")),
        ("audit", "", _cores(hours("audit"), cores), memory("audit")),
    )  # fmt: skip
    return markdown(("stage", "storage", "time", "memory"), rows)


def _cores(hours: float, cores: int) -> str:
    node = f": {hours / cores:.1f} h on a node of {cores} cores" if hours > cores else ""
    return f"{hours:,.0f} core hours{node}"


def scale_resident(stage: str, starts: int = 10_000_000) -> str:
    """Memory that a stage would hold of so many starts of 63 candidates, from its slope."""
    more = _slope(_full()[stage])
    return f"{more:.1f} kB per start at 63 candidates, {more * starts / 1e6:,.0f} GB"


def scale_soak() -> str:
    """Commands stopped at random moments: tried, survived."""
    found: dict[str, list[int]] = {}
    for run in scale_results()["soak"]["runs"]:
        for row in run["rows"]:
            of = found.setdefault(row["name"], [0, 0])
            found[row["name"]] = [of[0] + row["tried"], of[1] + row["survived"]]
    lines = [(name, str(n), str(m)) for name, (n, m) in found.items()]
    return markdown(("command", "stopped", "went on to the same bytes"), lines)


def scale_soaked() -> str:
    """How long the soak ran."""
    runs = scale_results()["soak"]["runs"]
    minutes = sum(run["minutes"] for run in runs)
    return f"{len(runs)} runs, {minutes:.0f} minutes together:"
