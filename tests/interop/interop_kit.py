"""What the tests of this folder share."""

from pathlib import Path
from typing import NamedTuple

import torch

from djepa.align.fit import Alignment
from djepa.bank.read import Bank
from djepa.evidence.evidence import Evidence
from djepa.lift.planner import Planner
from djepa.models.fast import Inputs
from tiny import TINY


class Kit(NamedTuple):
    """A bank, an alignment and its planner. Not to be written to."""

    bank: Bank
    evidence: Evidence
    alignment: Alignment
    folder: Path  # of the planner
    planner: Planner
    given: Inputs  # of all starts of the bank
    ids: torch.Tensor


def seen(bank: Bank) -> Inputs:
    """What a planner sees of every start of a bank."""
    d = bank.decisions
    frames, context = bank.scene().observe(torch.from_numpy(d.context.copy()), TINY.image)
    goal, last = bank.scene().observe(torch.from_numpy(d.goal.copy()), TINY.image)
    proprio = torch.cat([context, last[:, None]], dim=1).float()
    history, actions = (torch.from_numpy(x.copy()).float() for x in (d.history, d.actions))
    return Inputs(frames, goal, proprio, history, actions)
