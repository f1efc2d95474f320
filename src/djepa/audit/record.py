"""Audit a decision record against the outcomes of a bank, or by its own executed choices.

Legend: N decisions, K candidates.
"""

import numpy as np
import torch
from torch import Tensor

from djepa.align.outcomes import Outcomes
from djepa.audit.parts import solved
from djepa.audit.report import Report, audit, compare_choice, selective
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.evaluate.intervals import markdown_table, rate_of
from djepa.evidence.evidence import Evidence
from djepa.interop.record import Decisions, Scorer


def audit_decisions(given: Decisions, bank: Bank) -> Report:
    """Audit every model of the record, and its choices, on the outcomes of a bank's starts."""
    evidence = record_evidence(given)
    at, place = _places(evidence, bank)
    outcomes = Outcomes.from_bank(bank).rows(at).columns(place)
    models = audit(evidence, outcomes)
    choice = torch.tensor([one.choice for one in given.decisions])
    won = outcomes.success
    ours = (won & (evidence.ids == choice[:, None])).any(1).numpy()
    chosen = compare_choice("decisions", ours, evidence, won, models.models)
    gates = [one.gate for one in given.decisions if one.gate]
    aligned = [s.cost for one in given.decisions for s in one.scorers if s.kind == "aligned"]
    if not len(gates) == len(aligned) == len(ours):
        return Report(models.models, chosen)
    refined = solved(won, torch.tensor(aligned, dtype=torch.float64), evidence.ids)
    gain = torch.tensor([gate.advantage for gate in gates], dtype=torch.float64)
    opened = torch.tensor([gate.opened for gate in gates])
    return Report(models.models, chosen, selective(ours, refined, gain, opened))


def _places(evidence: Evidence, bank: Bank) -> tuple[Tensor, Tensor]:
    """(N,) rows of the bank and (N, K) positions of its candidates.

    The bank is read in parts, because all controls at once would not fit into memory.
    """
    wanted = {name: i for i, name in enumerate(evidence.identities)}
    rows, place, begin = torch.full((len(evidence),), -1), torch.full_like(evidence.ids, -1), 0
    for part in bank.parts():
        d = part.decisions
        names = (bytes(row).hex() for row in d.identities)
        found = [(i, wanted[name]) for i, name in enumerate(names) if name in wanted]
        here, mine = torch.tensor(found, dtype=torch.long).reshape(-1, 2).unbind(1)
        rows[mine] = here + begin
        place[mine] = _positions(
            evidence.ids[mine], torch.from_numpy(d.candidate_ids[here.numpy()])
        )
        begin += len(part)
    if missing := (rows < 0).nonzero().flatten().tolist():
        raise DjepaError(
            f"{len(missing)} decisions are of starts that {bank.path} does not have, the first of "
            f"{evidence.identities[missing[0]][:16]}. Name the bank that was decided."
        )
    if (place < 0).any():
        raise DjepaError(f"A decision has candidates that {bank.path} does not have.")
    return rows, place


def _positions(ids: Tensor, stored: Tensor) -> Tensor:
    """(n, K) IDs, (n, L) IDs of a bank -> (n, K) positions in the bank, -1 if absent.

    By binary search in sorted rows, because a table of all pairs would be (n, K, L).
    """
    known, order = stored.sort(dim=1, stable=True)
    at = torch.searchsorted(known, ids.contiguous()).clamp(max=stored.shape[1] - 1)
    return torch.where(known.gather(1, at) == ids, order.gather(1, at), -1)


def record_evidence(given: Decisions) -> Evidence:
    """Evidence of the models that a record names; all decisions must have the same ones."""
    if not given.decisions:
        raise DjepaError("The record holds no decision.")
    models = [[s for s in one.scorers if s.kind == "model"] for one in given.decisions]
    if len({tuple(s.name for s in of) for of in models}) > 1:
        raise DjepaError("The decisions of a record must have the same scorers in one order.")
    if len({len(one.candidates) for one in given.decisions}) > 1:
        raise DjepaError("The decisions of a record must have equally many candidates.")
    return Evidence.from_arrays(
        start_ids=[one.start for one in given.decisions],
        candidate_ids=[one.candidates for one in given.decisions],
        costs={
            of[0].name: np.array([s.cost for s in of], dtype=float)
            for of in zip(*models, strict=True)
        },
    )


def executed_markdown(given: Decisions) -> str:
    """Markdown from the record alone: successes of executed choices, agreement of models."""
    column = {"decisions": str(len(given.decisions))}
    known = [one for one in given.decisions if one.outcome is not None]
    gated = [one for one in known if one.gate is not None]
    parts = {
        "success of the choice": known,
        "success where the gate opened": [one for one in gated if one.gate and one.gate.opened],
        "success where it stayed shut": [one for one in gated if one.gate and not one.gate.opened],
    }
    for label, some in parts.items():
        if some:
            won = np.array([bool(one.outcome and one.outcome.success) for one in some])
            rate = rate_of(won)
            column[label] = f"{rate.percent(True)} of {rate.of}"
    if not known:
        column["success of the choice"] = "nothing was executed yet; give --decisions with its bank"
    for name in dict.fromkeys(s.name for one in given.decisions for s in one.scorers):
        said = [
            _best(one.candidates, s) == one.choice
            for one in given.decisions
            for s in one.scorers
            if s.name == name
        ]
        column[f"{name} alone chooses the same"] = f"{sum(said)} of {len(said)}"
    return markdown_table("record", ["decisions"], [column])


def _best(ids: tuple[int, ...], scorer: Scorer) -> int:
    return min(zip(scorer.cost, ids, strict=True))[1]
