"""Large banks are read in parts, and their latents stay on disk: the same bits as all at once."""

import dataclasses
import hashlib
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor

from djepa.align import fit, mixture
from djepa.align.fit import Alignment
from djepa.align.mixture import likeliest
from djepa.align.operator import OperatorConfig
from djepa.align.outcomes import Outcomes
from djepa.align.presets import careful
from djepa.audit import gap
from djepa.audit.bank import realised_costs, report_bank
from djepa.audit.report import audit
from djepa.bank import read
from djepa.bank.collect import collect
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.evidence import evidence as evidence_room
from djepa.evidence.evidence import Evidence
from djepa.evidence.logs import mixture_inputs
from djepa.evidence.stored import StoredLatents
from djepa.evidence.tokens import consensus
from djepa.files import to_json
from djepa.interop.decide import decide_bank, load_decider, record
from djepa.interop.record import Decisions, write_decisions
from djepa.models.predictions import predict_bank, read_predictions
from djepa.rollout.engine import LocalEngine
from djepa.rollout.execute import CollectConfig

NAME, STARTS, K = "sums", 22, 8
CONFIG = CollectConfig(
    world="reacher", profile="decoy", starts=STARTS, horizon=10, candidates=K, centres=2, block=4
)
FIT = replace(
    careful((NAME,), (NAME,), "log"),
    dense=(NAME,),
    updates=6,
    every=2,
    batch=4,
    policy="permissive",
    operator=OperatorConfig(inputs=1, width=8, layers=1, heads=2, hidden=8),
)
Both = tuple[Bank, Bank]


class Sums:
    """Sums of controls as latents."""

    name, image, latent = NAME, 16, 3

    def encode(self, frames: Tensor, proprio: Tensor) -> Tensor:
        return proprio[..., :3].float()

    def rollout(self, context: Tensor, history: Tensor, candidates: Tensor) -> Tensor:
        sums = candidates.unflatten(2, (-1, 5)).mean(3).cumsum(2)
        return context[:, -1][:, None, None] + torch.nn.functional.pad(sums, (0, 1))

    def native_cost(self, futures: Tensor, goal: Tensor) -> Tensor:
        return (futures[:, :, -1] - goal[:, None]).square().mean(-1)


@pytest.fixture(scope="module")
def banks(tmp_path_factory: pytest.TempPathFactory) -> Both:
    """For fitting and for calibration, with predictions."""
    found = []
    for split in ("fit", "calibration"):
        path = tmp_path_factory.mktemp("parts") / split
        found.append(collect(path, replace(CONFIG, split=split), LocalEngine(1)))
        predict_bank(found[-1], Sums(), "0" * 64)
    return found[0], found[1]


