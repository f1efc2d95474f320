"""The decision record: written by decide, read by audit and the inspector, strict in between."""

import hashlib
import json
from pathlib import Path

import jsonschema
import msgspec
import numpy as np
import pytest
from interop_kit import Kit
from tools.docs.fill import ROOT

from commands import djepa
from djepa.align.outcomes import Outcomes
from djepa.audit.record import audit_decisions, record_evidence
from djepa.audit.report import audit
from djepa.errors import DjepaError
from djepa.interop.decide import record
from djepa.interop.record import (
    DecisionRecord,
    Decisions,
    Outcome,
    Scorer,
    read_decisions,
    schema,
    write_decisions,
)
from djepa.report.record import inspect_record


@pytest.fixture(scope="module")
def made(kit: Kit) -> Decisions:
    gate = kit.alignment.gate
    assert gate is not None
    return Decisions(tuple(record(kit.evidence, kit.alignment.decide(kit.evidence), gate)))


def test_a_record_holds_the_decision_and_comes_back(
    kit: Kit, made: Decisions, tmp_path: Path
) -> None:
    write_decisions(tmp_path / "d.json", made.decisions, {"bank": kit.bank.hash})
    again = read_decisions(tmp_path / "d.json")
    assert again.decisions == made.decisions
    assert again.made_from == {"bank": kit.bank.hash}
    decision = kit.alignment.decide(kit.evidence)
    for i, one in enumerate(again.decisions):
        assert one.choice == decision.choice[i]
        assert list(one.order) == decision.order[i].tolist()
        by_name = {s.name: s for s in one.scorers}
        assert by_name["lewm"].scores == tuple(kit.evidence.cost("lewm")[i].tolist())
        assert one.gate is not None
        assert one.outcome is None  # deciding knows none
        winner = {True: "aligned", False: "base"}[one.gate.opened]
        cost = dict(zip(one.candidates, by_name[winner].cost, strict=True))
        assert min(cost, key=lambda c: (cost[c], c)) == one.choice
    evidence = record_evidence(again)
    assert np.array_equal(evidence.costs.numpy(), kit.evidence.costs.numpy())


def test_the_schema_in_the_docs_is_the_one_of_the_code(made: Decisions, tmp_path: Path) -> None:
    stored = json.loads((ROOT / "docs/decision-record.json").read_text())
    assert stored == json.loads(json.dumps(schema()))
    write_decisions(tmp_path / "d.json", made.decisions)
    value = json.loads((tmp_path / "d.json").read_text())
    jsonschema.validate(value, stored)
    del value["decisions"][0]["choice"]
    with pytest.raises(jsonschema.ValidationError, match="choice"):
        jsonschema.validate(value, stored)


def test_the_audit_of_a_record_is_that_of_the_alignment(kit: Kit, made: Decisions) -> None:
    found = audit_decisions(made, kit.bank)
    direct = audit(kit.evidence, Outcomes.from_bank(kit.bank), alignment=kit.alignment)
    assert found.aligned is not None
    assert direct.aligned is not None
    assert found.aligned.picks == direct.aligned.picks
    assert found.gate == direct.gate
    assert [m.choices.picks for m in found if m.choices] == [
        m.choices.picks for m in direct if m.choices
    ]
    assert "| decisions |" in found.table()


def test_the_order_of_a_record_has_no_effect(kit: Kit, made: Decisions) -> None:
    """Another program may list starts and candidates in any order, and point scores upwards."""
    turned = Decisions(tuple(_turned(one) for one in reversed(made.decisions)))
    one, other = audit_decisions(made, kit.bank), audit_decisions(turned, kit.bank)
    assert one.aligned is not None
    assert other.aligned is not None
    assert one.aligned.picks == other.aligned.picks[::-1]
    assert one.gate == other.gate


def _turned(one: DecisionRecord) -> DecisionRecord:
    scorers = tuple(
        Scorer(s.name, tuple(-x for x in reversed(s.scores)), "higher", s.kind) for s in one.scorers
    )
    ids = one.candidates[::-1]
    return msgspec.structs.replace(one, candidates=ids, scorers=scorers)


def test_the_inspector_shows_what_was_decided(kit: Kit, made: Decisions) -> None:
    some = Decisions(made.decisions[2:4])
    data = inspect_record(kit.bank, some)
    assert data["geometries"] == ["lewm", "tdjepa"]
    for start, one in zip(data["starts"], some.decisions, strict=True):
        assert one.start.startswith(start["identity"])
        assert start["methods"][0]["chosen"] == one.choice
        assert one.gate is not None
        assert start["methods"][0]["opened"] == one.gate.opened


