"""Populations of a study: their evidence, their outcomes, and which starts are eligible."""

from collections.abc import Mapping
from dataclasses import replace

import torch

from djepa.align.methods import Population
from djepa.align.outcomes import Outcomes
from djepa.bank.read import Bank
from djepa.evidence.evidence import Evidence
from djepa.evidence.ranks import strict_ranks
from djepa.models.predictions import read_predictions
from djepa.seeds import generator

BOUNDARY = "push-boundary.v1"
SHORTLIST, GAP = 16, 0.25  # of that rule


def has_both(test: Population) -> list[bool]:
    """Which starts have a success and a failure; on others the choice does not matter."""
    found: list[bool] = test.outcomes.mixed.tolist()
    return found


def near_boundary(test: Population, geometry: str = "tdjepa") -> list[bool]:
    """The rule `push-boundary.v1`: decisions that depend on a small difference of predicted cost.

    The start has a success and a failure among the 16 candidates with the lowest TD-JEPA cost, and
    its distances d = √cost of the best success and the best failure differ by at most a quarter:
    |d_s - d_f| / (d_s + d_f) ≤ 0.25. It uses outcomes, so it filters populations, never decisions.
    """
    e, success = test.evidence, test.outcomes.success
    cost = e.cost(geometry)
    short = strict_ranks(cost, e.ids) < SHORTLIST
    both = (success & short).any(1) & (~success & short).any(1)
    distance = cost.clamp(min=0).sqrt()
    good = distance.masked_fill(~success, torch.inf).amin(1)
    bad = distance.masked_fill(success, torch.inf).amin(1)
    gap = ((good - bad).abs() / (good + bad)).nan_to_num(0.0)  # both at the goal: no difference
    found: list[bool] = (both & (gap <= GAP)).tolist()
    return found


def thinned(outcomes: Outcomes, few: int) -> Outcomes:
    """Outcomes where only `few` candidates of a start, drawn by its hash, count as executed."""
    observed = torch.zeros_like(outcomes.observed)
    K = observed.shape[1]
    for row, name in enumerate(outcomes.identities):
        drawn = generator("sparse", name.split("@")[0]).permutation(K)[:few]
        observed[row, torch.from_numpy(drawn)] = True
    return replace(outcomes, observed=observed & outcomes.observed)


def evidence_from(
    bank: Bank, columns: Mapping[str, tuple[str, str]], dense: Mapping[str, str]
) -> Evidence:
    """Columns name -> (stored evidence, part of its cost or ""); dense name -> stored evidence."""
    stored = {of: read_predictions(bank, of) for of in {of for of, _ in columns.values()}}
    costs = {name: stored[of].parts[part] if part else stored[of].cost
             for name, (of, part) in columns.items()}  # fmt: skip
    ends, goals = {}, {}
    for name, of in dense.items():
        futures = stored[of].futures
        assert futures is not None  # the study stores them
        ends[name], goals[name] = futures[:, :, -1], stored[of].goal
    found = Evidence.from_arrays(
        start_ids=[bytes(row).hex() for row in bank.decisions.identities],
        candidate_ids=bank.decisions.candidate_ids,
        costs=costs,
        latents=ends,
        goals=goals,
    )
    return replace(found, weights={name: stored[of].weights for name, (of, _) in columns.items()})
