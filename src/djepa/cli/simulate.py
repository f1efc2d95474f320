"""`djepa simulate`: episodes to train on."""

from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from djepa.cli.console import console, progress


@dataclass(frozen=True)
class Simulate:
    """Play episodes of exploring behaviour into a folder. Run again to go on."""

    world: Annotated[str, Positional, arg(metavar="WORLD")] = "push"
    """The world: push."""
    out: Path = Path("runs/episodes")
    """Folder for the shards."""
    episodes: int = 100_000
    """How many episodes of 80 controls."""
    shapes: tuple[str, ...] = ("T",)
    """The blocks, in turn."""
    seed: int = 0
    """Seed of everything drawn."""
    workers: int = 0
    """Processes; 0 takes every core."""

    def run(self) -> int:
        """Simulate and say where the shards are."""
        from djepa.errors import unknown_name
        from djepa.models.episodes import Simulation, plan_shards

        if self.world != "push":
            raise unknown_name("world", self.world, ["push"])
        shards = plan_shards(self.out, self.episodes, self.seed, self.shapes)
        simulation = Simulation(shards, self.workers)
        with progress("Simulating", "shards") as tick:
            tick(0, len(shards))
            for done, future in enumerate(as_completed(simulation.futures), 1):
                future.result()
                tick(done, len(shards))
        simulation.close()
        console.print(f"{len(shards)} shards in {self.out}")
        return 0
