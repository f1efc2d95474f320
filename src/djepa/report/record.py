"""A decision record as data of the inspector, with the bank's data of the same starts."""

from typing import Any

import numpy as np

from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.interop.record import DecisionRecord, Decisions, Scorer
from djepa.report.inspector import View, inspect


def inspect_record(bank: Bank, given: Decisions, label: str = "") -> dict[str, Any]:
    """Data of the inspector for every decision of the record; see `djepa.report.inspector`."""
    at = {bytes(row).hex(): i for i, row in enumerate(bank.decisions.identities)}
    unknown = [one.start[:16] for one in given.decisions if one.start not in at]
    if unknown or not given.decisions:
        raise DjepaError(f"{bank.path} has no start {', '.join(unknown[:3]) or 'of the record'}.")
    if len({tuple(sorted((s.name, s.kind) for s in one.scorers)) for one in given.decisions}) > 1:
        raise DjepaError("The decisions of a record must have the same scorers to be shown.")
    rows = [at[one.start] for one in given.decisions]
    ids, shape = bank.decisions.candidate_ids, (len(bank), bank.candidates)
    scores: dict[str, Any] = {}
    chosen, opened = np.zeros(len(bank), np.int64), np.zeros(len(bank), bool)
    advantage, final = np.zeros(len(bank)), np.zeros(shape)
    for row, one in zip(rows, given.decisions, strict=True):
        if sorted(one.candidates) != sorted(ids[row].tolist()):
            raise DjepaError(f"Decision {one.start[:16]} has other candidates than {bank.path}.")
        for scorer in one.scorers:
            scores.setdefault(scorer.name, np.zeros(shape))[row] = _placed(one, scorer, ids[row])
        place = {candidate: i for i, candidate in enumerate(ids[row].tolist())}
        chosen[row] = place[one.choice]
        final[row, [place[candidate] for candidate in one.order]] = np.arange(len(place))
        if one.gate:
            opened[row], advantage[row] = one.gate.opened, one.gate.advantage
    first, view = given.decisions[0], View(final, chosen)
    named = {scorer.kind: scorer.name for scorer in first.scorers}
    if all(one.gate for one in given.decisions) and {"base", "aligned"} <= named.keys():
        base, aligned = scores[named["base"]], scores[named["aligned"]]
        score = np.where(opened[:, None], aligned, base)
        view = View(score, chosen, base, opened, advantage, _threshold(given))
    costs = {s.name: scores[s.name] for s in first.scorers if s.kind == "model"}
    return inspect(bank, rows, costs, {"decisions": view}, label)


def _threshold(given: Decisions) -> float | None:
    """The threshold of all gates, if it is one."""
    found = {one.gate.threshold for one in given.decisions if one.gate}
    return found.pop() if len(found) == 1 else None


def _placed(one: DecisionRecord, scorer: Scorer, ids: Any) -> list[float]:
    """Costs of a scorer in the bank's order of candidates."""
    cost = dict(zip(one.candidates, scorer.cost, strict=True))
    return [cost[candidate] for candidate in ids.tolist()]
