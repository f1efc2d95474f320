"""`djepa collect`: execute every candidate of every start and record what happened."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from tyro.conf import Positional, arg

from djepa.cli.console import console, progress

if TYPE_CHECKING:
    from djepa.bank.read import Bank
    from djepa.rollout.execute import CollectConfig, Proposer


@dataclass(frozen=True)
class Collect:
    """Restore starts, execute every candidate, write a bank. Run again to resume."""

    world: Annotated[str, Positional, arg(metavar="WORLD")] = "push"
    """The world to execute in: push, reacher, granular, or your own as package.module:TASK."""
    out: Path = Path("runs/push")
    """Folder of the bank. An unfinished one is continued, a foreign one is refused."""
    starts: int = 512
    """How many starts."""
    profile: str = ""
    """How candidates are made: reference-control (unless the world has another), decoy, planner,
    pusht-confirmation, visual-shape; granular has replay."""
    shape: str = ""
    """What the world comes in. push: T (unless said), L, Z, +, I, small-T, square; reacher: arm,
    arm-fast; granular: grains-100, grains-200."""
    behaviour: str = "mixed"
    """What drives the references: one of the world's behaviours (push: push, weak), or mixed."""
    rule: str = ""
    """Success rule; push: push.v1 (unless said) or push-symmetric.v1."""
    split: str = "fit"
    """Population the starts belong to; different splits never share a start."""
    seed: int = 0
    """Seed of everything drawn."""
    horizon: int = 0
    """Controls per candidate, whole blocks of them; 0 takes the world's own (push: 25)."""
    candidates: int = 64
    """Decoy profile: candidates per start."""
    centres: int = 4
    """Decoy profile: the reference and how many other segments, all told."""
    shuffles: int = 3
    """Decoy profile: shuffled candidates per centre; the others are noisy."""
    geometry: str = "tdjepa"
    """Planner profile: the geometry whose native cost is searched, by name or a folder."""
    samples: int = 64
    """Planner profile: sequences drawn and costed in every iteration."""
    iterations: int = 16
    """Planner profile: populations; the last one becomes the pool."""
    elites: int = 8
    """Planner profile: how many of a population the next is drawn around."""
    keep: int = 63
    """Planner profile: candidates per start."""
    spread: float = 1.0
    """Planner profile: deviation of the first population, in units of the training controls'."""
    device: str = "cpu"
    """Planner profile: where the geometry is searched, cpu or cuda."""
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
        proposer = self._proposer(config)
        began, there = time.monotonic(), list[int]()

        with progress("Executing every candidate", "starts") as tick:

            def report(done: int, total: int) -> None:
                there.append(done)
                tick(done, total)

            bank = collect(self.out, config, engine, proposer, report)
        self._summarise(bank, len(bank) - there[0], time.monotonic() - began)
        return 0

    def _proposer(self, config: "CollectConfig") -> "Proposer | None":
        """The search of the planner profile; the others need none, and no torch."""
        from djepa.errors import unknown_name

        if not config.searches():
            return None
        if self.profile != "planner":
            raise unknown_name("profile", self.profile, (*config.task.profiles, "planner"))
        from djepa.models.planner_pool import CEMProposer
        from djepa.pools.cem import CEM

        cem = CEM(self.samples, self.iterations, self.elites, self.keep)
        return CEMProposer(self.geometry, cem, self.spread, config.horizon, self.device)

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
