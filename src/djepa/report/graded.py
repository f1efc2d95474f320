"""Tables, headline and bars for graded outcomes: means of a quality, in points of 100."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from djepa.align.registry import label
from djepa.evaluate.gap import gap_closed
from djepa.evaluate.graded import log_of, mean_interval, qualities
from djepa.evaluate.paired import RESAMPLES, with_ends
from djepa.evaluate.rows import Row
from djepa.report.page import Headline
from djepa.report.results import Rows, Views, pair_of
from djepa.report.style import INK, PAGE, bar_colour, canvas, save
from djepa.report.tables import Table


def quality_table(seen: Views, methods: Sequence[str], name: str) -> Table:
    """Mean quality of every method in every view, and the gap closed to the best candidate."""
    columns, lines = ["method"], {method: [label(method)] for method in methods}
    for view, cases in seen.items():
        (rows,) = cases.values()
        known, logs = qualities(rows), log_of(rows)
        base = next(iter(m for m in methods if m.startswith("native")))
        columns += [
            f"{view}, {len(logs)} scenes of {len(set(logs.tolist()))} logs",
            f"{view}, gap closed",
        ]
        for method in methods:
            if method not in known:
                lines[method] += ["", ""]
                continue
            low, high = (100 * end for end in mean_interval(known[method], logs))
            mean = 100 * known[method].mean()
            gap = "" if method == base else str(gap_closed(rows, method, base, graded=True))
            lines[method] += [f"{mean:.1f} ({low:.1f} to {high:.1f})", gap]
    note = (
        f"95 % intervals: {RESAMPLES:,} resamples of whole logs. Gap closed: share of what the "
        "best candidate gains over the native choice."
    )
    title = f"Mean {name}, points of 100 (95 % interval)"
    return Table("quality", title, tuple(columns), tuple(map(tuple, lines.values())), note)


def quality_headline(rows: Rows, ours: str, base: str, unit: str, name: str) -> Headline:
    """Ours in one unit, and its gain over the native choice."""
    p = pair_of(rows, ours, base, graded=True)
    assert p is not None  # every study runs both
    low, high = (100 * end for end in p.ours_interval)
    gain = f"{with_ends(p.difference, *p.difference_interval, ' points')} over {label(base)}"
    value, counted = f"{name} {100 * p.ours:.1f}", f"{low:.1f} to {high:.1f}, {p.starts} scenes"
    return Headline(f"{label(ours)}, {unit}", value, counted, gain)


def quality_bars(
    stem: Path, rows: Mapping[str, Sequence[Row]], methods: Sequence[str], name: str
) -> list[Path]:
    """A panel for each case, a bar for each method."""
    numbers: list[tuple[str, str, float, float, float]] = []
    with canvas(PAGE, 0.7 + 0.19 * len(methods)) as figure:
        panels = figure.subplots(1, len(rows), squeeze=False, sharey=True)[0]
        for axes, (case, of) in zip(panels, rows.items(), strict=True):
            known, logs = qualities(of), log_of(of)
            for y, method in enumerate(methods):
                if method not in known:
                    continue
                mean = 100 * float(known[method].mean())
                low, high = (100 * end for end in mean_interval(known[method], logs))
                numbers.append((case, label(method), mean, low, high))
                axes.barh(y, mean, 0.72, color=bar_colour(label(method)))
                axes.plot([low, high], [y, y], color=INK, linewidth=1.0)
                axes.text(1.5, y, f"{mean:.1f}", va="center", fontsize=6.5)
            axes.set(title=case, xlabel=f"mean {name}", xlim=(0, 100), ylim=(len(methods), -1))
            axes.grid(visible=False, axis="y")
        panels[0].set_yticks(np.arange(len(methods)), [label(method) for method in methods])
        return save(figure, stem, ("case", "method", name, "low", "high"), numbers)
