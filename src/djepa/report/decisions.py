"""The page of a decision record: its audit, and the inspector for some of its decisions.

Legend: N starts of the bank, K candidates.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from djepa import __version__
from djepa.artefacts.claim import AUDITED, PAGE, claim_file
from djepa.audit.choices import RANDOM, Choices
from djepa.audit.report import Report
from djepa.audit.table import audit_column, gate_column
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.interop.record import DecisionRecord, Decisions
from djepa.report.page import Headline, Page, Section, write_page
from djepa.report.record import inspect_record
from djepa.report.tables import Table

MOST = 24  # decisions of a page, unless they are named; one of push takes 40 kB
PICKED = (
    "{shown} of {all} are shown: first those whose success differs from that of the base choice, "
    "or without a gate from that of the first scorer's choice; then those that failed although a "
    "candidate succeeds; then others."
)


def write_decisions_page(
    path: Path | str, bank: Bank, given: Decisions, found: Report, starts: Sequence[int] = ()
) -> Path:
    """Write the audit of a record and the inspector as one HTML file.

    `starts` are IDs to show in the inspector; without them `telling` picks some.
    """
    claim_file(path, PAGE)
    picked = _named(bank, given, starts) if starts else telling(bank, given, MOST)
    shown = msgspec.structs.replace(given, decisions=tuple(picked))
    assert found.aligned is not None  # a record always has choices
    decided = {"decisions": gate_column(found.aligned, found.gate)}
    models = {one.name: audit_column(one) for one in found.models}
    count = {"shown": len(picked), "all": len(given.decisions)}
    words = (PICKED if count["all"] > MOST and not starts else "{shown} of {all} are shown.").format
    inputs = "".join(f" Made from {what} {of[:12]}." for what, of in given.made_from.items())
    where = f"Bank {bank.hash[:12]}, rule {bank.config.rule}."
    page = Page(
        title="Decisions",
        subtitle=f"{len(given.decisions)} decisions of a record, on the outcomes of the bank "
        f"{bank.path.name}.",
        headlines=_headlines(found.aligned, len(given.decisions)),
        sections=(
            Section(
                "What the choices are worth",
                tables=(
                    _table("choices", "The choices of the record", decided),
                    _table("scorers", "Each model alone", models),
                ),
            ),
            Section("The decisions shown", (words(**count),)),
        ),
        inspector=inspect_record(bank, shown),
        footer=f"djepa {__version__}. {where}{inputs}",
        maker=AUDITED,
    )
    return write_page(path, page)


def telling(bank: Bank, given: Decisions, most: int) -> list[DecisionRecord]:
    """The decisions that are most worth a look, in the record's order; see `PICKED`."""
    rows, won = _rows(bank), bank.outcomes.success
    kinds = []
    for one in given.decisions:
        row = rows[one.start]
        success = dict(zip(bank.decisions.candidate_ids[row].tolist(), won[row], strict=True))
        ours, other = success[one.choice], success[_other(one)]
        kinds.append(0 if ours != other else 1 if not ours and won[row].any() else 2)
    first = sorted(np.argsort(kinds, kind="stable")[:most].tolist())
    return [given.decisions[i] for i in first]


def _other(one: DecisionRecord) -> int:
    """The base choice; without a gate the choice of the first scorer."""
    if one.gate or not one.scorers:
        return one.gate.base_choice if one.gate else one.choice
    return min(zip(one.scorers[0].cost, one.candidates, strict=True))[1]


def _named(bank: Bank, given: Decisions, starts: Sequence[int]) -> list[DecisionRecord]:
    """The decisions of these start IDs."""
    known = {one.start: one for one in given.decisions}
    names = [bytes(bank.decisions.identities[bank.row(start)]).hex() for start in starts]
    if missing := [start for start, name in zip(starts, names, strict=True) if name not in known]:
        raise DjepaError(f"The record has no decision of start {missing[0]}.")
    return [known[name] for name in dict.fromkeys(names)]


def _rows(bank: Bank) -> dict[str, int]:
    return {bytes(row).hex(): i for i, row in enumerate(bank.decisions.identities)}


def _headlines(chosen: Choices, decisions: int) -> tuple[Headline, ...]:
    """Success of the choices, and their gain over a random pick."""
    share, gain = next(iter(chosen.success.values())), chosen.over[RANDOM]
    return (
        Headline(
            "success of the choice",
            f"{100 * share.value:.1f} %",
            f"{100 * share.low:.1f} to {100 * share.high:.1f}, {decisions} decisions",
        ),
        Headline(
            f"choice minus {RANDOM}",
            f"{100 * gain.value:+.1f} points",
            f"{100 * gain.low:+.1f} to {100 * gain.high:+.1f}",
        ),
    )


def _table(name: str, title: str, columns: dict[str, dict[str, str]]) -> Table:
    """A column per scorer; "-" where it has no such row."""
    labels = dict.fromkeys(label for column in columns.values() for label in column)
    rows = tuple((label, *(of.get(label, "-") for of in columns.values())) for label in labels)
    return Table(name, title, ("", *columns), rows)
