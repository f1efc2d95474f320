"""`djepa fit`: learn from outcomes how the candidates of one decision relate."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from djepa.cli.console import Tick, console, progress
from djepa.cli.workers import HERE, Workers

if TYPE_CHECKING:
    from djepa.align.fit import AlignConfig, Alignment
    from djepa.align.methods import Population
    from djepa.bank.read import Bank


@dataclass(frozen=True)
class FitAlignment:
    """Learn from the outcomes of one bank which candidate to choose, judge it on another, and write
    the alignment.
    """

    bank: Annotated[Path, Positional, arg(metavar="BANK")]
    """Bank of the fitting starts, with predictions of the geometries."""
    calibration: Path
    """Bank of the calibration starts; it must not share one with the fitting bank."""
    out: Path = Path("runs/alignment")
    """Folder for the alignment; with several presets a folder of such folders."""
    preset: tuple[str, ...] = ("best",)
    """One or more of {presets}. Several are fitted at the same time."""
    guarantee: Path | None = None
    """Bank of further starts on which --harm is certified; not those of the calibration."""
    harm: float = 0.02
    """With --guarantee: share of starts that the gate may turn from success into failure, at most,
    with 95 % confidence; without a threshold that can be certified it never opens."""
    updates: int = 0
    """Updates of the operator; 0 takes the preset's."""
    seed: int = 3072
    """Seed of the operator and of its batches."""
    execution: Workers = HERE

    def run(self) -> int:
        """Fit, calibrate, save, say what was found."""
        from djepa.align.methods import fit_each
        from djepa.bank.read import Bank
        from djepa.evidence.evidence import disjoint

        missing = self._missing()
        if not missing:
            return 0
        banks = Bank(self.bank), Bank(self.calibration)
        fit, calibration = (_population(bank, list(missing.values())) for bank in banks)
        disjoint(fitting=fit.evidence, calibration=calibration.evidence)  # before the long part
        for name, config in missing.items():
            updates = f"{config.updates} updates"
            console.print(f"{name}: fitting on {len(fit.evidence)} starts, {updates} ...")
        found = fit_each(missing.items(), fit, calibration, self.execution.start())
        total = sum(config.updates for config in missing.values())
        with progress("Fitting", "updates") as tick, counting(tick, total):
            for name, alignment in found:
                self._save(name, alignment, banks)
        return 0

    def _missing(self) -> "dict[str, AlignConfig]":
        """Presets to fit, by name. A single one that is already fitted is refused, and so is a
        folder with foreign files.
        """
        from djepa.align.presets import get_preset
        from djepa.align.store import ALIGNMENT
        from djepa.artefacts.write import Writer
        from djepa.errors import DjepaError

        found = {}
        for name in dict.fromkeys(self.preset):
            config = replace(get_preset(name), seed=self.seed)
            done = (self._folder(name) / "manifest.json").exists()
            if done and len(self.preset) == 1:
                raise DjepaError(f"{self.out} holds a finished alignment. Choose another --out.")
            if done:
                console.print(f"{self._folder(name)} is there already")
            else:
                Writer(self._folder(name), ALIGNMENT).claim()
                found[name] = replace(config, updates=self.updates) if self.updates else config
        return found

    def _folder(self, name: str) -> Path:
        return self.out if len(self.preset) == 1 else self.out / name

    def _save(self, name: str, alignment: "Alignment", banks: "tuple[Bank, Bank]") -> None:
        """Certify if requested, write, and print the results."""
        from djepa.align.store import save_alignment
        from djepa.bank.read import Bank
        from djepa.evidence.fusion import Fusion

        hashes, config = {"fitting": banks[0].hash, "calibration": banks[1].hash}, alignment.config
        if self.guarantee:
            certified = Bank(self.guarantee)
            hashes["guarantee"] = certified.hash
            starts = _population(certified, [config])
            console.print(f"{alignment.guarantee(starts.evidence, starts.outcomes, self.harm)}")
        save_alignment(alignment, self._folder(name), {"preset": name, "banks": hashes})
        report, gate = alignment.report, alignment.gate
        assert report is not None
        assert gate is not None
        fusion = report.fusion
        inputs = config.base if isinstance(fusion, Fusion) else fusion.inputs
        mix = ", ".join(f"{w:g} {n}" for w, n in zip(fusion.weights, inputs, strict=True))
        left_out = f"{report.skipped} with outcomes of one class were left out"
        console.print(f"fitted on {report.starts} starts; {left_out}")
        console.print(f"base score: {mix}; gate opens above {gate.threshold:.4g}")
        console.print(f"{self._folder(name)}")


@contextmanager
def counting(tick: Tick, total: int) -> Iterator[None]:
    """Report the updates of this process; those of workers are not counted."""
    from torch.optim import AdamW
    from torch.optim.optimizer import register_optimizer_step_post_hook

    done = 0

    def count(optimiser: object, *given: object) -> None:
        nonlocal done
        if isinstance(optimiser, AdamW):  # the mixture has another optimiser
            done += 1
            tick(min(done, total), total)

    hook = register_optimizer_step_post_hook(count)
    try:
        yield
    finally:
        hook.remove()


def _population(bank: "Bank", configs: "list[AlignConfig]") -> "Population":
    """Outcomes of a bank, and the evidence that any of these configurations reads."""
    from djepa.align.methods import Population
    from djepa.align.outcomes import Outcomes
    from djepa.evidence.evidence import Evidence

    names, latents = (
        tuple(dict.fromkeys(name for config in configs for name in getattr(config, what)))
        for what in ("geometries", "latents")
    )
    return Population(Evidence.from_bank(bank, names, latents), Outcomes.from_bank(bank))
