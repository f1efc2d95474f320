"""`djepa audit BANK --decisions FILE --page OUT`: a record in the inspector, with its audit."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from commands import djepa
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.interop.record import DecisionRecord, Decisions, GateState, Scorer, write_decisions
from djepa.report import decisions
from djepa.report.decisions import telling
from djepa.report.page import Page, write_page
from djepa.report.record import inspect_record


def decided(bank: Bank, starts: list[int], gated: bool = True) -> list[DecisionRecord]:
    """Made-up decisions with IDs in an order of their own; the gate opens on every other start."""
    rng, found = np.random.default_rng(0), []
    for i in starts:
        ids = rng.permutation(bank.decisions.candidate_ids[i])
        mine, base, aligned = rng.random((3, len(ids)))
        score = base if i % 2 or not gated else aligned
        order = tuple(ids[np.lexsort((ids, score))].tolist())
        scorers = [Scorer("mine", tuple((-mine).tolist()), "higher")]
        gate = None
        if gated:
            scorers += [
                Scorer(name, tuple(of.tolist()), kind=name)
                for name, of in (("base", base), ("aligned", aligned))
            ]
            gate = GateState(i % 2 == 0, 0.3 if i % 2 == 0 else 0.1, 0.2, int(ids[base.argmin()]))
        name = bytes(bank.decisions.identities[i]).hex()
        ids = tuple(ids.tolist())
        found.append(DecisionRecord(name, ids, order[0], order, tuple(scorers), gate))
    return found


def shown(page: Path) -> dict[str, Any]:
    """The data of the inspector on a page."""
    found = re.search(r'id="inspector-data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found
    (pool,) = json.loads(found[1])
    return pool


@pytest.mark.parametrize("gated", [True, False])
def test_the_page_shows_what_was_decided(gated: bool, small_bank: Bank, tmp_path: Path) -> None:
    made, record = decided(small_bank, [3, 0, 8], gated), tmp_path / "d.json"
    write_decisions(record, made, {"bank": small_bank.hash})
    page = tmp_path / "new/page.html"
    words = ("audit", small_bank.path, "--decisions", record, "--page", page)
    done = djepa(*words)
    assert done.returncode == 0, done.stderr
    assert f"open {page}" in done.stdout
    first, pool = page.read_bytes(), shown(page)
    assert (pool["geometries"], pool["methods"]) == (["mine"], ["decisions"])
    assert [one["start"] for one in pool["starts"]] == [3, 0, 8]
    for one, start in zip(made, pool["starts"], strict=True):
        (method,) = start["methods"]
        best_first = [start["ids"][i] for i in np.argsort(method["ranks"])]
        assert (method["chosen"], best_first) == (one.choice, list(one.order))
        costs = dict(zip(one.candidates, one.scorers[0].cost, strict=True))
        expected = [costs[candidate] for candidate in start["ids"]]
        assert np.allclose(start["costs"][0], expected, rtol=1e-4)
        assert method["opened"] == (one.gate.opened if one.gate else None)
        assert method["threshold"] == (0.2 if gated else None)
    text = page.read_text()
    for cell in re.findall(r"\| success of the \w+ .*\| (\d[^|]*?) \|", done.stdout):
        assert cell in text  # the audit's own numbers
    assert small_bank.hash[:12] in text
    assert djepa(*words).returncode == 0  # its own page is overwritten
    assert page.read_bytes() == first


def test_named_starts_are_shown(small_bank: Bank, tmp_path: Path) -> None:
    record, page = tmp_path / "d.json", tmp_path / "page.html"
    write_decisions(record, decided(small_bank, [3, 0, 8]))
    words = ("audit", small_bank.path, "--decisions", record, "--page", page, "--starts")
    assert djepa(*words, 8, 3).returncode == 0
    assert [one["start"] for one in shown(page)["starts"]] == [8, 3]
    assert "has no decision of start 1" in djepa(*words, 8, 1).stderr
    assert "has no start 99" in djepa(*words, 99).stderr


def test_other_pages_are_left_alone(small_bank: Bank, tmp_path: Path) -> None:
    record, page = tmp_path / "d.json", tmp_path / "page.html"
    write_decisions(record, decided(small_bank, [3]))
    for write in (lambda: page.write_text("<html>mine</html>"), lambda: _study(page)):
        write()
        before = page.read_bytes()
        done = djepa("audit", small_bank.path, "--decisions", record, "--page", page)
        assert (done.returncode, page.read_bytes()) == (1, before)
        assert "is there already" in done.stderr


def _study(page: Path) -> None:
    write_page(page, Page("A study", "of something else"))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("bank", "--page", "p.html"), "BANK --decisions FILE"),
        (("d.json", "--page", "p.html"), "BANK --decisions FILE"),
        (("x.npz", "--page", "p.html"), "arrays takes no --page"),
        (("bank", "--decisions", "d.json", "--starts", "3"), "--starts are those of --page"),
    ],
)
def test_a_page_needs_a_bank_and_a_record(words: tuple[str, ...], complaint: str) -> None:
    assert complaint in djepa("audit", *words).stderr.replace("\n", " ")


def test_decisions_that_tell_most_come_first(small_bank: Bank) -> None:
    """One differs from the base choice in success, one fails though it need not, one is neither."""
    won, ids = small_bank.outcomes.success, small_bank.decisions.candidate_ids
    mixed = [i for i in range(len(won)) if won[i].any() and not won[i].all()]
    made = {one.start: one for one in decided(small_bank, mixed)}
    assert len(made) >= 3
    kinds = ((True, True), (False, False), (True, False))  # success of our choice, of the base's
    expected: list[DecisionRecord] = []
    for i, kind in zip(mixed, kinds, strict=False):
        one = made[bytes(small_bank.decisions.identities[i]).hex()]
        ours, base = (int(ids[i][won[i] == good][0]) for good in kind)
        assert one.gate
        order = (ours, *(c for c in one.order if c != ours))
        gate = msgspec.structs.replace(one.gate, base_choice=base)
        expected.append(msgspec.structs.replace(one, choice=ours, order=order, gate=gate))
    given = Decisions(tuple(expected))
    neither, failed, gain = expected
    assert telling(small_bank, given, 1) == [gain]
    assert telling(small_bank, given, 2) == [failed, gain]
    assert telling(small_bank, given, 3) == [neither, failed, gain]


def test_a_page_of_many_says_which_are_shown(
    small_bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "MOST", 2)
    record, page = tmp_path / "d.json", tmp_path / "page.html"
    write_decisions(record, decided(small_bank, list(range(10))))
    assert djepa("audit", small_bank.path, "--decisions", record, "--page", page).returncode == 0
    assert len(shown(page)["starts"]) == 2
    assert "2 of 10 are shown: first those whose success differs" in page.read_text()


def test_scorers_that_differ_are_refused(small_bank: Bank) -> None:
    one, other = decided(small_bank, [3, 4])
    given = Decisions((one, msgspec.structs.replace(other, scorers=other.scorers[:1])))
    with pytest.raises(DjepaError, match="must have the same scorers"):
        inspect_record(small_bank, given)


def test_a_browser_opens_it(small_bank: Bank, browser: Any, tmp_path: Path) -> None:
    record, page = tmp_path / "d.json", tmp_path / "page.html"
    write_decisions(record, decided(small_bank, [3, 4]))
    done = djepa("audit", small_bank.path, "--decisions", record, "--page", page)
    assert done.returncode == 0, done.stderr
    context, trouble = browser.new_context(reduced_motion="reduce"), []
    try:
        view = context.new_page()
        view.on("pageerror", lambda error: trouble.append(str(error)))
        view.on("console", lambda said: said.type == "error" and trouble.append(said.text))
        view.goto(page.as_uri())
        assert "gate closed: advantage 0.1000 ≤ threshold 0.2000" in view.inner_text("#inspector")
        assert not trouble
    finally:
        context.close()
