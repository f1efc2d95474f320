"""`djepa control`: plan in closed loop, from a start to a goal."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from djepa.cli.console import console, progress
from djepa.cli.workers import Workers

if TYPE_CHECKING:
    from djepa.control.results import Episodes


@dataclass(frozen=True)
class EpisodeList:
    """Which episodes are run. What is 0 or empty is the world's own."""

    episodes: int = 16
    """How many, the first ones of the list."""
    goal: int = 0
    """Controls from the start to the goal; push and reacher: 25 (the default) or 50."""
    budget: int = 0
    """Controls until an episode ends, a multiple of replan; by default twice the goal's."""
    replan: int = 0
    """Controls that are executed before the next decision; by default those between two frames."""
    split: str = "control"
    """Name of the episode list. `control` is the frozen one: tune on lists of other names."""
    seed: int = 0
    """Seed of the list; the frozen ones have 0."""
    shape: str = ""
    """Variant of the world, such as T or L of push."""


@dataclass(frozen=True)
class Search:
    """How a decision is found."""

    geometry: str = ""
    """Weights whose cost the search uses, by name or a folder; by default the world's TD-JEPA."""
    alignment: str = ""
    """Folder of a fitted alignment, for the aligned planners; push has one in the package."""
    evaluations: int = 512
    """Model evaluations of a decision at most: a candidate rolled out by a geometry is one."""
    samples: int = 64
    """Candidates of a population."""
    elites: int = 8
    """How many of a population the next is drawn around."""
    shortlist: int = 0
    """aligned: the other models evaluate only so many of the final population, the cheapest."""
    horizon: int = 0
    """Controls of a candidate; 0: as many as lie between start and goal."""
    shrink: bool = True
    """Candidates of later decisions end when those of the first do; otherwise all are as long."""
    warm: bool = True
    """A search begins with what is left of the plan before."""
    spread: float = 1.0
    """Deviation of the first population, in units of the training controls'."""
    temperature: float = 0.1
    """mppi: of the weights, in units of the log cost."""


@dataclass(frozen=True)
class Execution(Workers):
    """Where the work is done. None of it changes an episode, but a GPU rounds differently."""

    block: int = 0
    """Episodes per file, the unit of work. 0: 4, on a GPU 64."""
    device: str = "cpu"
    """Where geometries run: cpu or cuda."""


@dataclass(frozen=True)
class Control:
    """Run episodes: decide, execute a few controls, look again. Run again to resume."""

    world: Annotated[str, Positional, arg(metavar="WORLD")] = "push"
    """push, reacher, granular, cube, or your own as package.module:TASK."""
    planner: str = "aligned"
    """native-cem, icem, mppi, aligned, aligned-cem, aligned-mppi or random."""
    out: Path = Path("runs/control")
    """Folder of the episodes. An unfinished one is continued, any other is refused."""
    against: tuple[Path, ...] = ()
    """Folders of the same episodes under other planners, to be compared with."""
    json: Path | None = None
    """Write a summary here: success, controls until it, evaluations."""
    decisions: Path | None = None
    """Write the decision record here: every candidate, score, choice, gate, and what it led to."""
    episodes: EpisodeList = EpisodeList()
    search: Search = Search()
    execution: Execution = Execution()

    def run(self) -> int:
        """Run what is missing, print what came out."""
        from djepa.artefacts.claim import DECISIONS, JSON_OF, claim_file
        from djepa.control.episodes import EpisodeConfig
        from djepa.control.loop import control
        from djepa.control.planners import Planner, PlannerConfig
        from djepa.control.results import Episodes
        from djepa.files import to_json, write_atomically
        from djepa.interop.record import write_decisions

        if self.json:
            claim_file(self.json, JSON_OF["control"])
        if self.decisions:
            claim_file(self.decisions, DECISIONS)
        run = self.execution
        others = [Episodes(path) for path in self.against]  # reports a wrong one before the work
        block = run.block or (4 if run.device == "cpu" else 64)
        config = EpisodeConfig(self.world, block=block, **vars(self.episodes))
        ahead = self.search.horizon or config.goal
        recorded = self.decisions is not None
        given = {**vars(self.search), "horizon": ahead, "record": recorded}
        search = PlannerConfig(self.planner, **given)
        planner = Planner(search, self.world, run.device)
        with progress("Closed loop", "episodes") as tick:
            found = Episodes(control(self.out, config, planner, run.start(), tick))
        if self.decisions:
            write_decisions(self.decisions, found.decisions(), {"episodes": found.hash})
        marks = sorted({min(config.goal, config.budget), config.budget})
        if self.json:
            write_atomically(self.json, to_json(found.summary(marks)).encode())
        self._say(found, others)
        return 0

    def _say(self, found: "Episodes", others: "list[Episodes]") -> None:
        from djepa.control.episodes import MODERATE, STRICT
        from djepa.evaluate.paired import with_ends

        c, of = found.config, found.summary()
        kind = "the frozen ones" if found.frozen else "not a frozen list"
        console.print(f"{len(found)} episodes, {kind} (SHA-256 {found.list_hash[:12]})")
        for rule in (MODERATE, STRICT):
            one = of[rule]
            low, high = one["pc_success_ci95"]
            median = one["median_steps_to_success"]
            after = f", median {median:.0f} controls" if median is not None else ""
            console.print(
                f"{rule} (cost < {one['cost_below']:.2g}): {one['n_success']} solved, "
                f"{one['pc_success']:.1f} % ({low:.1f}-{high:.1f}){after}; "
                f"random controls {100 * one['random_success_rate']:.1f} %"
            )
        for other in others:
            for rule in (MODERATE, STRICT):
                p = found.against(other, rule)
                gain = with_ends(p.difference, *p.difference_interval, " points")
                console.print(
                    f"{rule}, against {other.folder.path}: {gain}, {p.gains} gained, "
                    f"{p.losses} lost, p = {p.p:.2g}"
                )
        counts = ", ".join(f"{name} {n:.0f}" for name, n in of["evaluations"].items()) or "none"
        console.print(f"model evaluations an episode, mean: {counts}; budget {c.budget} controls")
        console.print(f"episodes: {self.out} (SHA-256 {found.hash[:12]})")
