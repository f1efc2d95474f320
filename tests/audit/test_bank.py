"""The audit of stored predictions agrees with what `quality` measures afresh."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import nn

from commands import djepa
from djepa.audit.bank import audit_bank, realised_costs
from djepa.audit.quality import quality
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.models.lewm import LeWM
from djepa.models.predictions import predict_bank, read_predictions
from djepa.models.weights import card, load_geometry, save_geometry, weights_hash
from tiny import TINY


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A tiny LeWM that was never trained; costs of its candidates are well apart."""
    torch.manual_seed(0)
    model = LeWM(TINY).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    save_geometry(model, tmp_path / "tiny", card({}, model, "", {}))
    return tmp_path / "tiny"


def test_a_bank_is_audited_as_quality_measures_it(weights: Path, bank_copy: Path) -> None:
    bank, model = Bank(bank_copy), load_geometry(weights)
    predict_bank(bank, model, weights_hash(weights))
    found, measured = audit_bank(bank, str(weights)), quality(model, bank)
    assert (found.name, found.starts, found.candidates) == ("lewm", 10, 63)
    within = {one.shortlist: one.within for one in found.correlations}
    ids, cost = bank.decisions.candidate_ids, read_predictions(bank, "lewm").cost
    truth = realised_costs(model, bank)
    order = np.lexsort((ids, cost), axis=1)
    a, b = (np.take_along_axis(of, order, 1) for of in (cost, truth))
    exact = {
        k: np.mean([spearmanr(x[:k], y[:k])[0] for x, y in zip(a, b, strict=True)]) for k in within
    }
    assert within == pytest.approx(exact, abs=1e-6)
    assert within == pytest.approx(measured.spearman, abs=1e-6)
    success, truth = bank.outcomes.success, realised_costs(model, bank, batch=3)
    picks = np.lexsort((ids, truth), axis=1)[:, 0]
    assert success[np.arange(10), picks].mean() == measured.realised
    # A start prefers a failure exactly where the native choice fails, costs being untied.
    assert found.gap is not None
    mixed = success.any(1) & ~success.all(1)
    failed = int((mixed & ~np.array(measured.picks)).sum())
    assert (found.gap.positive.hits, found.gap.positive.of) == (failed, int(mixed.sum()))


def test_the_command_on_a_bank(weights: Path, bank_copy: Path, tmp_path: Path) -> None:
    run = partial(djepa, "audit", bank_copy)
    missing = run("--geometry", weights)
    assert missing.returncode == 1
    assert "Make it: djepa predict" in missing.stderr.replace("\n", " ")
    predict_bank(Bank(bank_copy), load_geometry(weights), weights_hash(weights))
    done = run("--geometry", weights, "--json", tmp_path / "audit.json")
    assert done.returncode == 0, done.stderr
    assert "| starts × candidates | 10 × 63 |" in done.stdout
    (row,) = json.loads((tmp_path / "audit.json").read_text())
    assert [one["shortlist"] for one in row["correlations"]] == [63, 32, 16, 8, 4]
    assert len(row["gap"]["each"]) == 10
    quick = run("--geometry", "lewm", "--no-realised")
    assert quick.returncode == 0, quick.stderr
    assert "Spearman" not in quick.stdout
    assert "pair inversions, best 4 " in quick.stdout


def test_predictions_of_other_weights_are_refused(weights: Path, bank_copy: Path) -> None:
    predict_bank(Bank(bank_copy), load_geometry(weights), "others")
    with pytest.raises(DjepaError, match="predicted with other weights"):
        audit_bank(Bank(bank_copy), str(weights))


def test_what_was_not_executed_is_not_audited(bank_copy: Path) -> None:
    bank = Bank(bank_copy)
    bank.outcomes.observed[3, 5] = False
    with pytest.raises(DjepaError, match="not executed"):
        audit_bank(bank, "lewm", realised=False)
