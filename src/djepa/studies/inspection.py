"""Which decisions the page shows, and as what. Legend: N starts, K candidates."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.align.methods import Choice, Population
from djepa.bank.read import Bank
from djepa.report.inspector import View, inspect
from djepa.studies.decisions import solved
from djepa.tasks.task import PLAIN

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Plan:
    """What is shown: methods, and starts on which the first of a pair differs from the second."""

    methods: tuple[str, ...]
    pair: tuple[str, str]
    many: tuple[int, int, int] = (5, 2, 3)  # gains, losses, others


PUSHT = Plan(
    ("native lewm", "native tdjepa", "fusion, four", "relational", "D-JEPA"),
    ("D-JEPA", "fusion, four"),
)


def inspection(
    bank: Bank,
    test: Population,
    choices: Mapping[str, Choice],
    matters: Bools,
    label: str,
    plan: Plan = PUSHT,
    look: str = PLAIN,
) -> dict[str, Any]:
    """Some decisions as the page shows them. They illustrate; nothing is counted on them.

    `matters` (N,) says which starts are worth a look even where nothing changed.
    """
    views = {name: _view(choices[name]) for name in plan.methods if name in choices}
    e = test.evidence
    costs = {name: e.costs[..., m].cpu().numpy() for m, name in enumerate(e.names)}
    ours, theirs = (solved(choices[name], test) for name in plan.pair)
    return inspect(bank, shown(ours, theirs, matters, plan.many), costs, views, label, look)


def shown(ours: Bools, theirs: Bools, matters: Bools, many: tuple[int, int, int]) -> list[int]:
    """(N,) each -> positions of so many gains, losses and others, without repetition, in order."""
    kinds = (ours & ~theirs, theirs & ~ours, matters)
    parts = [np.flatnonzero(kind)[:most] for kind, most in zip(kinds, many, strict=True)]
    return sorted(set(np.concatenate([*parts, np.arange(min(2, len(ours)))]).tolist()))


def _view(choice: Choice) -> View:
    base = None if choice.base is None else choice.base.cpu().numpy()
    opened = None if choice.opened is None else choice.opened.cpu().numpy()
    gain = None if choice.advantage is None else choice.advantage.cpu().numpy()
    score, chosen = choice.score.cpu().numpy(), choice.position.cpu().numpy()
    return View(score, chosen, base, opened, gain, choice.threshold)
