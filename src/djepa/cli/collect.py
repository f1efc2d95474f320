"""`djepa collect`: execute every candidate of every start and record what happened."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from djepa.cli.console import console, progress
from djepa.cli.workers import Workers

if TYPE_CHECKING:
    from djepa.bank.read import Bank
    from djepa.rollout.execute import CollectConfig, Proposer


@dataclass(frozen=True)
class Population:
    """Which starts are drawn."""

    starts: int = 512
    """How many starts."""
    split: str = "fit"
    """Name of the population; starts of different splits are never the same."""
    seed: int = 0
    """Seed of everything drawn."""
    shape: str = ""
    """Variant of the world. push: T (the default), L, Z, +, I, small-T, square; reacher: arm,
    arm-fast; granular: grains-100, grains-200, piles-200; arm: push, stack."""
    behaviour: str = "mixed"
    """What drives the references: one of the world's behaviours (push: push, weak), or mixed."""
    rule: str = ""
    """When a candidate succeeds. push: push.v1 (the default) or push-symmetric.v1."""
    horizon: int = 0
    """Controls per candidate; 0 takes the world's own (push: 25)."""


@dataclass(frozen=True)
class Decoy:
    """Only for --profile decoy: candidates around the reference and other segments."""

    candidates: int = 64
    """Candidates per start."""
    centres: int = 4
    """Segments that are perturbed, the reference included."""
    shuffles: int = 3
    """Shuffled candidates per centre; the others are noisy."""


@dataclass(frozen=True)
class Costs:
    """Only for --profile planner and pusht-confirmation: candidates by a native cost."""

    geometry: str = ""
    """The geometry whose native cost it is, by name or a folder; by default the world's TD-JEPA.
    arm: also V-JEPA 2-AC's file in a clone of its repository."""
    keep: int = 63
    """Candidates per start."""
    device: str = "cpu"
    """Where costs are computed: cpu or cuda."""
    top: int = 16
    """pusht-confirmation: so many are the cheapest; the others come from the families in turn."""
    samples: int = 64
    """planner: sequences drawn and costed in every iteration."""
    iterations: int = 16
    """planner: populations; the last one becomes the pool."""
    elites: int = 8
    """planner: how many of a population the next is drawn around."""
    spread: float = 1.0
    """planner: deviation of the first population, in units of the training controls'."""
    momentum: float = 0.0
    """planner: share of the old mean and deviation that every refit keeps."""
    axes: tuple[float, ...] = ()
    """planner: factors of that deviation, one an axis; 0: the axis is not searched."""


@dataclass(frozen=True)
class Execution(Workers):
    """Where the work is done. None of it changes a byte but --block, the size of a file."""

    block: int = 16
    """Starts per file, which is also the unit of work and of what a crash can lose."""


@dataclass(frozen=True)
class Collect:
    """Restore starts, execute every candidate, write a bank. Run again to resume."""

    world: Annotated[str, Positional, arg(metavar="WORLD")] = "push"
    """The world: push, reacher, granular, cube, arm, or your own as package.module:TASK."""
    out: Path = Path("runs/push")
    """Folder of the bank. An unfinished one is continued, any other is refused."""
    profile: str = ""
    """How candidates are made: reference-control (the default), visual-shape, pusht-confirmation
    (256 with the reference, which is removed; 63 retained by TD-JEPA's cost), decoy, planner;
    granular: replay."""
    population: Population = Population()
    decoy: Decoy = Decoy()
    costs: Costs = Costs()
    execution: Execution = Execution()

    def run(self) -> int:
        """Collect, print where it is and what was dropped."""
        from djepa.bank.collect import collect
        from djepa.rollout.execute import CollectConfig

        groups = (self, self.population, self.decoy, self.execution)
        flags = {name: value for group in groups for name, value in vars(group).items()}
        config = CollectConfig(**{name: flags[name] for name in CollectConfig.__dataclass_fields__})
        engine = self.execution.start()
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
        """The proposer by a native cost; None for other profiles, which need no torch."""
        from djepa.errors import unknown_name

        if config.profile not in ("planner", "pusht-confirmation"):
            if config.searches():
                raise unknown_name("profile", config.profile, (*config.task.profiles, "planner"))
            return None
        from djepa.models.planner_pool import CEMProposer, RetainingProposer
        from djepa.models.weights import shipped
        from djepa.pools import Retention
        from djepa.pools.cem import CEM

        of, own = self.costs, f"{config.world}-tdjepa"
        geometry = of.geometry or (own if own in shipped() else "tdjepa")
        if config.profile == "planner":
            cem = CEM(of.samples, of.iterations, of.elites, of.keep, of.momentum)
            return CEMProposer(geometry, cem, of.spread, config.horizon, of.device, of.axes)
        return RetainingProposer(geometry, Retention(of.keep, of.top), config.horizon, of.device)

    def _summarise(self, bank: "Bank", fresh: int, seconds: float) -> None:
        drops = bank.manifest["drops"]
        dropped = ", ".join(f"{why} {n}" for why, n in drops.items() if n) or "none"
        good, mixed = 0, 0
        for part in bank.parts():
            success = part.outcomes.success
            good += int(success.sum())
            mixed += int((success.any(1) & ~success.all(1)).sum())
        done = f"{fresh} executed in {seconds:.1f} s" if fresh else "all of them there already"
        console.print(
            f"{len(bank)} starts x {bank.candidates} candidates, {done}\n"
            f"{good / (len(bank) * bank.candidates):.1%} of candidates succeed; "
            f"{mixed / len(bank):.1%} of starts are mixed: they "
            "have a success and a failure\n"
            f"drawn {len(bank) + sum(drops.values())}, kept {len(bank)}, dropped: {dropped}\n"
            f"bank: {self.out} (SHA-256 {bank.hash[:12]})"
        )
