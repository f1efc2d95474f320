"""The pair that is ordered wrongly, made from audit starts alone; and the stored one."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tools.inverted_pair import InvertedPair

from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.models.predictions import read_predictions
from djepa.models.weights import weights_hash
from djepa.rollout.engine import LocalEngine
from djepa.studies.design import Place
from djepa.studies.pusht import PAPER, PUSHT

ROOT = Path(__file__).parents[2]
STORED = json.loads((ROOT / "docs/results/inverted-pair.json").read_text())


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six audit starts."""
    monkeypatch.setitem(PUSHT.sizes, "paper", replace(PAPER, audit=6))


def prefers_a_failure(bank: Bank, start: int) -> tuple[int, int] | None:
    """The nearest failure and the nearest success, if the failure is nearer; candidate by one."""
    cost, ids = read_predictions(bank, "lewm").cost[start], bank.decisions.candidate_ids[start]
    nearest: dict[bool, tuple[float, int]] = {}
    for c, i, solved in zip(cost, ids, bank.outcomes.success[start], strict=True):
        one = (float(c), int(i))
        nearest[bool(solved)] = min(one, nearest.get(bool(solved), one))
    if len(nearest) < 2 or nearest[False][0] >= nearest[True][0]:
        return None
    return nearest[False][1], nearest[True][1]


def test_the_pair_is_the_first_of_the_audit_starts(few: None, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    made = InvertedPair(
        tmp_path / "bank",
        tmp_path / "pair.json",
        tmp_path / "pair.svg",
        pools="reference",
        seed=2,
        workers=1,
    )
    found = made.run()
    assert json.loads((tmp_path / "pair.json").read_text()) == found
    bank = Bank(tmp_path / "bank")
    each = [prefers_a_failure(bank, start) for start in range(len(bank))]
    first = next(start for start, pair in enumerate(each) if pair)
    fails, succeeds = (found["pair"][end] for end in ("fails", "succeeds"))
    assert (found["start"], each[first]) == (first, (fails["candidate"], succeeds["candidate"]))
    assert found["prefer_failure"]["hits"] == sum(pair is not None for pair in each)
    cost = read_predictions(bank, "lewm").cost[first]
    at = bank.decisions.candidate_ids[first].tolist().index(fails["candidate"])
    assert fails["distance"] == pytest.approx(np.sqrt(cost[at]), abs=1e-4)
    assert (bank.config.split, bank.config.seed, found["bank"]) == ("pusht-audit", 2, bank.hash)
    assert (tmp_path / "pair.svg").read_text().startswith("<?xml")
    drawn = (tmp_path / "pair.svg").read_bytes()
    assert (made.run(), (tmp_path / "pair.svg").read_bytes()) == (found, drawn)  # again


def test_what_cannot_be_made_is_named(few: None, tmp_path: Path) -> None:
    of = InvertedPair(tmp_path / "bank", tmp_path / "a.json", tmp_path / "a.png", workers=1)
    for wrong, word in (
        ({"pools": "decoy"}, "kind of pools"),
        ({"preset": "papers"}, "Did you mean 'paper'"),
        ({"figure": tmp_path / "a.gif"}, "suffix"),
    ):
        with pytest.raises(DjepaError, match=word):
            replace(of, **wrong).run()  # type: ignore[arg-type]
    assert not (tmp_path / "bank").exists()


def test_a_bank_without_such_a_start_leaves_no_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(PUSHT.sizes, "paper", replace(PAPER, audit=1))
    of = InvertedPair(tmp_path / "bank", tmp_path / "a.json", pools="reference", workers=1)
    with pytest.raises(DjepaError, match="On none of 1 audit starts does lewm prefer a failure"):
        of.run()
    assert prefers_a_failure(Bank(tmp_path / "bank"), 0) is None
    assert not (tmp_path / "a.json").exists()


def test_the_stored_pair_is_of_the_audit_starts_and_the_shipped_weights() -> None:
    case = InvertedPair(Path("runs/none"), preset=STORED["preset"], seed=STORED["seed"]).case()
    assert (case.name, case.bank.split) == (STORED["pools"], STORED["split"])
    assert case.bank.starts == PAPER.audit >= STORED["prefer_failure"]["of"]
    place = Place(Path("runs/none"), LocalEngine(1))
    for role in ("fit", "confirmation"):
        assert all(of.bank.split != STORED["split"] for of in PUSHT.cases(role, PAPER, place))
    assert STORED["weights"] == weights_hash(STORED["geometry"])
    pair = STORED["pair"]
    assert 0 < pair["fails"]["distance"] < pair["succeeds"]["distance"]
