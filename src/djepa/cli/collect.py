"""`djepa collect`: execute every candidate of every start and record what happened."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from tyro.conf import Positional, arg

from djepa.cli.console import console, progress

if TYPE_CHECKING:
    from djepa.bank.read import Bank


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
    """Controls per candidate, a multiple of 5."""
    candidates: int = 64
    """Decoy profile: candidates per start."""
    centres: int = 4
    """Decoy profile: the reference and how many other segments, all told."""
    shuffles: int = 3
    """Decoy profile: shuffled candidates per centre; the others are noisy."""
    block: int = 16
    """Starts per shard, which is also the unit of work and of what a crash can cost."""
    engine: str = "local"
    """local (processes on this machine) or ray."""
    workers: int = 0
    """Processes; 0 takes every core."""
    address: str = ""
    """Ray cluster to join; without it RAY_ADDRESS, or a local one started for the occasion."""

    interrupted: ClassVar[str] = ": what was finished is on disk; the same command goes on"

    def run(self) -> int:
        """Collect, print where it is and what was dropped."""
        from djepa.bank.collect import collect
        from djepa.rollout.engine import get_engine
        from djepa.rollout.execute import CollectConfig

        names = CollectConfig.__dataclass_fields__
        config = CollectConfig(**{name: getattr(self, name) for name in names})
        engine = get_engine(self.engine, self.workers, self.address or None)
        began, there = time.monotonic(), list[int]()

        with progress("Executing every candidate", "starts") as tick:

            def report(done: int, total: int) -> None:
                there.append(done)
                tick(done, total)

            bank = collect(self.out, config, engine, report=report)
        self._summarise(bank, len(bank) - there[0], time.monotonic() - began)
        return 0

    def _summarise(self, bank: "Bank", fresh: int, seconds: float) -> None:
        drops = bank.manifest["drops"]
        dropped = ", ".join(f"{why} {n}" for why, n in drops.items() if n) or "none"
        success = bank.outcomes.success
        mixed = (success.any(1) & ~success.all(1)).mean()
        done = f"{fresh} executed in {seconds:.1f} s" if fresh else "all of them there already"
        console.print(
            f"{len(bank)} starts x {bank.candidates} candidates, {done}\n"
            f"{success.mean():.1%} of candidates succeed; {mixed:.1%} of starts are mixed: they "
            "have a success and a failure\n"
            f"drawn {len(bank) + sum(drops.values())}, kept {len(bank)}, dropped: {dropped}\n"
            f"bank: {self.out} (SHA-256 {bank.hash[:12]})"
        )
