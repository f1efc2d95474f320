"""`djepa bench`: speed and memory, as ratios measured in one run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from djepa.cli.console import console


@dataclass(frozen=True)
class Bench:
    """Measure against a plain loop in the same run, so that machines can be compared."""

    what: Annotated[str, Positional, arg(metavar="WHAT")] = "world"
    """What to measure: world."""
    json: Path | None = None
    """Also write the numbers here."""
    seconds: float = 2.0
    """Time given to each measurement."""

    def run(self) -> int:
        """Measure and print the table."""
        from djepa.bench.table import bench_markdown
        from djepa.bench.world import bench_world
        from djepa.errors import DjepaError, unknown_name
        from djepa.files import to_json, write_atomically

        if self.seconds <= 0:
            raise DjepaError(f"seconds must be above 0, got {self.seconds}.")
        if self.what != "world":
            raise unknown_name("bench", self.what, ["world"])
        rows = bench_world(self.seconds, lambda line: console.print(f"measuring {line} ..."))
        console.print(bench_markdown(rows))
        if self.json:
            write_atomically(self.json, to_json([row.as_dict() for row in rows]).encode())
        return 0
