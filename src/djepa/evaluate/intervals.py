"""Rates with Wilson score intervals, and tables of them."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy.typing as npt
from scipy.stats import binomtest

from djepa.errors import DjepaError
from djepa.evaluate.markdown import markdown

Array = npt.NDArray[Any]


@cache  # tables ask for the same counts again and again
def wilson(hits: int, of: int) -> tuple[float, float]:
    """Wilson's 95 % score interval of hits / of; without trials it is (0, 1).

    Unlike p ± 1.96 √(p(1 - p)/n) it stays within [0, 1] and has a width near 0 and 1.
    """
    if not 0 <= hits <= of:
        raise DjepaError(f"A rate needs 0 <= hits <= of, got {hits} of {of}.")
    if of == 0:
        return 0.0, 1.0
    low, high = binomtest(hits, of).proportion_ci(method="wilson")
    return float(low), float(high)


@dataclass(frozen=True)
class Rate:
    """A number of hits out of a number of trials."""

    hits: int
    of: int

    @property
    def share(self) -> float:
        """Hits / trials; NaN without trials."""
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
    """Label -> rate of `hits` where `counted`; `families` holds the labels, all of one shape."""
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


def markdown_table(corner: str, head: Sequence[str], columns: Sequence[dict[str, str]]) -> str:
    """A table from columns (row -> text); rows in order of first appearance; "" without rows."""
    names = dict.fromkeys(name for column in columns for name in column)
    rows = [[name, *(column.get(name, "-") for column in columns)] for name in names]
    return markdown([corner, *head], rows) if rows else ""
