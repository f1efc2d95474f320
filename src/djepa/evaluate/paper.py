"""The numbers printed in the paper, by study, population, pools and method (paper.csv).

A number is comparable only with the same method on the same kind of pool and the same population
of the same study, so all four form its key: `figure` returns None for anything else. The paper's
starts and weights differ from ours, so the numbers are for reference and not for tests.

Methods are named as in align/registry.py. The paper's row "D-JEPA" is `composition` on PushT and
`relational` elsewhere. Pools are named by their profile (docs/pools.md); PushT's are the 255
candidates of `pusht-confirmation` (256, of which the reference is removed), of which TD-JEPA's
cost retains 63.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

RETAINED = "pusht-confirmation"  # the pools of its PushT tables


@dataclass(frozen=True)
class Key:
    """The key of a figure: what was measured, on what."""

    study: str
    population: str
    pools: str
    method: str
    case: str = ""  # shape, look, task or success rule
    quantity: str = "success"  # per cent, unless a name below says otherwise
    candidates: int = 63  # budget or shortlist


@dataclass(frozen=True)
class Figure:
    """One printed number."""

    value: float
    starts: int
    source: str  # label of the table, figure or appendix


def figure(
    study: str,
    population: str,
    pools: str,
    method: str,
    case: str = "",
    quantity: str = "success",
    candidates: int = 63,
) -> Figure | None:
    """The paper's figure with exactly this key, or None."""
    return FIGURES.get(Key(study, population, pools, method, case, quantity, candidates))


def select(
    study: str, quantity: str = "success", population: str = "confirmation"
) -> dict[Key, Figure]:
    """All figures of one quantity: a whole table of the paper, in its order."""
    wanted = (study, quantity, population)
    return {k: f for k, f in FIGURES.items() if (k.study, k.quantity, k.population) == wanted}


def columns(
    study: str,
    cases: Mapping[str, tuple[str, str]],
    quantity: str = "success",
    names: Mapping[str, str] | None = None,
) -> dict[tuple[str, str], float]:
    """(column, method) -> value, for tables with a column for each case.

    `cases`: column -> its profile and the paper's case. `names`: the paper's method -> ours.
    """
    return {
        (column, (names or {}).get(key.method, key.method)): found.value
        for key, found in select(study, quantity).items()
        for column, of in cases.items()
        if (key.pools, key.case) == of
    }


def _read() -> dict[Key, Figure]:
    """A row for each figure: the fields of its key, then its own."""
    _, *rows = csv.reader((files("djepa.evaluate") / "paper.csv").read_text().splitlines())
    found = {}
    for study, population, pools, method, case, quantity, candidates, value, starts, source in rows:
        key = Key(study, population, pools, method, case, quantity, int(candidates))
        found[key] = Figure(float(value), int(starts), source)
    return found


FIGURES = _read()
