"""What every method decides on the confirmation starts, as rows.

Legend: N starts, K candidates.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from djepa.align.methods import Choice, Chooser, Population, lowest
from djepa.audit.bank import realised_costs
from djepa.bank.read import Bank
from djepa.evaluate.rows import Row
from djepa.evidence.ranks import strict_ranks
from djepa.models.weights import load_geometry
from djepa.seeds import generator

SHORTLIST, GAP = 16, 0.25  # of the eligibility rule
Array = npt.NDArray[Any]


def decide_all(choosers: Mapping[str, Chooser], test: Population) -> dict[str, Choice]:
    """Every method on the same evidence; no outcome gets in here."""
    return {name: choose(test.evidence) for name, choose in choosers.items()}


def bounds(bank: Bank, test: Population) -> dict[str, Choice]:
    """What chance reaches, and the best there is.

    They look at outcomes, so they are no methods; they say what a method could gain.
    """
    ids, cost = test.evidence.ids, test.outcomes.cost
    assert cost is not None
    drawn = torch.from_numpy(generator("random choice", bank.hash).random(ids.shape))
    return {"random": lowest(drawn.to(ids.device), ids), "oracle": lowest(cost, ids)}


def yardsticks(bank: Bank, test: Population, device: str) -> dict[str, Choice]:
    """`bounds`, and what executed latents would choose between them."""
    realised = torch.from_numpy(realised_costs(load_geometry("lewm", device), bank, device))
    ids, (chance, best) = test.evidence.ids, bounds(bank, test).values()
    return {"random": chance, "realised lewm": lowest(realised.to(ids.device), ids), "oracle": best}


def eligible(test: Population, geometry: str = "tdjepa") -> Tensor:
    """(N,) bool, the rule `push-boundary.v1`: decisions that hang on a small difference.

    The start has a success and a failure among the 16 candidates that TD-JEPA likes best, and its
    distances d = √cost of the best success and the best failure differ by at most a quarter:
    |d_s - d_f| / (d_s + d_f) ≤ 0.25. Outcomes enter, so it filters populations, never decisions.
    """
    e, success = test.evidence, test.outcomes.success
    cost = e.costs[..., e.names.index(geometry)]
    short = strict_ranks(cost, e.ids) < SHORTLIST
    both = (success & short).any(1) & (~success & short).any(1)
    distance = cost.clamp(min=0).sqrt()
    good = distance.masked_fill(~success, torch.inf).amin(1)
    bad = distance.masked_fill(success, torch.inf).amin(1)
    gap = ((good - bad).abs() / (good + bad)).nan_to_num(0.0)  # both at the goal: no difference
    return both & (gap <= GAP)


def rows_of(
    choices: Mapping[str, Choice],
    test: Population,
    bank: Bank,
    pools: str,
    hashes: Mapping[str, str],
    study: str = "pusht",
    hard: Sequence[bool] | None = None,
    rule: str = "",
) -> list[Row]:
    """One row per method and start; `hard` are the eligible ones, by the rule of push unless given.

    A `rule` other than the bank's is one by which the costs of `test` were judged.
    """
    e, outcomes, rule = test.evidence, test.outcomes, rule or bank.config.rule
    assert outcomes.cost is not None
    hard = eligible(test).tolist() if hard is None else hard
    rows = []
    for method, choice in choices.items():
        at = choice.position[:, None]
        picked = [x.gather(1, at)[:, 0].tolist() for x in (e.ids, outcomes.success, outcomes.cost)]
        opened = [False] * len(e) if choice.opened is None else choice.opened.tolist()
        for i, (chosen, success, cost) in enumerate(zip(*picked, strict=True)):
            rows.append(
                Row(
                    study=study,
                    pools=pools,
                    method=method,
                    start=i,
                    identity=e.identities[i][:16],
                    eligible=hard[i],
                    chosen=chosen,
                    success=success,
                    cost=round(cost, 6),
                    opened=opened[i],
                    rule=rule,
                    bank=bank.hash[:12],
                    checkpoint=hashes.get(method, "")[:12],
                )
            )
    return rows


def solved(choice: Choice, test: Population) -> Array:
    """(N,) bool."""
    found = test.outcomes.success.gather(1, choice.position[:, None])[:, 0]
    return np.asarray(found.cpu().numpy())
