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
    """Which: pusht, reacher, granular, shapes, appearance, or all of them."""
    preset: str = "quick"
    """quick (minutes), paper (the published population sizes) or large (narrow intervals)."""
    out: Path | None = None
    """Folder of the study: runs/STUDY unless said; of all of them: runs/all."""
    pools: tuple[str, ...] = ("reference", "decoy", "planner")
    """Kinds of candidate pools, of pusht."""
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
        from djepa.studies.index import DESIGNS, write_index

        names = ("pusht", *DESIGNS)
        if self.study not in (*names, "all"):
            raise unknown_name("study", self.study, (*names, "all"))
        if not self.until and find_spec("matplotlib") is None:  # said before the work, not after
            raise MissingExtraError("The figures of a study", "report")
        missing = [name for name in ("mujoco", "dm_control") if find_spec(name) is None]
        if self.study in ("reacher", "all") and missing:
            raise MissingExtraError("The reacher study", "mujoco")
        out = self.out or Path("runs") / self.study
        if self.study != "all":
            self._one(self.study, out)
            return 0
        for name in names:
            console.print(f"== {name}")
            self._one(name, out / name)
        console.print(f"open {write_index(out)}")
        return 0

    def _one(self, name: str, out: Path) -> None:
        from djepa.rollout.engine import get_engine
        from djepa.studies.index import DESIGNS
        from djepa.studies.stages import run_stages

        engine = get_engine(self.engine, self.workers, None)
        if name == "pusht":
            from djepa.studies.pages import verdict
            from djepa.studies.pusht import new_study
            from djepa.studies.write import Results

            pusht = new_study(out, self.preset, engine, self.device, self.seed, self.pools)
            run_stages([*pusht.stages(), *pusht.writing()], console.print, self.until)
            lines = [] if self.until else verdict(Results(out))
        else:
            from djepa.studies.case_pages import case_rows
            from djepa.studies.case_pages import verdict as judged
            from djepa.studies.cases import new_case_study
            from djepa.studies.populations import Place

            design = DESIGNS[name]()
            study = new_case_study(design, Place(out, engine, self.device, self.seed), self.preset)
            run_stages(study.stages(), console.print, self.until)
            lines = [] if self.until else judged(design, case_rows(study))
        for line in lines:
            console.print(line.replace("**", ""))
        if not self.until:
            console.print(f"open {out / 'report.html'}")
