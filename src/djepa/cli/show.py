"""`djepa show`: pictures of one start."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from djepa.cli.console import console


@dataclass(frozen=True)
class Show:
    """Draw a start: a contact sheet of every candidate's end, and an animation of a few."""

    bank: Annotated[Path, Positional, arg(metavar="BANK")]
    """The bank."""
    start: int = 0
    """Start ID."""
    candidates: tuple[int, ...] = ()
    """Candidate IDs to animate; by default a success, the nearest miss and the worst."""
    out: Path | None = None
    """Folder for the pictures; by default a folder beside the bank, named after it."""

    def run(self) -> int:
        """Write the pictures and say where they are."""
        from djepa.bank.read import Bank
        from djepa.report.sheet import show

        out = self.out or self.bank.with_name(self.bank.name + "-pictures")
        for path in show(Bank(self.bank), self.start, out, self.candidates or None):
            console.print(f"{path}")
        return 0
