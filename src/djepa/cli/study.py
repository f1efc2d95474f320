"""`djepa study`: a whole experiment in one folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from tyro.conf import Positional, arg

from djepa.cli.console import console


@dataclass(frozen=True)
class RunStudy:
    """Collect, predict, fit, decide, audit and report. Run again to resume."""

    study: Annotated[str, Positional, arg(metavar="STUDY")] = "pusht"
    """Which: pusht."""
    preset: str = "quick"
    """quick (minutes), paper (the published population sizes) or large (narrow intervals)."""
    out: Path = Path("runs/pusht")
    """Folder of the study."""
    pools: tuple[str, ...] = ("reference", "decoy", "planner")
    """Kinds of candidate pools."""
    device: str = "cpu"
    """Where geometries run and alignments are fitted: cpu or cuda."""
    seed: int = 0
    """Seed of the populations."""
    engine: str = "local"
    """local (processes on this machine) or ray."""
    workers: int = 0
    """Processes; 0 takes every core."""
    until: str = ""
    """Name of the last stage to run; all without it."""

    interrupted: ClassVar[str] = ": what was finished is on disk; the same command goes on"

    def run(self) -> int:
        """Run the stages that are missing."""
        from importlib.util import find_spec

        from djepa.errors import MissingExtraError, unknown_name
        from djepa.rollout.engine import get_engine
        from djepa.studies.pages import verdict
        from djepa.studies.pusht import new_study
        from djepa.studies.stages import run_stages
        from djepa.studies.write import Results

        if self.study != "pusht":
            raise unknown_name("study", self.study, ["pusht"])
        if not self.until and find_spec("matplotlib") is None:  # said before the work, not after
            raise MissingExtraError("The figures of a study", "report")
        engine = get_engine(self.engine, self.workers, None)
        study = new_study(self.out, self.preset, engine, self.device, self.seed, self.pools)
        run_stages([*study.stages(), *study.writing()], console.print, self.until)
        if not self.until:
            for line in verdict(Results(self.out)):
                console.print(line.replace("**", ""))
            console.print(f"open {self.out / 'report.html'}")
        return 0
