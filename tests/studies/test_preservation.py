"""Prediction error beside success, of the same starts."""

import numpy as np
import pytest
import torch

from djepa.align.controls.lessons import Supervised
from djepa.align.dynamics import realised
from djepa.align.outcomes import Outcomes
from djepa.align.plastic import Patch, base_hash, plastic_names
from djepa.align.plastic_fit import Encoded
from djepa.bank.read import Bank
from djepa.models.tdjepa import TDJEPA
from djepa.studies.preservation import preservation, preservation_table
from tiny import TINY_DEEP as TINY


def test_one_line_per_method(small_bank: Bank) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = TDJEPA(TINY).eval().requires_grad_(False)
    rows = [6, 7, 8, 9]
    starts, targets = (
        Encoded.from_bank(model, small_bank, rows),
        realised(model, small_bank, rows, "cpu"),
    )
    test = Supervised(starts, Outcomes.from_bank(small_bank).rows(torch.tensor(rows)), targets)
    same = {name: model.get_parameter(name) for name in plastic_names(model)}
    moved = {name: t + 0.05 * torch.ones_like(t) for name, t in same.items()}
    patches = {
        name: Patch(model.name, base_hash(model), tensors, {})
        for name, tensors in {"unchanged": same, "moved": moved}.items()
    }
    native, unchanged, other = preservation(model, patches, test)
    futures = model.rollout(starts.context, starts.history, starts.actions)
    assert native.error == pytest.approx(float((futures - targets).square().mean()), rel=1e-4)
    cost = model.native_cost(futures, starts.goal)
    first = cost.double().argmin(1)
    assert native.success.hits == int(
        np.take_along_axis(small_bank.outcomes.success[rows], first[:, None].numpy(), 1).sum()
    )
    assert (unchanged.error, unchanged.success, unchanged.change) == (
        native.error,
        native.success,
        (0, 0),
    )
    assert unchanged.against is not None
    assert (unchanged.against.gains, unchanged.against.losses) == (0, 0)
    assert other.error is not None
    assert other.error != native.error
    table = preservation_table([native, unchanged, other]).splitlines()
    assert len(table) == 5
    assert table[2].startswith(f"| native | {native.error:.4f} | - | ")
    assert table[3].count("| 0 / 0 | 1.00 |") == 1
