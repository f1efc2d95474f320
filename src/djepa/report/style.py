"""Common style of all figures: colours distinct for any colour vision, reproducible bytes.

Every figure is written three times: PNG, SVG, and the numbers it shows as CSV.
"""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.artefacts.store import locate
from djepa.errors import DjepaError, MissingExtraError
from djepa.evaluate.paired import bootstrap
from djepa.files import naming, write_atomically
from djepa.report.tables import csv_text

ByShortlist = Mapping[str, Mapping[int, npt.ArrayLike]]  # model -> shortlist size -> (N,) by start
# Okabe and Ito, without their yellow, which is hardly visible on a light page.
BLUE, VERMILION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
PURPLE, SKY, INK = "#CC79A7", "#56B4E9", "#212529"
SOFT, LINE, PALE = "#6C727A", "#E4E5E7", "#C9CDD2"
CYCLE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, INK)
MARKERS = ("o", "s", "D", "^", "v", "P", "X")
OWN = {  # a method looks the same in every figure
    "LeWM": BLUE,
    "TD-JEPA": ORANGE,
    "JEPA-WM": GREEN,
    "DINO-WM": PURPLE,
    "D-JEPA": VERMILION,
    "fusion of four models": INK,
    "D-JEPA, as published": SKY,
}
OURS = ("D-JEPA", "D-JEPA, lifted")  # drawn in a strong colour
BOUNDS = ("best candidate", "random candidate")  # drawn in a weak colour
COLUMN, PAGE = 3.4, 6.8  # inches: one column of a two-column page, and its whole width
DPI = 200
RC = {
    "svg.hashsalt": "djepa",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",  # included in matplotlib
    "font.size": 7.5,
    "axes.titlesize": 8,
    "axes.titlelocation": "left",
    "axes.labelsize": 7.5,
    "axes.labelcolor": INK,
    "axes.edgecolor": SOFT,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.facecolor": "white",
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "figure.facecolor": "white",
    "legend.frameon": False,
    "legend.fontsize": 7,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "text.color": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
}


@contextmanager
def canvas(width: float, height: float) -> Iterator[Any]:
    """A matplotlib figure, sizes in inches, in this style; save it inside the context."""
    try:
        import matplotlib
        from matplotlib.figure import Figure  # not pyplot, which needs a display
    except ImportError:
        raise MissingExtraError("A figure", "report") from None
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # without settings of the user
        matplotlib.rcParams.update(RC)
        yield Figure(figsize=(width, height), dpi=DPI, layout="constrained")


def save(
    figure: Any, stem: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]
) -> list[Path]:
    """Write stem.png, stem.svg and the numbers as stem.csv; no date and no version in them."""
    stem = locate(stem)
    with naming(stem):
        stem.parent.mkdir(parents=True, exist_ok=True)
    silent = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
    paths = []
    for kind, metadata in silent.items():
        data = io.BytesIO()
        figure.savefig(data, format=kind, dpi=DPI, metadata=metadata)
        paths.append(stem.with_name(f"{stem.name}.{kind}"))
        write_atomically(paths[-1], data.getvalue())
    paths.append(stem.with_name(f"{stem.name}.csv"))
    write_atomically(paths[-1], csv_text(header, rows).encode())
    return paths


def looks(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Name -> colour and marker: the method's own if it has one, else the next free one."""
    listed = list(names)
    if not listed:
        raise DjepaError("A figure needs something to show.")
    own = {name: OWN[name] for name in listed if name in OWN}
    free = [colour for colour in CYCLE if colour not in own.values()] or list(CYCLE)
    others = [name for name in listed if name not in own]
    own |= {name: free[i % len(free)] for i, name in enumerate(others)}
    return {
        name: {"color": own[name], "marker": MARKERS[i % len(MARKERS)]}
        for i, name in enumerate(listed)
    }


def bar_colour(name: str) -> str:
    """Colour of a bar: strong for ours, weak for bounds, the same for all others."""
    if name in OURS:
        return VERMILION
    return PALE if name in BOUNDS else SKY


def legend_beneath(figure: Any, axes: Any, columns: int = 4) -> None:
    """One legend for the whole figure, beneath the axes."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(columns, len(labels)))


def sizes_of(of: Mapping[str, Mapping[int, Any]]) -> list[int]:
    """The shortlist or budget sizes, largest first; all series must have the same."""
    kinds = {tuple(sorted(by, reverse=True)) for by in of.values()}
    if len(kinds) != 1 or not next(iter(kinds)):
        raise DjepaError(f"All series need values at the same sizes, got {sorted(kinds)}.")
    return list(kinds.pop())


def mean_of(values: npt.ArrayLike) -> tuple[float, float, float, int]:
    """Mean, 95 % interval of resampled starts, and their number."""
    many = np.atleast_1d(np.asarray(values, float))
    if not many.size or not np.isfinite(many).all():
        raise DjepaError("A mean over starts needs numbers, got none or one that is not finite.")
    return float(many.mean()), *bootstrap(many), many.size


def signed(value: float, digits: int = 0) -> str:
    """A number with its sign, unless it rounds to zero."""
    text = f"{value:+.{digits}f}"
    return (text if float(text) else text[1:]).replace("-", "−")


def log_ticks(axes: Any, sizes: Sequence[int]) -> None:
    """A logarithmic axis with ticks only at these sizes."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(sizes), [str(size) for size in sizes])
    axes.set_xticks([], minor=True)
