"""Which decisions the page shows, and as what. Legend: N starts, K candidates."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from djepa.align.methods import Choice, Population
from djepa.bank.read import Bank
from djepa.report.inspector import View, inspect
from djepa.studies.decisions import eligible, solved

SHOWN = ("native lewm", "native tdjepa", "fusion, four", "relational", "D-JEPA")
GAINS, LOSSES, OTHERS = 5, 2, 3


def inspection(
    bank: Bank, test: Population, choices: Mapping[str, Choice], pools: str
) -> dict[str, Any]:
    """Some starts that D-JEPA gains over fusion, some that it loses, and the first eligible ones.

    They illustrate; nothing is counted on them.
    """
    views = {name: _view(choices[name]) for name in SHOWN if name in choices}
    e = test.evidence
    costs = {name: e.costs[..., m].cpu().numpy() for m, name in enumerate(e.names)}
    return inspect(bank, shown(test, choices), costs, views, pools)


def shown(test: Population, choices: Mapping[str, Choice]) -> list[int]:
    """Positions of the starts, without repetition, in order."""
    ours, theirs = (solved(choices[name], test) for name in ("D-JEPA", "fusion, four"))
    parts = [
        np.flatnonzero(ours & ~theirs)[:GAINS],
        np.flatnonzero(theirs & ~ours)[:LOSSES],
        np.flatnonzero(eligible(test).cpu().numpy())[:OTHERS],
        np.arange(min(2, len(ours))),
    ]
    return sorted(set(np.concatenate(parts).tolist()))


def _view(choice: Choice) -> View:
    base = None if choice.base is None else choice.base.cpu().numpy()
    opened = None if choice.opened is None else choice.opened.cpu().numpy()
    gain = None if choice.advantage is None else choice.advantage.cpu().numpy()
    score, chosen = choice.score.cpu().numpy(), choice.position.cpu().numpy()
    return View(score, chosen, base, opened, gain, choice.threshold)
