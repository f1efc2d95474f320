"""The audit of a geometry on a bank: stored predictions against recorded outcomes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from djepa.align.fit import Alignment, at_once
from djepa.align.outcomes import Outcomes
from djepa.audit.gap import audit as audit_costs
from djepa.audit.parts import Part
from djepa.audit.report import Report, report_parts
from djepa.audit.result import Audit
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence
from djepa.evidence.ranks import check_values
from djepa.models.predict import encode_states
from djepa.models.predictions import Stored
from djepa.models.protocol import Geometry
from djepa.models.weights import load_geometry, weights_hash


def audit_bank(bank: Bank, geometry: str, device: str = "cpu", realised: bool = True) -> Audit:
    """Audit one geometry, given by shipped name or weights folder, on a bank.

    Without `realised`, nothing is encoded and no weights are needed: `geometry` may then be any
    name that the bank has predictions of.
    """
    shown = Outcomes.from_bank(bank)
    if not shown.observed.all():
        raise DjepaError(f"{bank.path} has candidates that were not executed: nothing to audit.")
    model = load_geometry(geometry, device) if realised else None
    name = model.name if model else geometry
    evidence, truth = Evidence.from_bank(bank, [name], []), None
    if model:
        _same_weights(bank, geometry, name)
        truth = realised_costs(model, bank, device)
    cost, ids, success = (x.numpy() for x in (evidence.cost(name), evidence.ids, shown.success))
    return audit_costs(name, cost, ids, success, truth)


def report_bank(
    bank: Bank,
    geometries: Sequence[str],
    device: str = "cpu",
    realised: bool = True,
    alignment: Alignment | None = None,
) -> Report:
    """Audit several geometries, and optionally an alignment of them, on one bank."""
    truths: dict[str, Any] = {}
    names = list(geometries)
    for i, geometry in enumerate(geometries):
        if realised:
            model = load_geometry(geometry, device)
            names[i] = model.name
            _same_weights(bank, geometry, model.name)
            truths[model.name] = realised_costs(model, bank, device)
    for truth in map(torch.from_numpy, truths.values()):
        check_values(truth, realised=truth)
    needed = alignment.config.geometries if alignment else ()
    every = tuple(dict.fromkeys((*names, *needed)))
    dense = [name for name in every if Stored(bank, name).futures]

    def read(part: Bank) -> Part:
        evidence = Evidence.from_bank(part, every, dense)
        begin = part.config.members(part.blocks[0]).start - first
        given = {n: torch.from_numpy(x[begin : begin + len(part)]) for n, x in truths.items()}
        outcomes = Outcomes.of(evidence, Outcomes.from_bank(part))
        return Part(evidence, outcomes, {"realised": given})

    first = bank.config.members(bank.blocks[0]).start
    parts = bank.parts(at_once(bank.candidates))  # whole batches of the operator
    return report_parts(map(read, parts), alignment)


@torch.no_grad()
def realised_costs(
    geometry: Geometry, bank: Bank, device: str = "cpu", batch: int = 32
) -> npt.NDArray[np.float32]:
    """(N, K) native costs of the executed final states, encoded and not predicted.

    c(E(s_H), E(g)) for the last state s_H of every candidate and the goal g, `batch` starts at
    a time.
    """
    scene, found = bank.scene(), []
    for part in bank.parts(batch):
        for begin in range(0, len(part), batch):
            rows = slice(begin, begin + batch)
            ends = torch.from_numpy(part.outcomes.states[rows][:, :, -1:]).to(device)
            goals = torch.from_numpy(part.decisions.goal[rows]).to(device)
            z = encode_states(geometry, scene, ends), encode_states(geometry, scene, goals)
            found.append(geometry.native_cost(*z).float().cpu().numpy())
    return np.concatenate(found)


def _same_weights(bank: Bank, geometry: str, name: str) -> None:
    if Stored(bank, name).weights != weights_hash(geometry):
        raise DjepaError(
            f"{bank.path / 'evidence' / name} was predicted with other weights than "
            f"'{geometry}'. Name those, or remove the folder and predict again."
        )