def test_the_commands(kit: Kit, made: Decisions, tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    done = djepa("decide", kit.folder, kit.bank.path, "--out", path)
    assert done.returncode == 0, done.stderr
    assert read_decisions(path).decisions == made.decisions
    done = djepa("audit", kit.bank.path, "--decisions", path)
    assert "success of the choice" in done.stdout
    assert "fails where the gate opens" in done.stdout
    alone = djepa("audit", path)
    assert "nothing was executed yet" in alone.stdout
    ran = [msgspec.structs.replace(one, outcome=Outcome(True, 0.4)) for one in made.decisions[:4]]
    write_decisions(path, [*ran, *made.decisions[4:]])
    assert "of 4" in djepa("audit", path).stdout


FLIPPED = {  # what a changed byte or a careless program may do
    "a score": lambda v: v["decisions"][3]["scorers"][0]["scores"].__setitem__(5, 0.125),
    "a direction": lambda v: v["decisions"][0]["scorers"][0].update(direction="higher"),
    "the gate": lambda v: v["decisions"][1]["gate"].update(advantage=0.5),
    "an outcome": lambda v: v["decisions"][2].update(outcome={"success": True}),
    "a decision fewer": lambda v: v["decisions"].pop(),
    "their order": lambda v: v["decisions"].reverse(),
    "the bank": lambda v: v["made_from"].update(bank="other"),
    "the hash": lambda v: v.update(sha256="0" * 64),
}


@pytest.mark.parametrize("what", FLIPPED)
def test_a_record_that_was_changed_is_noticed(what: str, made: Decisions, tmp_path: Path) -> None:
    """Each of these is a sound record, but not the one that was written."""
    path = tmp_path / "d.json"
    write_decisions(path, made.decisions, {"bank": "b"})
    value = json.loads(path.read_text())
    FLIPPED[what](value)
    path.write_text(json.dumps(value))
    done = djepa("audit", path)
    assert done.returncode == 1
    assert "d.json was changed after it was written" in done.stderr.replace("\n", " ")
    del value["sha256"]  # as another program writes it
    path.write_text(json.dumps(value))
    assert djepa("audit", path).returncode == 0


def test_the_hash_is_that_of_the_other_lines(made: Decisions, tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    write_decisions(path, made.decisions, {"bank": "b"})
    lines = path.read_text().splitlines(keepends=True)
    (own,) = [line for line in lines if '"sha256"' in line]
    rest = "".join(line for line in lines if line != own)
    of = hashlib.sha256(rest.encode()).hexdigest()
    assert own == f' "sha256": "{of}",\n'
    value = json.loads(path.read_text())
    for text in (json.dumps(value), json.dumps(value, sort_keys=True, indent=4)):
        path.write_text(text)  # how it is laid out has no effect
        assert read_decisions(path).sha256 == of
    for odd in ("", "0", of.upper()):
        path.write_text(json.dumps({**value, "sha256": odd}))
        with pytest.raises(DjepaError, match="sha256"):
            read_decisions(path)


def test_whole_numbers_as_scores_are_read_back(tmp_path: Path) -> None:
    """Of a program that counts; in JSON another program may write 1 for 1.0."""
    path = tmp_path / "d.json"
    one = DecisionRecord(
        "a", (1, 2), 2, (2, 1), (Scorer("mine", (3, 1)),), outcome=Outcome(True, 2)
    )
    write_decisions(path, [one])
    assert read_decisions(path).decisions[0].scorers[0].scores == (3.0, 1.0)
    path.write_text(path.read_text().replace("3.0", "3"))
    assert read_decisions(path).decisions[0].scorers[0].scores == (3.0, 1.0)
    words = msgspec.structs.replace(one, scorers=(Scorer("mine", (1.0, 2.0), "down"),))  # type: ignore[arg-type]
    with pytest.raises(DjepaError, match=r"decision a: Invalid enum value 'down'"):
        write_decisions(path, [words])


def test_bad_records_are_named(kit: Kit, made: Decisions, tmp_path: Path) -> None:
    one = made.decisions[0]
    K = len(one.candidates)
    wrong = {
        "each once": {"candidates": one.candidates[:-1] + one.candidates[:1]},
        "the choice first": {"order": one.order[::-1]},
        "scorer stands twice": {"scorers": (one.scorers[0], one.scorers[0])},
        f"has 3 scores for {K}": {"scorers": (Scorer("mine", (1.0, 2.0, 3.0)),)},
        "NaN": {"scorers": (Scorer("mine", (float("nan"),) * K),)},
    }
    for message, change in wrong.items():
        with pytest.raises(DjepaError, match=message):
            msgspec.structs.replace(one, **change)
    path = tmp_path / "d.json"
    write_decisions(path, made.decisions)
    value = json.loads(path.read_text())
    for change, message in (({"note": 1}, "note"), ({"version": 2}, "version")):
        path.write_text(json.dumps({**value, **change}))
        with pytest.raises(DjepaError, match=message):
            read_decisions(path)
    value["decisions"][0]["choice"] = 10**6
    path.write_text(json.dumps(value))
    assert "the choice first" in djepa("audit", path).stderr
    elsewhere = Decisions((msgspec.structs.replace(one, start="00"),))
    with pytest.raises(DjepaError, match="does not have"):
        audit_decisions(elsewhere, kit.bank)
    with pytest.raises(DjepaError, match="has no start 00"):
        inspect_record(kit.bank, elsewhere)
    with pytest.raises(DjepaError, match="no decision"):
        audit_decisions(Decisions(()), kit.bank)
