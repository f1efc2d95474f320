"""A bank with predictions of two tiny geometries, an alignment of them, and their planner."""

import shutil

import pytest
import torch
from interop_kit import Kit, seen

from djepa.align.fit import AlignConfig, Alignment
from djepa.align.outcomes import Outcomes
from djepa.bank.read import Bank
from djepa.evidence.evidence import Evidence
from djepa.lift.file import write_planner
from djepa.lift.planner import load_planner
from djepa.models.lewm import LeWM
from djepa.models.predictions import predict_bank
from djepa.models.tdjepa import TDJEPA
from djepa.models.weights import load_geometry, save_geometry, weights_hash
from tiny import TINY

NAMES = ("lewm", "tdjepa")


@pytest.fixture(scope="session")
def kit(small_bank: Bank, tmp_path_factory: pytest.TempPathFactory) -> Kit:
    root = tmp_path_factory.mktemp("interop")
    bank = Bank(shutil.copytree(small_bank.path, root / "bank"))
    for seed, kind in enumerate((LeWM, TDJEPA)):
        torch.manual_seed(seed)
        net = kind(TINY).eval()
        for parameter in net.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
        save_geometry(net, root / kind.name, {})
        predict_bank(bank, load_geometry(root / kind.name), weights_hash(root / kind.name))
    evidence, outcomes = Evidence.from_bank(bank, NAMES, NAMES), Outcomes.from_bank(bank)
    first, last = torch.arange(6), torch.arange(6, 10)
    config = AlignConfig(updates=20, every=10, batch=4)
    alignment = Alignment(config).fit(evidence.rows(first), outcomes.rows(first))
    alignment.calibrate(evidence.rows(last), outcomes.rows(last))
    file = root / "planner.safetensors"
    write_planner(file, alignment, [str(root / n) for n in NAMES], "tdjepa", {})
    return Kit(
        bank,
        evidence,
        alignment,
        file,
        load_planner(file),
        seen(bank),
        torch.from_numpy(bank.decisions.candidate_ids.copy()),
    )
