"""The loss plot beside a training log."""

import io
import json
import math
from pathlib import Path
from typing import Any

from djepa.errors import DjepaError, MissingExtraError
from djepa.files import write_atomically

BLUE, VERMILION = "#0072B2", "#D55E00"  # Okabe and Ito: different for any colour vision
NUMBERS = ("step", "steps", "loss", "validation", "selection")
Entry = dict[str, Any]  # phase: str, and some of NUMBERS


def loss_plot(log: Path) -> Path:
    """Draw `loss.png` beside the log: a column per phase, loss above, selection success beneath."""
    entries = _entries(log)
    phases = list(dict.fromkeys(entry["phase"] for entry in entries))
    try:
        from matplotlib.figure import Figure  # not pyplot, which needs a display
        from matplotlib.ticker import LogLocator, NullFormatter
    except ImportError:
        raise MissingExtraError("A loss plot", "report") from None
    figure = Figure(figsize=(1.2 + 3.6 * len(phases), 5.0), dpi=150, layout="constrained")
    panels = figure.subplots(2, len(phases), sharex="col", sharey="row", squeeze=False)
    for (above, beneath), phase in zip(panels.T, phases, strict=True):
        above.set_title(phase, loc="left")
        above.plot(*_series(entries, phase, "loss"), "o-", color=BLUE, markersize=3)
        above.plot(*_series(entries, phase, "validation"), "s", color=VERMILION, markersize=4)
        above.margins(x=0.1)  # room for the number beneath
        _selection(beneath, *_series(entries, phase, "selection"))
    panels[0, 0].set(ylabel="loss (squares: other episodes)", yscale="log")
    panels[0, 0].yaxis.set(major_locator=LogLocator(subs=(1, 2, 5)), major_formatter="{x:g}")
    panels[0, 0].yaxis.set_minor_formatter(NullFormatter())
    panels[1, 0].set(ylabel="selection success, %", ylim=(0, 100))
    for axes in panels.flat:
        axes.grid(color="#E4E5E7", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
    data, path = io.BytesIO(), log.with_name("loss.png")
    figure.savefig(data, format="png")
    write_atomically(path, data.getvalue())
    return path


def _selection(axes: Any, steps: list[float], shares: list[float]) -> None:
    """Draw every evaluated checkpoint; the best with its number, ties to the later one."""
    axes.plot(steps, [100 * s for s in shares], "D--", color=VERMILION, markersize=5, linewidth=0.8)
    axes.set_xlabel("step")
    for share, step in sorted(zip(shares, steps, strict=True))[-1:]:
        at, label = (step, 100 * share), f"{100 * share:.1f} %"
        axes.annotate(label, at, (0, 8), textcoords="offset points", ha="center")


def _series(entries: list[Entry], phase: str, what: str) -> tuple[list[float], list[float]]:
    """Steps and values of one phase."""
    found = [entry for entry in entries if entry["phase"] == phase and what in entry]
    return [entry["step"] for entry in found], [entry[what] for entry in found]


def _entries(log: Path) -> list[Entry]:
    """Every line of the log; a resumed run has a single log."""
    entries: list[Entry] = []
    text = log.read_text(errors="replace") if log.is_file() else ""
    for number, line in enumerate(text.splitlines(), 1):
        try:
            record = json.loads(line)
            entry = {name: float(record[name]) for name in NUMBERS if name in record}
        except (ValueError, TypeError):
            record, entry = {}, {}
        if not isinstance(record, dict) or "phase" not in record:
            raise DjepaError(f"{log}, line {number}, is not a line of a training log. Remove it.")
        entry.setdefault("step", entry.get("steps", 0.0))  # the end of a phase counts its steps
        entries.append({**entry, "phase": str(record["phase"])})
    if not any(math.isfinite(entry.get("loss", math.nan)) for entry in entries):
        raise DjepaError(f"{log} holds no loss: there is no such file, or nothing was trained yet.")
    return entries
