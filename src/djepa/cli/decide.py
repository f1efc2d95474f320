"""`djepa decide` and `djepa export`: use a fitted alignment."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from djepa.cli.console import console


@dataclass(frozen=True)
class Decide:
    """Decide every start of a bank from its evidence; outcomes are not opened."""

    alignment: Annotated[Path, Positional, arg(metavar="ALIGNMENT")]
    """Folder that `djepa fit` or `djepa export` wrote."""
    bank: Annotated[Path, Positional, arg(metavar="BANK")]
    """Bank with predictions of the alignment's geometries."""
    out: Path | None = None
    """Write the decision record here as JSON: candidates, every score, choice, order, gate."""
    calibration: Path | None = None
    """Bank on which the gate was calibrated or certified: warn if this one's evidence differs."""

    def run(self) -> int:
        """Decide and say how often the gate opened."""
        from djepa.align.store import alignment_hash, load_alignment
        from djepa.artefacts.folder import Folder
        from djepa.bank.read import Bank
        from djepa.evidence.evidence import Evidence
        from djepa.interop.record import record, write_decisions
        from djepa.lift.planner import PLANNER

        inner = self.alignment / "alignment"
        folder = inner if inner.is_dir() else self.alignment
        if inner.is_dir():
            Folder(self.alignment, PLANNER).verify()  # its parts belong together
        alignment, bank = load_alignment(folder), Bank(self.bank)
        config = alignment.config
        evidence = Evidence.from_bank(bank, config.geometries, config.latents)
        decision = alignment.decide(evidence)
        if self.out:
            assert alignment.gate is not None  # or it could not decide
            made_from = {"bank": bank.hash, "alignment": alignment_hash(folder)}
            write_decisions(self.out, record(evidence, decision, alignment.gate), made_from)
        if self.calibration:
            from djepa.align.shift import compare_evidence

            known = Evidence.from_bank(Bank(self.calibration), config.geometries, config.latents)
            found = compare_evidence(alignment, known, evidence)
            console.print(f"{'warning: ' if found.noticed else ''}{found}")
        opened = int(decision.opened.sum())
        console.print(
            f"{len(evidence)} decisions; the gate let the aligned choice pass on {opened}"
        )
        return 0


@dataclass(frozen=True)
class Export:
    """Put an alignment and the geometries it reads into one folder that plans by itself.

    With --onnx, also or instead, into one graph that ONNX Runtime runs without torch.
    """

    alignment: Annotated[Path, Positional, arg(metavar="ALIGNMENT|PLANNER")]
    """Folder that `djepa fit` wrote; with --onnx also one that `djepa export` wrote."""
    out: Path = Path("runs/planner")
    """Folder of the planner."""
    geometry: tuple[str, ...] = ()
    """Shipped names or folders of weights; without it the shipped ones that are needed."""
    lifted: str = "tdjepa"
    """The geometry whose futures carry the decision."""
    onnx: Path | None = None
    """Write the graph here (extra `onnx`); it takes any number of starts and of candidates."""
    horizon: int = 25
    """Controls of a candidate, for the graph."""

    def run(self) -> int:
        """Write the folder and load it once."""
        from djepa.align.store import load_alignment, read_alignment_card
        from djepa.errors import DjepaError
        from djepa.lift.planner import export_planner, load_planner

        if self.onnx and (self.alignment / "alignment").is_dir():
            self._write_graph(self.alignment, self.onnx)
            return 0
        if (self.out / "manifest.json").exists():
            raise DjepaError(f"{self.out} holds a planner already. Choose another --out.")
        alignment = load_alignment(self.alignment)
        config = alignment.config
        needed = dict.fromkeys((*config.geometries, self.lifted))
        card = read_alignment_card(self.alignment)
        export_planner(alignment, self.geometry or tuple(needed), self.lifted, self.out, card)
        load_planner(self.out)
        console.print(f"{self.out}")
        if self.onnx:
            self._write_graph(self.out, self.onnx)
        return 0

    def _write_graph(self, planner: Path, path: Path) -> None:
        from djepa.artefacts.records import folder_hash
        from djepa.interop.onnx import export_onnx
        from djepa.lift.planner import load_planner

        console.print("exporting the graph, which takes a minute ...")
        export_onnx(load_planner(planner), path, self.horizon, folder_hash(planner))
        console.print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