@pytest.fixture(scope="module")
def aligned(banks: Both) -> Alignment:
    """Fitted and calibrated with everything in memory."""
    return Alignment(FIT).fit(*known(banks[0])).calibrate(*known(banks[1]))


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every bank is large: parts of two blocks, no latents in memory, batches of a few starts."""
    monkeypatch.setattr(read, "PART", 8)
    monkeypatch.setattr(evidence_room, "RESIDENT", 0)
    monkeypatch.setattr(gap, "AT_ONCE", 5)


def known(bank: Bank) -> tuple[Evidence, Outcomes]:
    fresh = Bank(bank.path)
    return Evidence.from_bank(fresh, [NAME], [NAME]), Outcomes.from_bank(fresh)


def test_parts_are_the_bank_one_after_the_other(banks: Both, small_parts: None) -> None:
    bank = Bank(banks[0].path)
    parts = list(bank.parts())
    assert [len(part) for part in parts] == [8, 8, 6]
    assert [len(part) for part in bank.parts(3)] == [12, 10]
    for what in ("decisions", "outcomes", "provenance"):
        whole = getattr(banks[0], what)
        for of in dataclasses.fields(whole):
            if (array := getattr(whole, of.name)) is not None:
                each = [getattr(getattr(part, what), of.name) for part in parts]
                assert np.array_equal(np.concatenate(each), array), of.name
    assert "decisions" not in bank.__dict__  # nothing is kept


def test_a_part_of_what_is_in_memory_is_a_view(banks: Both, small_parts: None) -> None:
    bank = Bank(banks[0].path)
    goals = bank.decisions.goal
    last = list(bank.parts())[-1]
    assert np.shares_memory(last.decisions.goal, goals)
    assert np.array_equal(last.decisions.goal, goals[16:])


def test_latents_on_disk_are_those_in_memory(banks: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = known(banks[0])
    monkeypatch.setattr(evidence_room, "RESIDENT", 0)
    stored, _ = known(banks[0])
    assert stored.stored
    assert not whole.stored
    assert torch.equal(stored.latents[NAME], whole.latents[NAME])
    with monkeypatch.context() as patch:  # to ask whether they are there reads nothing
        patch.setattr(StoredLatents, "__getitem__", None)
        assert NAME in stored.latents
        assert stored.directed == (NAME,)
        assert "other" not in stored.latents
    some = torch.tensor([19, 3, 3, 0, 21])
    order = whole.ids.argsort(dim=1, descending=True)
    for a, b in ((stored, whole), (stored.columns(order), whole.columns(order))):
        assert torch.equal(a.rows(some).latents[NAME], b.rows(some).latents[NAME])
        assert torch.equal(consensus(a, NAME), consensus(b, NAME))
        assert torch.equal(a.rows(some).directions(NAME), b.rows(some).directions(NAME))
    twice = stored.columns(order).columns(order[:, :3])
    assert torch.equal(
        twice.latents[NAME], whole.columns(order).columns(order[:, :3]).latents[NAME]
    )


def test_the_same_alignment_and_decisions(
    banks: Both, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(fit, "AT_ONCE", 3 * K)  # batches of three starts
    whole = Alignment(FIT).fit(*known(banks[0])).calibrate(*known(banks[1]))
    whole.save(tmp_path / "alignment")
    decided = load_decider(tmp_path / "alignment").decide(known(banks[1])[0])
    monkeypatch.setattr(read, "PART", 8)
    monkeypatch.setattr(evidence_room, "RESIDENT", 0)
    parts = Alignment(FIT).fit(*known(banks[0])).calibrate(*known(banks[1]))
    assert parts.report == whole.report
    assert parts.gate == whole.gate
    assert parts.operator
    assert whole.operator
    ours, theirs = parts.operator.state_dict(), whole.operator.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    pieces = list(decide_bank(Bank(banks[1].path), load_decider(tmp_path / "alignment")))
    assert [len(e) for e, _ in pieces] == [12, 10]  # whole batches of the operator
    for field in decided._fields:
        each = torch.cat([getattr(d, field) for _, d in pieces])
        assert torch.equal(each, getattr(decided, field)), field


def test_a_record_is_written_piece_by_piece(
    banks: Both, aligned: Alignment, tmp_path: Path
) -> None:
    evidence, _ = known(banks[1])
    assert aligned.gate
    records = record(evidence, aligned.decide(evidence), aligned.gate)
    for some in ([], records[:1], records):
        write_decisions(tmp_path / "record.json", iter(some), {"bank": "b"})
        rest = msgspec.to_builtins(Decisions(tuple(some), {"bank": "b"}))
        del rest["sha256"]
        of = hashlib.sha256(to_json(rest).encode()).hexdigest()
        assert (tmp_path / "record.json").read_text() == to_json({**rest, "sha256": of})


def test_the_same_audit(banks: Both, aligned: Alignment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "AT_ONCE", 3 * K)  # batches of three starts
    whole = report_bank(Bank(banks[1].path), [NAME], realised=False, alignment=aligned)
    at_once = audit(*known(banks[1]), alignment=aligned)
    assert at_once.as_rows() == whole.as_rows()
    truth = realised_costs(Sums(), Bank(banks[1].path), batch=5)
    monkeypatch.setattr(read, "PART", 8)
    monkeypatch.setattr(evidence_room, "RESIDENT", 0)
    monkeypatch.setattr(gap, "AT_ONCE", 5)
    sizes = list[int]()
    decide = Alignment.decide
    monkeypatch.setattr(
        Alignment, "decide", lambda self, e: (sizes.append(len(e)), decide(self, e))[1]
    )
    parts = report_bank(Bank(banks[1].path), [NAME], realised=False, alignment=aligned)
    assert sizes == [12, 10]  # whole batches of the operator
    assert parts.as_rows() == whole.as_rows()
    assert np.array_equal(realised_costs(Sums(), Bank(banks[1].path), batch=5), truth)


def test_evidence_and_outcomes_of_a_bank_take_little_memory(banks: Both, small_parts: None) -> None:
    evidence, outcomes = known(banks[0])
    assert evidence.ids.untyped_storage().nbytes() == 8 * K  # all pools have the same IDs
    assert evidence.costs.dtype == torch.float32  # as stored
    assert torch.equal(evidence.ids, torch.from_numpy(banks[0].decisions.candidate_ids))
    bank = Bank(banks[0].path)
    evidence, outcomes = Evidence.from_bank(bank, [NAME], []), Outcomes.from_bank(bank)
    names = tuple(bytes(row).hex() for row in banks[0].decisions.identities)
    assert evidence.identities == outcomes.identities == names
    pairs = zip(evidence.identities, outcomes.identities, strict=True)
    assert all(ours is theirs for ours, theirs in pairs)
    assert bank.part(range(2, 4)).identities == names[8:16]
    shown = banks[0].outcomes
    assert outcomes.cost is not None
    for ours, theirs in ((outcomes.success, shown.success), (outcomes.observed, shown.observed),
                         (outcomes.cost, shown.cost)):  # fmt: skip
        assert np.array_equal(ours.numpy(), theirs)


def test_a_sum_over_parts_has_the_same_minimum(
    banks: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence, outcomes = known(banks[0])
    inputs = mixture_inputs(evidence, [NAME], [NAME])
    whole = likeliest(inputs, outcomes.success, outcomes.observed)
    monkeypatch.setattr(mixture, "AT_ONCE", 5)
    assert likeliest(inputs, outcomes.success, outcomes.observed) == pytest.approx(whole, abs=1e-5)


def test_shards_that_do_not_fit_together_are_refused(banks: Both) -> None:
    from djepa.artefacts.folder import stacked

    good = {"a": np.zeros((2, 3)), "b": np.zeros(2)}
    for odd in ({"a": np.zeros((2, 1)), "b": np.zeros(2)}, {"a": np.zeros((2, 3))},
                {"a": np.zeros((2, 3)), "b": np.zeros(1)}):  # fmt: skip
        with pytest.raises(DjepaError, match="do not hold the same arrays"):
            stacked(Path("here"), [good, odd], 4)
    for rows in (3, 5):
        with pytest.raises(DjepaError, match=f"hold 4 starts, not {rows}"):
            stacked(Path("here"), [good, good], rows)
    assert len(read_predictions(banks[0], NAME).cost) == STARTS
