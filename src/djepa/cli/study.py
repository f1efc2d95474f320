"""`djepa study`: a whole experiment in one folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from djepa.cli.console import console
from djepa.cli.workers import HERE, Workers


@dataclass(frozen=True)
class RunStudy:
    """Collect, predict, fit, decide, measure and report. Run again to resume."""

    study: Annotated[str, Positional, arg(metavar="STUDY")] = "pusht"
    """One of {studies}, or all of these. Apart from them: {apart}; {main} have every method of the
    paper's main table on one task, and table makes it of stored rows."""
    preset: str = "quick"
    """quick (minutes), paper (the published population sizes) or large (narrow intervals); of
    pusht also frozen (paper without plasticity and fine-tuning, which need a GPU), of control also
    medium (512 episodes of three planners, for a CPU), of main-pusht, main-reacher, main-granular
    and main-fine also cpu: the starts of paper, but plasticity, fine-tuning and PEGrad with one
    learning rate, one cap and a quarter of the updates for calibration starts to choose among."""
    out: Path | None = None
    """Folder of the study: runs/STUDY unless given; of all of them: runs/all."""
    pools: tuple[str, ...] = ()
    """Only these kinds of candidate pools, such as reference or decoy; all of them without it."""
    device: str = "cpu"
    """Where geometries run and alignments are fitted: cpu or cuda."""
    seed: int = 0
    """Seed of the populations."""
    execution: Workers = HERE
    recorded: Path | None = None
    """Of driving: a folder of recorded traffic (npz, CommonRoad xml, ScenarioNet pkl), on which
    methods are compared beside generated traffic; nothing is fitted on it."""
    geometry: str = ""
    """Of arm: the model that searches, instead of the shipped one: a folder that
    `python -m djepa.models.ac_train` wrote, or V-JEPA 2-AC's file in a clone of its repository."""
    until: str = ""
    """Name of the last stage to run; all without it."""
    rows: tuple[Path, ...] = ()
    """table: folders that hold finished studies; runs and, in a checkout, docs/results without
    it."""

    def run(self) -> int:
        """Run the stages that are missing."""
        from importlib.util import find_spec

        from djepa.errors import DjepaError, MissingExtraError, check_name
        from djepa.studies.index import write_index
        from djepa.studies.names import APART, MAIN, STUDIES

        check_name("study", self.study, (*STUDIES, *APART, *MAIN, "all", "table"))
        if self.geometry and self.study != "arm":
            raise DjepaError("--geometry names the model of the study 'arm', and of no other.")
        if self.study == "table":
            return self._table()
        if not self.until and find_spec("matplotlib") is None:  # before the work, not after
            raise MissingExtraError("The figures of a study", "report")
        missing = [name for name in ("mujoco", "dm_control") if find_spec(name) is None]
        if self.study in ("reacher", "main-reacher", "all") and missing:
            raise MissingExtraError("The reacher study", "mujoco")
        if self.study == "cube" and (missing or find_spec("ogbench") is None):
            raise MissingExtraError("The cube study", "cube")
        if self.study == "aloha" and (missing or find_spec("gym_aloha") is None):
            raise MissingExtraError("The aloha study", "aloha")
        if self.study in ("arm", "bimanual", "all") and "mujoco" in missing:
            raise MissingExtraError(f"The {self.study} study", "arms")
        out = self.out or Path("runs") / self.study
        if self.study != "all":
            self._one(self.study, out)
            return 0
        for name in STUDIES:
            console.print(f"== {name}")
            self._one(name, out / name)
        console.print(f"open {write_index(out)}")
        return 0

    def _table(self) -> int:
        """Write the main table from stored rows."""
        from djepa.models.weights import CHECKOUT
        from djepa.report.tables import to_markdown
        from djepa.studies.table import write_main

        stored = (Path("runs"), CHECKOUT / "docs" / "results")
        places = self.rows or tuple(place for place in stored if place.is_dir())
        out = self.out or Path("runs/table")
        found = write_main(out, places)
        console.print(to_markdown(found.main()))
        console.print(f"open {out / 'report.html'}")
        return 0

    def _one(self, name: str, out: Path) -> None:
        from djepa.studies.design import Place
        from djepa.studies.findings import findings
        from djepa.studies.names import get_design
        from djepa.studies.results import Results
        from djepa.studies.stages import run_stages
        from djepa.studies.study import new_study

        place = Place(out, self.execution.start(), self.device, self.seed, self.recorded)
        design = get_design(name)
        if self.geometry:
            from djepa.studies.arm import arm_with

            design = arm_with(self.geometry)
        study = new_study(design, place, self.preset, self.pools)
        run_stages(study.stages(), console.print, self.until)
        if not self.until:
            for line in findings(Results(out, study.design)):
                console.print(line.replace("**", ""))
            console.print(f"open {out / 'report.html'}")
