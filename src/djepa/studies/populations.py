"""The populations of a push study: collected, predicted, loaded.

Legend: N starts, K candidates.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from djepa.align.dynamics import fine_tune, realised
from djepa.align.methods import PLASTIC, TUNED, Population
from djepa.align.outcomes import Outcomes
from djepa.align.plastic import Patch, apply_patch, load_patch, save_patch
from djepa.align.plastic_fit import Checkpoint, Encoded, PlasticConfig, fit_patch
from djepa.align.presets import FOUR, PAIR
from djepa.bank.collect import collect
from djepa.bank.read import Bank
from djepa.bank.schema import sha256
from djepa.evidence.evidence import Evidence
from djepa.models.lewm import LeWM
from djepa.models.predictions import predict_bank
from djepa.models.weights import load_geometry, weights_hash
from djepa.rollout.engine import Engine
from djepa.rollout.execute import CollectConfig

PROFILES = {"reference": "reference-control", "decoy": "decoy", "planner": "planner"}
RATES = (2e-6, 2e-5)  # of both kinds of patches; the first is published
ADAPTED = {PLASTIC: "plasticity", TUNED: "fine-tuned"}
Say = Callable[[str], None]


@dataclass(frozen=True)
class Place:
    """Where things of one study are made."""

    out: Path
    engine: Engine
    device: str = "cpu"
    seed: int = 0

    def bank(self, pools: str, population: str) -> Path:
        """Folder of a bank."""
        return self.out / "banks" / pools / population

    def fits(self, pools: str) -> Path:
        """Folder of what was fitted on these pools."""
        return self.out / "fits" / pools


def gather(place: Place, pools: str, population: str, starts: int) -> Bank:
    """Draw, propose, execute: a bank of so many starts of a split of its own."""
    from djepa.models.planner_pool import CEMProposer

    searched = pools == "planner"
    proposer = CEMProposer("tdjepa", device=place.device) if searched else None
    config = CollectConfig(
        profile=PROFILES[pools],
        split=f"pusht-{population}",
        starts=starts,
        seed=place.seed,
        block=16 if place.device == "cpu" else 64,  # a block is a batch, too
    )
    return collect(place.bank(pools, population), config, place.engine, proposer)


def foresee(place: Place, bank: Bank, names: Sequence[str] = FOUR) -> None:
    """Evidence of shipped geometries, beside the bank."""
    for name in names:
        model = load_geometry(name, place.device)
        predict_bank(bank, model, weights_hash(name), place.device)


def foresee_adapted(place: Place, bank: Bank, pools: str) -> None:
    """Evidence of TD-JEPA with the end of its predictor replaced, where patches are."""
    for name, label in ADAPTED.items():
        folder = place.fits(pools) / label
        if (folder / "manifest.json").exists():
            model = apply_patch(_predictor(place), load_patch(folder))
            model.name = name
            mark = sha256((folder / "manifest.json").read_bytes())
            predict_bank(bank, model, mark, place.device)


def fit_adapted(place: Place, pools: str, bank: Bank, sizes: tuple[int, int], say: Say) -> None:
    """Patches of TD-JEPA from the first starts of a bank: by decisions, and by dynamics alone."""
    model = _predictor(place)
    first = list(range(sizes[0]))
    then = list(range(sizes[0], sum(sizes)))
    parts = [Encoded.from_bank(model, bank, rows, place.device) for rows in (first, then)]
    outcomes = Outcomes.from_bank(bank)

    def report(checkpoint: Checkpoint) -> None:
        if checkpoint.update % 200 == 0:
            say(f"  {checkpoint}")

    def keep(label: str, make: Callable[[], Patch]) -> None:
        if not (place.fits(pools) / label / "manifest.json").exists():
            save_patch(make(), place.fits(pools) / label)

    def by_decisions() -> Patch:
        given = [outcomes.rows(torch.tensor(rows)).to(place.device) for rows in (first, then)]
        config = PlasticConfig(rates=RATES)
        return fit_patch(model, (parts[0], given[0]), (parts[1], given[1]), config, report=report)

    def by_dynamics() -> Patch:
        aims = [realised(model, bank, rows, place.device) for rows in (first, then)]
        config = PlasticConfig(rates=RATES)
        return fine_tune(model, (parts[0], aims[0]), (parts[1], aims[1]), config, report)

    keep("plasticity", by_decisions)
    keep("fine-tuned", by_dynamics)


def load(place: Place, bank: Bank, starts: int | None = None) -> Population:
    """Evidence of every geometry that was predicted, and outcomes; of the first so many starts."""
    extra = [name for name in ADAPTED if (bank.path / "evidence" / name / "manifest.json").exists()]
    dense = (*PAIR, *(name for name in extra if name == PLASTIC))
    evidence = Evidence.from_bank(bank, (*FOUR, *extra), dense)
    whole = Population(evidence, Outcomes.from_bank(bank))
    return (whole if starts is None else whole.rows(torch.arange(starts))).to(place.device)


def _predictor(place: Place) -> LeWM:
    model = load_geometry("tdjepa", place.device)
    assert isinstance(model, LeWM)
    return model
