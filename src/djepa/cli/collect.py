"""`djepa collect`: execute every candidate of every start and record what happened."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from djepa.cli.console import console, progress


@dataclass(frozen=True)
class Collect:
    """Restore starts, execute every candidate, write a bank. Run again to resume."""

    world: Annotated[str, Positional, arg(metavar="WORLD")] = "push"
    """The world to execute in: push."""
    out: Path = Path("runs/push")
    """Folder of the bank. An unfinished one is continued, a foreign one is refused."""
    starts: int = 512
    """How many starts."""
    profile: str = "reference-control"
    """How candidates are made: reference-control, pusht-confirmation, visual-shape or decoy."""
    shape: str = "T"
    """The block: T, L, Z, +, I, small-T or square."""
    behaviour: str = "mixed"
    """What drives the references: push, weak, or mixed."""
    rule: str = "push.v1"
    """Success rule: push.v1 or push-symmetric.v1."""
    split: str = "fit"
    """Population the starts belong to; different splits never share a start."""
    seed: int = 0
    """Seed of everything drawn."""
    horizon: int = 25
    """Controls per candidate."""
    centres: int = 4
    """Decoy profile: the reference and how many other segments, all told."""
    block: int = 16
    """Starts per shard, which is also the unit of work and of what a crash can cost."""
    engine: str = "local"
    """local (processes on this machine) or ray."""
    workers: int = 0
    """Processes; 0 takes every core."""
    address: str = ""
    """Ray cluster to join; without it RAY_ADDRESS, or a local one started for the occasion."""

    def run(self) -> int:
        """Collect, print where it is and what was dropped."""
        from djepa.bank.collect import collect
        from djepa.rollout.engine import get_engine
        from djepa.rollout.execute import CollectConfig

        names = CollectConfig.__dataclass_fields__
        config = CollectConfig(**{name: getattr(self, name) for name in names})
        engine = get_engine(self.engine, self.workers, self.address or None)
        began = time.monotonic()
        with progress(f"Executing {self.starts} starts", f"blocks of {self.block}") as tick:
            bank = collect(self.out, config, engine, report=tick)
        drops = bank.manifest["drops"]
        dropped = ", ".join(f"{why} {n}" for why, n in drops.items() if n) or "none"
        success = bank.outcomes.success
        mixed = (success.any(1) & ~success.all(1)).mean()
        spent = time.monotonic() - began
        console.print(
            f"{len(bank)} starts x {bank.candidates} candidates in {spent:.1f} s: "
            f"{success.mean():.1%} of candidates succeed, {mixed:.1%} of starts are mixed\n"
            f"drawn {len(bank) + sum(drops.values())}, kept {len(bank)}, dropped: {dropped}\n"
            f"bank: {self.out} (SHA-256 {bank.hash[:12]})"
        )
        return 0
