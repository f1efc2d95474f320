"""`djepa audit`: what a model's choices are worth, and where they go wrong."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from djepa.cli.console import console

if TYPE_CHECKING:
    from djepa.align.fit import Alignment
    from djepa.audit.report import Report
    from djepa.bank.read import Bank

RECORD, RECORDED, ARRAYS = "a decision record", "recorded episodes", "arrays"
BANK, DECIDED = "a bank", "a decision record against its bank"
WRITTEN = {"json", "figure"}
TAKES = {  # kind of input -> options that have an effect
    RECORD: set[str](),
    RECORDED: {"geometry", "device"},
    ARRAYS: {"alignment", *WRITTEN},
    BANK: {"geometry", "alignment", "realised", "device", *WRITTEN},
    DECIDED: {"decisions", "page", "starts", *WRITTEN},
}


@dataclass(frozen=True)
class Audit:
    """Find out what a model's choices are worth: success beside a random, the densest and the best
    candidate; which part fails; then gaps, inversions and correlations.
    """

    what: Annotated[Path | None, Positional, arg(metavar="BANK|FILE")] = None
    """A bank with predictions beside it (`djepa predict`), of starts no geometry was trained on;
    any model's arrays in an .npz: ids, success, costs or costs_NAME, see docs/audit.md; a decision
    record in a .json, or a folder of recorded episodes, see docs/interop.md."""
    geometry: tuple[str, ...] = ("lewm", "tdjepa", "jepawm", "dinowm")
    """Of a bank: shipped geometries by name, or folders of weights."""
    alignment: Path | None = None
    """Also audit this alignment: its choices, and how often they fail where its gate abstains."""
    decisions: Path | None = None
    """Of a bank: audit this decision record of its starts instead, written by any program."""
    realised: bool = True
    """Of a bank: encode what execution showed, for the verdict and the correlations. Without it no
    weights are needed, and the audit is quick."""
    device: str = "cpu"
    """cpu or cuda."""
    json: Path | None = None
    """Also write the numbers here, start by start."""
    figure: Path | None = None
    """Also draw the successes here (.png or .svg; extra `report`)."""
    page: Path | None = None
    """With --decisions: also write a page here (.html) with the audit and the inspector, in which
    every candidate of a decision can be replayed."""
    starts: tuple[int, ...] = ()
    """Start IDs to show on the page; without it some that tell most."""

    def run(self) -> int:
        """Audit and print the table."""
        from djepa.audit.record import executed_markdown
        from djepa.audit.recorded import audit_recorded
        from djepa.errors import DjepaError
        from djepa.files import to_json, write_atomically
        from djepa.interop.record import read_decisions

        if self.what is None:
            raise DjepaError("Name a bank or an .npz of arrays: djepa audit runs/push")
        self._check()
        kind = self._kind()
        if kind == RECORD:
            console.print(executed_markdown(read_decisions(self.what)))
            return 0
        if kind == RECORDED:
            console.print(audit_recorded(self.what, self.geometry, self.device))
            return 0
        found = self._decided(self.what) if kind == DECIDED else self._audited(self.what, kind)
        if self.json:
            write_atomically(self.json, to_json(found.as_rows()).encode())
        if self.figure:
            found.plot(self.figure)
        console.print(found.table())
        if self.page:
            console.print(f"open {self.page}")
        return 0

    def _audited(self, what: Path, kind: str) -> "Report":
        """The audit of arrays or of a bank."""
        from djepa.align.store import load_alignment
        from djepa.audit.arrays import audit_arrays
        from djepa.audit.bank import report_bank
        from djepa.bank.read import Bank

        alignment = load_alignment(self.alignment) if self.alignment else None
        if kind == ARRAYS:
            return audit_arrays(what, alignment)
        self._check_bank(bank := Bank(what), alignment)
        console.print(f"auditing {', '.join(self.geometry)} ...")
        return report_bank(bank, self.geometry, self.device, self.realised, alignment)

    def _decided(self, what: Path) -> "Report":
        """The audit of a decision record against a bank, and its page if one is wanted."""
        from djepa.audit.record import audit_decisions
        from djepa.bank.read import Bank
        from djepa.interop.record import read_decisions
        from djepa.report.decisions import write_decisions_page

        assert self.decisions is not None
        bank, given = Bank(what), read_decisions(self.decisions)
        found = audit_decisions(given, bank)
        if self.page:
            write_decisions_page(self.page, bank, given, found, self.starts)
        return found

    def _check(self) -> None:
        """Refuse invalid inputs and outputs before any work."""
        from djepa.artefacts.claim import JSON_OF, PAGE, claim_figure, claim_file
        from djepa.audit.report import check_figure
        from djepa.errors import DjepaError

        kind = self._kind()
        names = [of.name for of in fields(self) if of.name != "what"]
        given = [name for name in names if getattr(self, name) != getattr(type(self), name)]
        wrong = [f"--{name}" for name in given if name not in TAKES[kind]]
        if self.decisions and "--alignment" in wrong:
            raise DjepaError("Give --decisions or --alignment: a record has its own choices.")
        if kind in (RECORD, BANK) and self.page:
            raise DjepaError("--page shows a record's choices in a bank: BANK --decisions FILE.")
        if wrong:
            raise DjepaError(f"An audit of {kind} takes no {' and no '.join(wrong)}.")
        if self.figure:
            check_figure(self.figure)
            claim_figure(self.figure)
        if self.json:
            claim_file(self.json, JSON_OF["audit"])
        if self.page:
            claim_file(self.page, PAGE)
        elif self.starts:
            raise DjepaError("--starts are those of --page: name its file.")

    def _kind(self) -> str:
        """The kind of the input, a key of `TAKES`."""
        from djepa.tasks.recorded import is_recorded

        assert self.what is not None
        if self.what.suffix == ".json":
            return RECORD
        if is_recorded(self.what):
            return RECORDED
        if self.what.suffix == ".npz" or self.what.is_file():
            return ARRAYS
        return DECIDED if self.decisions else BANK

    def _check_bank(self, bank: "Bank", alignment: "Alignment | None") -> None:
        """Check that every geometry has weights and predictions, before long work."""
        from djepa.models.predictions import Stored
        from djepa.models.weights import geometry_name

        own = map(geometry_name, self.geometry) if self.realised else self.geometry
        for name in (*own, *(alignment.config.geometries if alignment else ())):
            Stored(bank, name)
