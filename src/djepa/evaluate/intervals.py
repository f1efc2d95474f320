"""Counts as rates, with the interval that says how much to trust them, and as tables."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from djepa.errors import DjepaError

Array = npt.NDArray[Any]
Z95 = 1.959963984540054  # 97.5 % point of the standard normal


def wilson(hits: int, of: int, z: float = Z95) -> tuple[float, float]:
    """Wilson's score interval of a share p = hits / of, n = of:

        centre ± half,   centre = (p + z²/2n) / (1 + z²/n),
                         half   = z √(p(1 - p)/n + z²/4n²) / (1 + z²/n).

    It holds near 0 and 1, where the textbook p ± z √(p(1 - p)/n) leaves [0, 1] or has no width.
    Of nothing, nothing is known: (0, 1).
    """
    if not 0 <= hits <= of:
        raise DjepaError(f"A rate needs 0 <= hits <= of, got {hits} of {of}.")
    if of == 0:
        return 0.0, 1.0
    p, n = hits / of, of
    centre = p + z * z / (2 * n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    width = 1 + z * z / n
    # At the ends the formula is exact but for rounding, which must not leave the share outside.
    low = 0.0 if hits == 0 else (centre - half) / width
    high = 1.0 if hits == of else (centre + half) / width
    return low, high


@dataclass(frozen=True)
class Rate:
    """So many hits of so many."""

    hits: int
    of: int

    @property
    def share(self) -> float:
        """Hits of trials; NaN of nothing."""
        return self.hits / self.of if self.of else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson 95 %; meant for independent trials, such as one pick per start."""
        return wilson(self.hits, self.of)

    def percent(self, interval: bool = False) -> str:
        """Such as `37.5 %`, or with the interval `37.5 % (13.7-69.4)`."""
        if not self.of:
            return "none"
        low, high = self.interval
        ends = f" ({100 * low:.1f}-{100 * high:.1f})" if interval else ""
        return f"{100 * self.share:.1f} %{ends}"


def rate_of(hits: Array) -> Rate:
    """The rate of an array of booleans."""
    return Rate(int(hits.sum()), hits.size)


def rates_by(hits: Array, counted: Array, families: Array) -> dict[str, Rate]:
    """The rate of every label among what is counted; three arrays of one shape."""
    names = sorted(set(families[counted].tolist()))
    return {name: rate_of(hits[counted & (families == name)]) for name in names}


def plain(value: Any) -> Any:
    """Dataclasses as dictionaries for JSON; a rate also with its share and its interval."""
    if isinstance(value, Rate):
        share = value.share if value.of else None
        return {"hits": value.hits, "of": value.of, "share": share, "wilson95": value.interval}
    if dataclasses.is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {name: plain(entry) for name, entry in value.items()}
    return value


def markdown_table(
    corner: str, head: Sequence[str], columns: Sequence[dict[str, str]], blank: str = "-"
) -> str:
    """Columns of row -> text under their heads; rows in order of first mention; "" if none."""
    names = dict.fromkeys(name for column in columns for name in column)
    rows = [[name, *(column.get(name, blank) for column in columns)] for name in names]
    lines = [[corner, *head], ["---"] + ["--:"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) if rows else ""
