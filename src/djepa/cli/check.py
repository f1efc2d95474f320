"""`djepa check`: verify banks."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

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
            console.print(f"[bold]{path}[/]")
            for line in check_bank(path, self.sample, self.seed):
                console.print(f"  [green]ok[/] {line}")
        for line in check_disjoint([Bank(path) for path in self.banks]):
            console.print(f"  [green]ok[/] {line}")
        return 0
