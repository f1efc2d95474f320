"""All methods of a study, fitted on one population, on disk as they are finished.

FOLDER/
  suite.json      what it was fitted on, the fitting and calibration starts by name
  mixtures.json   fusions: names, weights, consensus or not
  NAME/           one folder per alignment, see align/store.py
  composition.json  τ_P, where there is an adapted predictor

Legend: N starts, K candidates.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from djepa.align.fit import AlignConfig, Alignment
from djepa.align.methods import (
    PLASTIC,
    TUNED,
    Chooser,
    Mixture,
    Population,
    aligned,
    composed,
    densest,
    fit_aligned,
    fit_composed,
    native,
)
from djepa.align.presets import FOUR, PAIR, SUITE
from djepa.align.store import alignment_hash, load_alignment, save_alignment
from djepa.bank.schema import sha256
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence
from djepa.files import to_json, write_atomically

MIXTURES = {
    "fusion, two": (PAIR, None),
    "fusion, four": (FOUR, None),
    "consensus + fusion, two": (PAIR, "tdjepa"),
    "consensus + fusion, four": (FOUR, "tdjepa"),
}
Say = Callable[[str], None]


@dataclass(frozen=True)
class Recipe:
    """What a study fits, by the names of its tables."""

    mixtures: Mapping[str, tuple[tuple[str, ...], str | None]]  # geometries, whose consensus
    alignments: Mapping[str, AlignConfig]


@dataclass(frozen=True, eq=False)
class Suite:
    """Fitted methods, and the hash of what each was fitted into."""

    mixtures: dict[str, Mixture]
    alignments: dict[str, Alignment]
    threshold: float | None  # τ_P of the composition
    hashes: dict[str, str]

    def choosers(self, names: Sequence[str]) -> dict[str, Chooser]:
        """Every method that evidence of these geometries allows, by the names of the tables."""
        found: dict[str, Chooser] = {f"native {name}": native(name) for name in FOUR}
        found |= {f"consensus {name}": densest(name) for name in PAIR}
        found |= self.mixtures
        adapted = {"fine-tuned": TUNED, "plasticity": PLASTIC}
        found |= {label: native(name) for label, name in adapted.items() if name in names}
        for name, alignment in self.alignments.items():
            found[name] = aligned(alignment)
        if self.threshold is not None and PLASTIC in names:
            found["composition"] = composed(self.alignments["relational"], self.threshold)
        return found


def fit_suite(
    folder: Path,
    fit: Population,
    calibration: Population,
    card: dict[str, Any],
    say: Say = lambda line: None,
    only: Sequence[str] | None = None,
    recipe: Recipe | None = None,
) -> Suite:
    """Fit whatever is not in the folder yet. `only`: some of the alignments."""
    recipe = recipe or Recipe(MIXTURES, SUITE)
    folder.mkdir(parents=True, exist_ok=True)
    _claim(folder, card, fit, calibration)
    if not (folder / "mixtures.json").exists():
        say("fusions")
        found = {
            name: asdict(Mixture.fit(of, fit, by)) for name, (of, by) in recipe.mixtures.items()
        }
        write_atomically(folder / "mixtures.json", to_json(found).encode())
    for name in recipe.alignments if only is None else only:
        if not (folder / name / "manifest.json").exists():
            say(name)
            alignment = fit_aligned(recipe.alignments[name], fit, calibration)
            save_alignment(alignment, folder / name, {"method": name, **card})
    adapted = PLASTIC in calibration.evidence.names
    adapted = adapted and (folder / "relational" / "manifest.json").exists()
    if adapted and not (folder / "composition.json").exists():
        say("composition")
        threshold = fit_composed(load_alignment(folder / "relational"), calibration)
        write_atomically(
            folder / "composition.json", to_json({"threshold": threshold, **card}).encode()
        )
    return load_suite(folder, recipe)


def _claim(folder: Path, card: dict[str, Any], fit: Population, calibration: Population) -> None:
    """Refuse a folder that was fitted on other starts, or on other banks by the card."""
    names = [*fit.evidence.identities, *calibration.evidence.identities]
    text = to_json({"card": card, "starts": [name[:16] for name in names]})
    path = folder / "suite.json"
    if path.exists() and path.read_text() != text:
        raise DjepaError(f"{folder} was fitted on other starts or pools. Choose another folder.")
    write_atomically(path, text.encode())


def unseen(folder: Path, evidence: Evidence) -> None:
    """Refuse starts that a suite was fitted or calibrated on."""
    path = folder / "suite.json"
    if not path.exists():
        raise DjepaError(f"{folder} does not say on which starts it was fitted: no suite.json.")
    known = set(json.loads(path.read_text())["starts"])
    shared = [name for name in evidence.identities if name[:16] in known]
    if shared:
        raise DjepaError(
            f"Start {shared[0][:16]} and {len(shared) - 1} others were used to fit {folder}; "
            "confirmation starts must be new ones."
        )


def load_suite(folder: Path, recipe: Recipe | None = None) -> Suite:
    """What `fit_suite` left; alignments are checked against their hashes."""
    known = SUITE if recipe is None else recipe.alignments
    if not (folder / "mixtures.json").exists():
        raise DjepaError(f"{folder} holds no fitted methods: it has no mixtures.json.")
    held = json.loads((folder / "mixtures.json").read_text())
    mixtures = {
        name: Mixture(tuple(m["names"]), tuple(m["weights"]), m["dense"])
        for name, m in held.items()
    }
    found = [name for name in known if (folder / name / "manifest.json").exists()]
    hashes = {name: alignment_hash(folder / name) for name in found}
    hashes |= dict.fromkeys(mixtures, sha256((folder / "mixtures.json").read_bytes()))
    threshold = None
    if (path := folder / "composition.json").exists():
        threshold = json.loads(path.read_text())["threshold"]
        hashes["composition"] = sha256(path.read_bytes())
    alignments = {name: load_alignment(folder / name) for name in found}
    return Suite(mixtures, alignments, threshold, hashes)
