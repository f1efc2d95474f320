"""A decision record is audited part by part of its bank, and finds what a whole table found."""

import numpy as np
import pytest
import torch

from djepa.audit.record import _places, _positions, audit_decisions, record_evidence
from djepa.bank import read
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.interop.record import DecisionRecord, Decisions, Scorer


def decided(bank: Bank, starts: list[int], keep: int) -> Decisions:
    """Choices at random among some candidates of some starts, both in an order of their own."""
    random, found = np.random.default_rng(0), []
    for i in starts:
        ids = random.permutation(bank.decisions.candidate_ids[i])[:keep]
        scores = random.random(keep)
        order = tuple(ids[np.lexsort((ids, scores))].tolist())
        scorer = Scorer("mine", tuple(scores.tolist()))
        name = bytes(bank.decisions.identities[i]).hex()
        found.append(DecisionRecord(name, tuple(ids.tolist()), order[0], order, (scorer,)))
    return Decisions(tuple(found))


def table(given: Decisions, bank: Bank) -> tuple[torch.Tensor, torch.Tensor]:
    """Every ID of a decision beside every ID of the bank, as it once was looked up."""
    evidence = record_evidence(given)
    rows = {bytes(row).hex(): i for i, row in enumerate(bank.decisions.identities)}
    at = torch.tensor([rows[name] for name in evidence.identities])
    stored = torch.from_numpy(bank.decisions.candidate_ids)[at]
    place = (evidence.ids[:, :, None] == stored[:, None]).long()
    assert place.any(-1).all()
    return at, place.argmax(-1)


@pytest.mark.parametrize(("starts", "keep"), [([7, 2, 9, 0], 20), (list(range(10)), 63)])
def test_parts_find_what_the_table_found(
    starts: list[int], keep: int, small_bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = decided(small_bank, starts, keep)
    expected, whole = table(given, small_bank), audit_decisions(given, small_bank)
    monkeypatch.setattr(read, "PART", 4)
    bank = Bank(small_bank.path)
    assert len(list(bank.parts())) == 3
    for one, other in zip(_places(record_evidence(given), bank), expected, strict=True):
        assert torch.equal(one, other)
    assert audit_decisions(given, bank).as_rows() == whole.as_rows()
    assert "decisions" not in vars(bank)  # no more than a part was read at once


def test_positions_are_those_of_a_table() -> None:
    random = torch.Generator().manual_seed(0)
    stored = torch.rand(50, 9, generator=random).argsort(1) * 7 - 20
    ids = stored.gather(1, torch.rand(50, 9, generator=random).argsort(1)[:, :4])
    assert torch.equal(
        _positions(ids, stored), (ids[:, :, None] == stored[:, None]).long().argmax(-1)
    )
    assert (_positions(ids + 1, stored) == -1).all()
    assert _positions(ids[:0], stored[:0]).shape == (0, 4)


def test_strange_starts_and_candidates_are_named(
    small_bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = decided(small_bank, [1, 3], 5)
    one = given.decisions[0]
    monkeypatch.setattr(read, "PART", 4)
    bank = Bank(small_bank.path)
    other = DecisionRecord("ff", one.candidates, one.choice, one.order, one.scorers)
    with pytest.raises(
        DjepaError, match=r"1 decisions are of starts .* does not have.*first of ff"
    ):
        audit_decisions(Decisions((*given.decisions, other)), bank)
    ids = tuple(c + 10**6 for c in one.candidates)
    order = tuple(c + 10**6 for c in one.order)
    strange = DecisionRecord(one.start, ids, order[0], order, one.scorers)
    with pytest.raises(DjepaError, match=r"candidates that .* does not have"):
        audit_decisions(Decisions((strange,)), bank)
