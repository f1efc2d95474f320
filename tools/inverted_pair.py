"""The inverted pair of the PushT study, from its audit starts alone.

    python -m tools.inverted_pair runs/inverted-pair \\
        --json docs/results/inverted-pair.json --figure docs/pictures/inverted-pair.png

Made is the bank that `djepa study pusht` audits: no method is fitted, calibrated or counted on its
starts. A stopped run continues.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import tyro
from tyro.conf import Positional, arg

from djepa.artefacts.claim import claim_file, named
from djepa.audit.gap import distance_gap
from djepa.bank.collect import collect
from djepa.bank.read import Bank
from djepa.errors import DjepaError, check_name
from djepa.files import to_json, write_atomically
from djepa.models.predictions import predict_bank, read_predictions
from djepa.models.weights import load_geometry, weights_hash
from djepa.rollout.engine import get_engine
from djepa.rollout.execute import CollectConfig
from djepa.studies.design import Case, Place
from djepa.studies.measures.inverted import draw_pair, recorded_pair
from djepa.studies.pusht import AUDITED, PUBLISHED, PUSHT


@dataclass(frozen=True)
class InvertedPair:
    """Collect and predict the audit starts, store the first pair that is ordered wrongly."""

    bank: Annotated[Path, Positional, arg(metavar="BANK")]
    """Folder of the bank; an unfinished one is continued."""
    json: Path = Path("runs/inverted-pair.json")
    """File of the pair."""
    figure: Path = Path("runs/inverted-pair.png")
    """Its film strips: .png, .svg, or .csv (extra `report`)."""
    geometry: str = "lewm"
    """The geometry that predicts, a shipped one by name."""
    pools: str = PUBLISHED
    """Kind of pools: published or reference."""
    preset: str = "paper"
    """Preset of the study whose audit starts these are."""
    seed: int = 0
    """Seed of the study."""
    workers: int = 0
    """Processes; 0 takes every core. It changes no byte."""

    def run(self) -> dict[str, Any]:
        """Make what is missing, write both files and return what the first one holds."""
        claim_file(self.json, named("geometry", "pair"))
        check_name("suffix of a figure", self.figure.suffix, (".png", ".svg", ".csv"))
        bank = self._predicted()
        found, frames = recorded_pair(bank, self.geometry)
        if not found:
            raise DjepaError(
                f"On none of {len(bank)} audit starts does {self.geometry} prefer a failure. "
                "Give another --seed, --preset or --geometry."
            )
        cost = read_predictions(bank, self.geometry).cost
        wrong = distance_gap(np.sqrt(np.maximum(cost, 0)), bank.outcomes.success).positive
        about: dict[str, Any] = {"pools": self.pools, "preset": self.preset, "seed": self.seed}
        about |= {"split": bank.config.split, "bank": bank.hash}
        about |= {"weights": weights_hash(self.geometry)}
        found = {**about, "prefer_failure": {"hits": wrong.hits, "of": wrong.of}, **found}
        with TemporaryDirectory() as folder:
            drawn = draw_pair(Path(folder) / "pair", found, frames)
            own = next(file for file in drawn if file.suffix == self.figure.suffix)
            self.figure.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.figure, own.read_bytes())
        write_atomically(self.json, to_json(found).encode())
        return found

    def case(self) -> Case:
        """The audit case of the study."""
        check_name("kind of pools", self.pools, AUDITED)
        check_name("preset", self.preset, PUSHT.sizes)
        place = Place(self.bank, get_engine("local", self.workers), seed=self.seed)
        cases = PUSHT.cases("audit", PUSHT.sizes[self.preset], place)
        return next(case for case in cases if case.name == self.pools)

    def _predicted(self) -> Bank:
        """The bank of the case, with predictions of the geometry."""
        case, engine = self.case(), get_engine("local", self.workers)
        assert isinstance(case.bank, CollectConfig)
        bank = collect(self.bank, case.bank, engine, case.proposer and case.proposer("cpu"))
        predict_bank(bank, load_geometry(self.geometry), weights_hash(self.geometry), engine=engine)
        return bank


def main() -> None:
    """Run and print."""
    pair = tyro.cli(InvertedPair)
    try:
        found = pair.run()
    except DjepaError as error:
        sys.exit(f"error: {error}")
    print(f"start {found['start']}: {found['pair']}\n{pair.json} and {pair.figure}")


if __name__ == "__main__":
    main()
