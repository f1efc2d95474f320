"""`djepa decide` and `djepa export`: use a fitted alignment."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from djepa.cli.console import console
from djepa.cli.workers import HERE, Workers


@dataclass(frozen=True)
class Decide:
    """Choose a candidate of every start of a bank by an alignment; outcomes are not opened."""

    alignment: Annotated[Path, Positional, arg(metavar="ALIGNMENT")]
    """Folder that `djepa fit` wrote, or file that `djepa export` wrote: that one also composes."""
    bank: Annotated[Path, Positional, arg(metavar="BANK")]
    """Bank with predictions of the alignment's geometries."""
    out: Path | None = None
    """Write the decision record here as JSON: candidates, every score, choice, order, gate."""
    calibration: Path | None = None
    """Bank on which the gate was calibrated or certified: warn if this one's evidence differs."""
    admit: bool = False
    """With --calibration: if the evidence differs, keep the gate shut, so that every start has the
    base choice."""
    execution: Workers = HERE

    def run(self) -> int:
        """Decide, some starts after the other, and say how often the gate opened."""
        from djepa.artefacts.claim import DECISIONS, claim_file
        from djepa.bank.read import Bank
        from djepa.errors import DjepaError
        from djepa.interop.decide import admitted, compared, decide_with, load_decider
        from djepa.interop.record import write_decisions

        if self.admit and not self.calibration:
            raise DjepaError(
                "--admit compares with the calibration: give its bank as --calibration."
            )
        if self.out:
            claim_file(self.out, DECISIONS)
        bank, decider, counts = Bank(self.bank), load_decider(self.alignment), [0, 0]
        known = Bank(self.calibration) if self.calibration else None  # fails before the work
        found = None
        if known and self.admit:
            decider, found = admitted(decider, known, bank)

        def records() -> Iterator[str]:
            engine = self.execution.start()
            for part in decide_with(engine, bank, decider, recorded=bool(self.out)):
                counts[0] += part.starts
                counts[1] += part.opened
                yield from part.records

        if self.out:
            write_decisions(self.out, records(), {"bank": bank.hash, **decider.hashes})
        else:
            deque(records(), maxlen=0)
        if known and not self.admit:
            found = compared(decider, known, bank)
        if found:
            console.print(f"{'warning: ' if found.noticed else ''}{found}")
        if found and found.noticed and self.admit:
            console.print("The gate stayed shut: every start has the base choice.")
        composed = "composition" in decider.hashes
        passed = (
            "the adapted predictor decided" if composed else "the gate let the aligned choice pass"
        )
        console.print(f"{counts[0]} decisions; {passed} on {counts[1]}")
        return 0


@dataclass(frozen=True)
class Export:
    """Put an alignment and the geometries it reads into one file that plans by itself.

    With --onnx, also or instead, into one graph that ONNX Runtime runs without torch.
    """

    alignment: Annotated[Path, Positional, arg(metavar="ALIGNMENT|PLANNER")]
    """Folder that `djepa fit` wrote; with --onnx also a file that `djepa export` wrote."""
    out: Path = Path("runs/planner.safetensors")
    """File of the planner."""
    geometry: tuple[str, ...] = ()
    """Shipped names or folders of weights; without it the shipped ones that are needed."""
    lifted: str = "tdjepa"
    """The geometry whose futures carry the decision."""
    patch: Path | None = None
    """Compose with the adapted TD-JEPA of this patch, as a study or `djepa convert` wrote it."""
    threshold: float | None = None
    """Margin over which the adapted predictor's proposal is taken; a study has it in
    fits/POOLS/composition.json."""
    onnx: Path | None = None
    """Write the graph here (extra `onnx`); it takes any number of starts and of candidates."""
    horizon: int = 25
    """Controls of a candidate, for the graph."""

    def run(self) -> int:
        """Write the file and load it once."""
        from djepa.align.methods import Composition
        from djepa.align.plastic import load_patch
        from djepa.align.store import load_alignment, read_alignment_card
        from djepa.artefacts.claim import GRAPH, claim_file
        from djepa.artefacts.records import folder_hash
        from djepa.errors import DjepaError
        from djepa.lift.file import write_planner
        from djepa.lift.planner import load_planner

        if self.onnx:
            claim_file(self.onnx, GRAPH)
        if self.onnx and self.alignment.is_file():
            self._write_graph(self.alignment, self.onnx)
            return 0
        if (self.patch is None) != (self.threshold is None):
            raise DjepaError("A composition needs both --patch and --threshold.")
        alignment, composition = load_alignment(self.alignment), None
        if self.patch is not None and self.threshold is not None:
            patch, of = load_patch(self.patch), folder_hash(self.patch)
            composition = Composition(patch, self.threshold, of)
        needed = dict.fromkeys((*alignment.config.geometries, self.lifted))
        card = read_alignment_card(self.alignment)
        weights = self.geometry or tuple(needed)
        write_planner(self.out, alignment, weights, self.lifted, card, composition)
        load_planner(self.out)
        console.print(f"{self.out}: {self.out.stat().st_size / 1e6:.1f} MB")
        if self.onnx:
            self._write_graph(self.out, self.onnx)
        return 0

    def _write_graph(self, planner: Path, path: Path) -> None:
        from djepa.artefacts.records import read_bytes, sha256
        from djepa.interop.onnx import export_onnx
        from djepa.lift.planner import load_planner

        loaded, of = load_planner(planner), sha256(read_bytes(planner))
        console.print("exporting the graph, which takes a minute ...")
        export_onnx(loaded, path, self.horizon, of)
        console.print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
