"""`djepa check`: verify banks."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.text import Text
from tyro.conf import Positional, arg

from djepa.cli.console import console

if TYPE_CHECKING:
    from djepa.bank.read import Bank
    from djepa.rollout.execute import Proposer


@dataclass(frozen=True)
class Check:
    """Verify files, hashes, identities, outcomes and predictions; execute a sample again; compare
    splits.
    """

    banks: Annotated[tuple[Path, ...], Positional, arg(metavar="BANK ...")]
    """One or more banks. Several are also checked for shared starts."""
    sample: int = 200
    """Candidates per bank to execute again."""
    seed: int = 0
    """Which ones."""
    geometry: Path | None = None
    """Planner and retained banks: folder, or V-JEPA 2-AC's file, of the weights that proposed them,
    if not shipped."""

    def run(self) -> int:
        """Print a line per property that holds; stop at the first that does not."""
        from djepa.bank.check import check_bank, check_disjoint
        from djepa.bank.read import Bank
        from djepa.errors import DjepaError
        from djepa.models.check import check_predictions

        if not self.banks:
            raise DjepaError("Name at least one bank: djepa check runs/push")
        for path in self.banks:
            console.print(f"{path}", style="bold")
            for line in check_bank(path, self.sample, self.seed, self._proposer(Bank(path))):
                _ok(line)
            for line in check_predictions(Bank(path)):
                _ok(line)
        for line in check_disjoint([Bank(path) for path in self.banks]):
            _ok(line)
        return 0

    def _proposer(self, bank: "Bank") -> "Proposer | None":
        """The search or retention that proposed the candidates, if it can be repeated here."""
        from djepa.errors import DjepaError

        source = bank.manifest.get("source")
        if not isinstance(source, dict):
            return None
        from djepa.models.planner_pool import proposer_of
        from djepa.rollout.alike import arithmetic_here

        what = "retention" if source.get("search") == "retention" else "search"
        try:
            proposer = proposer_of(source, bank.config.horizon, self.geometry)
        except DjepaError as error:
            if self.geometry is not None:
                raise
            console.print(f"  -- {what} not done again. {error}")
            return None
        if (there := source.get("arithmetic")) != (here := arithmetic_here()):
            console.print(f"  -- {what} not done again: recorded with {there}, here {here}")
            return None
        return proposer


def _ok(line: str) -> None:
    console.print(Text.assemble("  ", ("ok", "green"), f" {line}"))
