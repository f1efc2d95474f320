"""`djepa check`: verify banks."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.text import Text
from tyro.conf import Positional, arg

from djepa.cli.console import console


@dataclass(frozen=True)
class Check:
    """Verify files, hashes, identities and outcomes; execute a sample again; compare splits."""

    banks: Annotated[tuple[Path, ...], Positional, arg(metavar="BANK")]
    """One or more banks. Several are also checked for shared starts."""
    sample: int = 200
    """Candidates per bank to execute again."""
    seed: int = 0
    """Which ones."""

    def run(self) -> int:
        """Print a line per property that holds; stop at the first that does not."""
        from djepa.bank.check import check_bank, check_disjoint
        from djepa.bank.read import Bank
        from djepa.errors import DjepaError

        if not self.banks:
            raise DjepaError("Name at least one bank: djepa check runs/push")
        for path in self.banks:
            console.print(f"{path}", style="bold")
            for line in check_bank(path, self.sample, self.seed):
                _ok(line)
        for line in check_disjoint([Bank(path) for path in self.banks]):
            _ok(line)
        return 0


def _ok(line: str) -> None:
    console.print(Text.assemble("  ", ("ok", "green"), f" {line}"))
