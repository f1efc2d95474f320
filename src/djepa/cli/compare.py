"""`djepa compare`: every method on the same starts, paired."""

from dataclasses import dataclass
from pathlib import Path

from djepa.cli.console import console


@dataclass(frozen=True)
class Compare:
    """Fit on one bank, calibrate on a second, compare all methods on a third; none share starts."""

    fit: Path
    """Bank of the fitting starts, with predictions of all four geometries."""
    calibration: Path
    """Bank of the calibration starts, likewise."""
    test: Path
    """Bank on which the methods are compared, likewise; its outcomes are only counted."""
    against: str = "fusion, four"
    """Method that the differences are to."""
    out: Path = Path("runs/compare")
    """Folder for what is fitted; what is there already is not fitted again."""
    json: Path | None = None
    """Also write successes start by start."""

    def run(self) -> int:
        """Fit everything, print one table."""
        from djepa.align.methods import Population
        from djepa.align.outcomes import Outcomes
        from djepa.align.presets import FOUR, PAIR
        from djepa.align.suite import fit_suite
        from djepa.bank.read import Bank
        from djepa.errors import check_name
        from djepa.evaluate.compare import compare_markdown, compare_rows
        from djepa.evidence.evidence import Evidence, disjoint
        from djepa.files import to_json, write_atomically

        def load(path: Path) -> Population:
            bank = Bank(path)
            return Population(Evidence.from_bank(bank, FOUR, PAIR), Outcomes.from_bank(bank))

        fit, calibration, test = load(self.fit), load(self.calibration), load(self.test)
        disjoint(fit=fit.evidence, calibration=calibration.evidence, test=test.evidence)
        card = {"fit": Bank(self.fit).hash, "calibration": Bank(self.calibration).hash}
        suite = fit_suite(
            self.out, fit, calibration, card, lambda line: console.print(f"fitting {line} ...")
        )
        found = suite.choosers(test.evidence.names)
        check_name("method", self.against, found)
        picks = {name: choose(test.evidence).position for name, choose in found.items()}
        rows = compare_rows(picks, test.outcomes.success, self.against)
        console.print(compare_markdown(rows, self.against))
        if self.json:
            write_atomically(self.json, to_json(rows).encode())
        return 0
