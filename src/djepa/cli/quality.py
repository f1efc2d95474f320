"""`djepa quality`: how well geometries choose."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from djepa.cli.console import console


@dataclass(frozen=True)
class Quality:
    """Selection by predicted and by realised cost, rank correlations, errors, joint failures."""

    bank: Annotated[Path, Positional, arg(metavar="BANK")]
    """A bank of starts that no geometry was trained or chosen on."""
    geometry: tuple[str, ...] = ("lewm", "tdjepa", "jepawm", "dinowm")
    """Shipped geometries by name, or folders of weights."""
    device: str = "cpu"
    """cpu or cuda."""
    json: Path | None = None
    """Also write the numbers here, start by start."""

    def run(self) -> int:
        """Measure and print the tables."""
        from djepa.bank.read import Bank
        from djepa.evaluate.quality import quality, quality_markdown
        from djepa.files import to_json, write_atomically
        from djepa.models.weights import load_geometry

        bank = Bank(self.bank)
        results = []
        for name in self.geometry:
            console.print(f"measuring {name} ...")
            results.append(quality(load_geometry(name, self.device), bank, self.device))
            if self.json:
                rows = [result.as_dict(picks=True) for result in results]
                write_atomically(self.json, to_json(rows).encode())
        console.print(quality_markdown(results))
        return 0
