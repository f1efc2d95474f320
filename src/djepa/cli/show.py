"""`djepa show`: pictures of one start."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from djepa.cli.console import console

if TYPE_CHECKING:
    from djepa.bank.read import Bank


@dataclass(frozen=True)
class Show:
    """Draw a start: where every candidate ends, on one sheet, and an animation of a few.

    With --geometry instead: what geometries predict for a few candidates, beside what happened.
    """

    bank: Annotated[Path, Positional, arg(metavar="BANK")]
    """The bank."""
    start: int = 0
    """Start ID."""
    candidates: tuple[int, ...] = ()
    """Candidate IDs to animate or, with geometries, to draw; by default the best success,
    the best failure and the worst candidate."""
    out: Path | None = None
    """Folder for the pictures; by default a folder beside the bank, named after it."""
    geometry: tuple[str, ...] = ()
    """Shipped geometries by name, or folders of weights, whose predictions to draw."""
    device: str = "cpu"
    """cpu or cuda, for the geometries."""

    def run(self) -> int:
        """Write the pictures and print where they are."""
        from djepa.bank.read import Bank
        from djepa.report.sheet import show

        bank, out = Bank(self.bank), self.out or self.bank.with_name(self.bank.name + "-pictures")
        if self.geometry:
            paths = [self._draw_futures(bank, out)]
        else:
            paths = show(bank, self.start, out, self.candidates or None)
        for path in paths:
            console.print(f"{path}")
        return 0

    def _draw_futures(self, bank: "Bank", out: Path) -> Path:
        from djepa.models.weights import find_weights, load_geometry
        from djepa.report.canvas import save_sheet
        from djepa.report.futures import futures_sheet

        path = out / f"start-{bank.row(self.start)}-futures.png"
        geometries = [
            (find_weights(name).resolve().name, load_geometry(name, self.device))
            for name in self.geometry
        ]
        sheet = futures_sheet(bank, self.start, geometries, self.candidates, self.device)
        save_sheet(path, sheet)
        return path
