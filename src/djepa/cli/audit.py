"""`djepa audit`: what a model's choices are worth, and where they go wrong."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import FlagConversionOff, Positional, arg

from djepa.cli.console import console


@dataclass(frozen=True)
class Audit:
    """Success beside a random, the densest and the best candidate; which part fails; then gaps,
    inversions and correlations, down to the shortlist that decides.
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
    realised: Annotated[bool, FlagConversionOff] = True
    """Of a bank: encode what execution showed, for the verdict and the correlations; False needs no
    weights and is quick."""
    device: str = "cpu"
    """cpu or cuda."""
    json: Path | None = None
    """Also write the numbers here, start by start."""
    figure: Path | None = None
    """Also draw the successes here (.png or .svg; extra `report`)."""

    def run(self) -> int:
        """Audit and print the table."""
        from djepa.align.store import load_alignment
        from djepa.audit.arrays import audit_arrays
        from djepa.audit.bank import report_bank
        from djepa.audit.record import audit_decisions, executed_markdown
        from djepa.audit.recorded import audit_recorded
        from djepa.bank.read import Bank
        from djepa.errors import DjepaError
        from djepa.files import to_json, write_atomically
        from djepa.interop.record import read_decisions
        from djepa.tasks.recorded import is_recorded

        if self.what is None:
            raise DjepaError("Name a bank or an .npz of arrays: djepa audit runs/push")
        self._check()
        if self.what.suffix == ".json":
            console.print(executed_markdown(read_decisions(self.what)))
            return 0
        if is_recorded(self.what):
            console.print(audit_recorded(self.what, self.geometry, self.device))
            return 0
        alignment = load_alignment(self.alignment) if self.alignment else None
        if self.what.suffix == ".npz" or self.what.is_file():
            found = audit_arrays(self.what, alignment)
        elif self.decisions:
            found = audit_decisions(read_decisions(self.decisions), Bank(self.what))
        else:
            bank = Bank(self.what)
            console.print(f"auditing {', '.join(self.geometry)} ...")
            found = report_bank(bank, self.geometry, self.device, self.realised, alignment)
        if self.json:
            write_atomically(self.json, to_json(found.as_rows()).encode())
        if self.figure:
            found.plot(self.figure)
        console.print(found.table())
        return 0

    def _check(self) -> None:
        """Options that what is audited cannot take are refused, not ignored."""
        from djepa.errors import DjepaError
        from djepa.tasks.recorded import is_recorded

        assert self.what is not None
        record = self.what.suffix == ".json"
        recorded = not record and is_recorded(self.what)
        arrays = not recorded and (self.what.suffix == ".npz" or self.what.is_file())
        kind = "a decision record" if record else "recorded episodes" if recorded else "arrays"
        given = {
            "--alignment": self.alignment and (record or recorded or self.decisions),
            "--decisions": self.decisions and (record or recorded or arrays),
            "--json": self.json and (record or recorded),
            "--figure": self.figure and (record or recorded),
        }
        wrong = [name for name, value in given.items() if value]
        if wrong == ["--alignment"] and self.decisions:
            raise DjepaError("Give --decisions or --alignment: a record has its own choices.")
        if wrong:
            raise DjepaError(f"An audit of {kind} takes no {' and no '.join(wrong)}.")
