"""Choices of methods on confirmation starts, as rows."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from djepa.align.methods import Choice, Population, lowest
from djepa.audit.bank import realised_costs
from djepa.bank.read import Bank
from djepa.evaluate.rows import Row
from djepa.models.weights import load_geometry
from djepa.seeds import generator


def endpoint(bank: Bank, ids: Tensor) -> dict[str, Choice]:
    """The world's baseline without a model, if it has one; no outcome is used."""
    rule, d = bank.config.task.endpoint, bank.decisions
    if rule is None:
        return {}
    far = torch.from_numpy(rule(d.state, d.actions.astype(float), d.goal))
    return {"endpoint": lowest(far.to(ids.device), ids)}


def bounds(bank: Bank, test: Population, realised: str, device: str) -> dict[str, Choice]:
    """A random choice, the best candidate, and the choice by executed latents of one geometry.

    They use outcomes, so they are bounds and not methods.
    """
    ids, cost = test.evidence.ids, test.outcomes.cost
    assert cost is not None
    drawn = torch.from_numpy(generator("random choice", bank.hash).random(ids.shape))
    found = {"random": lowest(drawn.to(ids.device), ids)}
    if realised:
        after = realised_costs(load_geometry(realised, device), bank, device)
        found[f"realised {realised}"] = lowest(torch.from_numpy(after).to(ids.device), ids)
    return found | {"oracle": lowest(cost, ids)}


def rows_of(
    choices: Mapping[str, Choice],
    test: Population,
    about: tuple[str, str, str, str],
    eligible: Sequence[bool],
    hashes: Mapping[str, str],
) -> list[Row]:
    """One row per method and start. `about` is study, case, rule and the hash of the bank."""
    e, outcomes, (study, pools, rule, bank) = test.evidence, test.outcomes, about
    assert outcomes.cost is not None
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
                    eligible=eligible[i],
                    chosen=chosen,
                    success=success,
                    cost=round(cost, 6),
                    opened=opened[i],
                    rule=rule,
                    bank=bank[:12],
                    checkpoint=hashes.get(method, "")[:12],
                )
            )
    return rows


def solved(choice: Choice, test: Population) -> Tensor:
    """(N,) bool, whether the chosen candidate succeeded."""
    return test.outcomes.success.gather(1, choice.position[:, None])[:, 0]
