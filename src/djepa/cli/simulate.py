"""`djepa simulate`: episodes to train on."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from djepa.cli.console import console, progress
from djepa.cli.workers import HERE, Workers


@dataclass(frozen=True)
class Simulate:
    """Play episodes of exploring behaviour into a folder. Run again to go on."""

    world: Annotated[str, Positional, arg(metavar="WORLD")] = "push"
    """The world: push, reacher, granular, cube, arm, or your own as package.module:TASK."""
    out: Path = Path("runs/episodes")
    """Folder for the shards."""
    episodes: int = 100_000
    """How many episodes of 16 frames (push: 80 controls)."""
    shapes: tuple[str, ...] = ()
    """What the world comes in, in turn; its first shape unless some are named (push: T)."""
    seed: int = 0
    """Seed of everything drawn."""
    execution: Workers = HERE

    def run(self) -> int:
        """Simulate and say where the shards are."""
        from djepa.artefacts.lock import refuse_url
        from djepa.models.episodes import plan_shards, simulate_all
        from djepa.tasks.task import get_task

        refuse_url(self.out, "--out")
        shapes = self.shapes or get_task(self.world).shapes[:1]
        shards = plan_shards(self.out, self.episodes, self.seed, shapes, self.world)
        with progress("Simulating", "shards") as tick:
            simulate_all(shards, self.execution.start(), tick)
        console.print(f"{len(shards)} shards in {self.out}")
        return 0
