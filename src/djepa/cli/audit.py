"""`djepa audit`: where predicted order and executed outcome part."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import FlagConversionOff, Positional, arg

from djepa.cli.console import console


@dataclass(frozen=True)
class Audit:
    """Distance gaps, pair inversions and rank correlations, down to the shortlist that decides."""

    bank: Annotated[Path | None, Positional, arg(metavar="BANK")] = None
    """A bank with predictions beside it (`djepa predict`), of starts no geometry was trained on."""
    arrays: Path | None = None
    """Instead of a bank: an .npz with ids, success, costs or costs_NAME; see docs/audit.md."""
    geometry: tuple[str, ...] = ("lewm", "tdjepa", "jepawm", "dinowm")
    """Shipped geometries by name, or folders of weights."""
    realised: Annotated[bool, FlagConversionOff] = True
    """Encode what execution showed, for the correlations; False needs no weights and is quick."""
    device: str = "cpu"
    """cpu or cuda."""
    json: Path | None = None
    """Also write the numbers here, start by start."""

    def run(self) -> int:
        """Audit and print the table."""
        from djepa.audit.arrays import audit_arrays
        from djepa.audit.bank import audit_bank
        from djepa.audit.table import audit_markdown
        from djepa.bank.read import Bank
        from djepa.errors import DjepaError
        from djepa.files import to_json, write_atomically

        if (self.bank is None) == (self.arrays is None):
            raise DjepaError("Name a bank or --arrays FILE.npz, one of the two.")
        if self.bank:
            bank, audits = Bank(self.bank), []
            for name in self.geometry:
                console.print(f"auditing {name} ...")
                audits.append(audit_bank(bank, name, self.device, self.realised))
        else:
            assert self.arrays is not None
            audits = audit_arrays(self.arrays)
        if self.json:
            rows = [one.as_dict(each=True) for one in audits]
            write_atomically(self.json, to_json(rows).encode())
        console.print(audit_markdown(audits))
        return 0
