"""`djepa fit`: learn from outcomes how the candidates of one decision relate."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from djepa.cli.console import console


@dataclass(frozen=True)
class FitAlignment:
    """Fit on one bank, choose checkpoint and gate on another, write the alignment."""

    bank: Annotated[Path, Positional, arg(metavar="BANK")]
    """Bank of the fitting starts, with predictions of the geometries."""
    calibration: Path
    """Bank of the calibration starts; it must not share one with the fitting bank."""
    out: Path = Path("runs/alignment")
    """Folder for the alignment."""
    preset: str = "best"
    """best (log costs of four geometries), published (LeWM, TD-JEPA), four (on JEPA-WM's rank),
    four-fused, log, logs, pointwise, ranks, lewm or tdjepa."""
    guarantee: Path | None = None
    """Bank of further starts on which --harm is certified; not those of the calibration."""
    harm: float = 0.02
    """With --guarantee: share of starts that the gate may turn from success into failure, at most,
    with 95 % confidence; without a threshold that can be certified it never opens."""
    updates: int = 0
    """Updates of the operator; 0 takes the preset's."""
    seed: int = 3072
    """Seed of the operator and of its batches."""

    def run(self) -> int:
        """Fit, calibrate, save, say what was found."""
        from dataclasses import replace

        from djepa.align.fit import Alignment
        from djepa.align.outcomes import Outcomes
        from djepa.align.presets import get_preset
        from djepa.align.store import save_alignment
        from djepa.bank.read import Bank
        from djepa.errors import DjepaError
        from djepa.evidence.evidence import Evidence, disjoint
        from djepa.evidence.fusion import Fusion

        if (self.out / "manifest.json").exists():
            raise DjepaError(f"{self.out} holds a finished alignment. Choose another --out.")
        config = replace(get_preset(self.preset), seed=self.seed)
        if self.updates:
            config = replace(config, updates=self.updates)
        banks = Bank(self.bank), Bank(self.calibration)
        fit, calibration = (
            Evidence.from_bank(bank, config.geometries, config.latents) for bank in banks
        )
        disjoint(fitting=fit, calibration=calibration)  # before the long part
        outcomes = [Outcomes.from_bank(bank) for bank in banks]
        console.print(f"fitting on {len(fit)} starts, {config.updates} updates ...")
        alignment = Alignment(config).fit(fit, outcomes[0]).calibrate(calibration, outcomes[1])
        hashes = {"fitting": banks[0].hash, "calibration": banks[1].hash}
        if self.guarantee:
            certified = Bank(self.guarantee)
            hashes["guarantee"] = certified.hash
            starts = Evidence.from_bank(certified, config.geometries, config.latents)
            console.print(
                f"{alignment.guarantee(starts, Outcomes.from_bank(certified), self.harm)}"
            )
        save_alignment(alignment, self.out, {"preset": self.preset, "banks": hashes})
        report, gate = alignment.report, alignment.gate
        assert report is not None
        assert gate is not None
        fusion = report.fusion
        inputs = config.base if isinstance(fusion, Fusion) else fusion.inputs
        mix = ", ".join(f"{w:g} {n}" for w, n in zip(fusion.weights, inputs, strict=True))
        console.print(f"{report.starts} starts taught, {report.skipped} of one class did not")
        console.print(f"base score: {mix}; gate opens above {gate.threshold:.4g}")
        console.print(f"{self.out}")
        return 0
