"""`djepa pools`: what a bank's pools are like."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from djepa.cli.console import console


@dataclass(frozen=True)
class Pools:
    """What is in the pools of a bank: success by family, and of choices that need no model."""

    banks: Annotated[tuple[Path, ...], Positional, arg(metavar="BANK ...")]
    """One or more banks."""
    json: Path | None = None
    """Also write the numbers here."""
    figure: Path | None = None
    """Also draw them here (.png or .svg; extra `report`)."""

    def run(self) -> int:
        """Print the table."""
        from djepa.artefacts.claim import JSON_OF, claim_figure, claim_file
        from djepa.bank.read import Bank
        from djepa.errors import DjepaError
        from djepa.files import write_atomically
        from djepa.report.pool_stats import pool_stats, stats_figure, stats_json, stats_markdown

        if not self.banks:
            raise DjepaError("Name at least one bank: djepa pools runs/push")
        if self.json:
            claim_file(self.json, JSON_OF["pools"])
        if self.figure:
            claim_figure(self.figure)
        stats = [pool_stats(Bank(path)) for path in self.banks]
        console.print(stats_markdown(stats))
        if self.json:
            write_atomically(self.json, stats_json(stats).encode())
        if self.figure:
            stats_figure(stats, self.figure)
        return 0
