"""A tiny TD-JEPA and ten real starts, split into fitting and calibration."""

from collections.abc import Callable

import pytest
import torch

from djepa.align.controls.lessons import Supervised
from djepa.align.dynamics import realised
from djepa.align.outcomes import Outcomes
from djepa.align.plastic_fit import Encoded
from djepa.bank.read import Bank
from djepa.models.lewm import LeWM
from djepa.models.tdjepa import TDJEPA
from tiny import TINY_DEEP as TINY

Halves = tuple[Supervised, Supervised]
Part = Callable[[Bank, list[int]], Supervised]


@pytest.fixture(scope="package")
def model() -> LeWM:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = TDJEPA(TINY).eval()
        for parameter in net.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
    return net.requires_grad_(False)


@pytest.fixture(scope="package")
def part(model: LeWM) -> Part:
    """Some starts of a bank with everything that supervises."""

    def take(bank: Bank, rows: list[int]) -> Supervised:
        outcomes = Outcomes.from_bank(bank).rows(torch.tensor(rows))
        starts = Encoded.from_bank(model, bank, rows)
        return Supervised(starts, outcomes, realised(model, bank, rows, "cpu"))

    return take


@pytest.fixture(scope="package")
def halves(part: Part, small_bank: Bank) -> Halves:
    """Six starts to fit, four to calibrate on."""
    return part(small_bank, list(range(6))), part(small_bank, list(range(6, 10)))
