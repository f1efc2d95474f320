"""All methods of a study, fitted on one population and stored one by one.

FOLDER/
  suite.json      the card, and the names of the fitting and calibration starts
  mixtures.json   fusions: geometries, weights, consensus inputs
  NAME/           one folder per alignment, see align/store.py
  composition.json  τ_P, where there is an adapted predictor
  manifest.json   SHA-256 of these and of the alignments' manifests, hashes of the weights
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from djepa.align.fit import AlignConfig, Alignment
from djepa.align.methods import (
    HERE,
    PLASTIC,
    Chooser,
    Dense,
    Mixture,
    Population,
    aligned,
    composed,
    fit_composed,
    fit_each,
)
from djepa.align.presets import FOUR, PAIR, SUITE
from djepa.align.registry import slug
from djepa.align.store import ALIGNMENT, WEIGHTS, check_bound, load_alignment, save_alignment
from djepa.artefacts.folder import Folder
from djepa.artefacts.records import MANIFEST, Kind, decode, encode_json, read_bytes, sha256
from djepa.artefacts.write import Writer
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence, same_weights
from djepa.rollout.engine import Engine

MIXTURES: dict[str, tuple[tuple[str, ...], Dense]] = {
    "fusion, two": (PAIR, None),
    "fusion, four": (FOUR, None),
    "consensus + fusion, two": (PAIR, "tdjepa"),
    "consensus + fusion, four": (FOUR, "tdjepa"),
    "both consensus + fusion, four": (FOUR, PAIR),  # the inputs of our mixture
}
STARTS, MIXED, COMPOSED = "suite.json", "mixtures.json", "composition.json"
Say = Callable[[str], None]


class StartsRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of `suite.json`."""

    card: dict[str, Any]
    starts: list[str]  # first 16 characters of the names of fitting and calibration starts


class ComposedRecord(msgspec.Struct, frozen=True):
    """The field of `composition.json` that is read; the card of the suite is stored beside it."""

    threshold: float  # τ_P


SUITE_KIND = Kind(
    "suite",
    "djepa-suite",
    2,
    again="Restore it from a copy, or fit again into another folder.",
    records={STARTS: StartsRecord, MIXED: dict[str, Mixture], COMPOSED: ComposedRecord},
)


@dataclass(frozen=True)
class Recipe:
    """The methods that a study fits, by their names in tables."""

    mixtures: Mapping[str, tuple[tuple[str, ...], Dense]]  # (geometries, `dense`), see `Mixture`
    alignments: Mapping[str, AlignConfig]
    graded: bool = False  # fusions maximise quality, not successes


@dataclass(frozen=True, eq=False)
class Suite:
    """Fitted methods, and the hash of the file of each."""

    mixtures: dict[str, Mixture]
    alignments: dict[str, Alignment]
    threshold: float | None  # τ_P of the composition
    hashes: dict[str, str]

    def choosers(self, names: Sequence[str]) -> dict[str, Chooser]:
        """Method -> chooser, for all fitted methods that need only these geometries."""
        found: dict[str, Chooser] = dict(self.mixtures)
        found |= {name: aligned(alignment) for name, alignment in self.alignments.items()}
        if self.threshold is not None and PLASTIC in names:
            found["composition"] = composed(self.alignments["relational"], self.threshold)
        return found


def fit_suite(
    folder: Path,
    fit: Population,
    calibration: Population,
    card: dict[str, Any],
    say: Say = lambda line: None,
    recipe: Recipe | None = None,
    engine: Engine = HERE,
) -> Suite:
    """Fit the methods that the folder lacks; the engine's workers fit the alignments.

    Fusions of a finished folder are not changed: results are bound to the hash of their file.
    """
    recipe = recipe or Recipe(MIXTURES, SUITE)
    names = [*fit.evidence.identities, *calibration.evidence.identities]
    starts = {"card": card, "starts": [name[:16] for name in names]}
    same_weights(fit.evidence.weights, calibration.evidence.weights)
    weights = {f"{WEIGHTS}{name}": of for name, of in fit.evidence.weights.items()}
    writer = Writer(folder, SUITE_KIND, made_from=weights, alone=False)  # patches lie beside
    own = (STARTS, MIXED, COMPOSED, *map(slug, recipe.alignments))
    with writer.opened(own):
        data = encode_json(folder / STARTS, starts)
        if STARTS not in writer.files:
            writer.write({STARTS: data})
        elif writer.files[STARTS] != sha256(data):
            raise DjepaError(
                f"{folder} was fitted on other starts or pools. Choose another folder."
            )
        _fit_mixtures(writer, fit, recipe, say)
        for name in recipe.alignments:
            _enter(writer, name)

        def missing() -> Iterator[tuple[str, AlignConfig]]:
            for name, config in recipe.alignments.items():
                if _part(name) not in writer.files:
                    say(name)
                    yield name, config

        for name, alignment in fit_each(missing(), fit, calibration, engine):
            save_alignment(alignment, folder / slug(name), {"method": name, **card})
            _enter(writer, name)
        adapted = PLASTIC in calibration.evidence.names
        adapted = adapted and _part("relational") in writer.files
        if adapted and COMPOSED not in writer.files:
            say("composition")
            threshold = fit_composed(load_alignment(folder / slug("relational")), calibration)
            data = encode_json(folder / COMPOSED, {"threshold": threshold, **card})
            writer.write({COMPOSED: data})
        writer.finish()
    return load_suite(folder, recipe)


def _fit_mixtures(writer: Writer, fit: Population, recipe: Recipe, say: Say) -> None:
    """Check the stored fusions, then fit the missing ones."""
    path, there = writer.path / MIXED, dict[str, Mixture]()
    if begun := MIXED in writer.files:
        there = decode(path, read_bytes(path), dict[str, Mixture])
        _check_mixtures(path, there, recipe)
    missing = {name: of for name, of in recipe.mixtures.items() if name not in there}
    if writer.complete and missing:
        names = ", ".join(f"'{name}'" for name in missing)
        say(f"all but {names}: {path.parent} was finished without")
    elif missing or not begun:
        say("fusions")
        found = there | {
            name: Mixture.fit(of, fit, by, recipe.graded) for name, (of, by) in missing.items()
        }
        data = encode_json(path, {name: asdict(of) for name, of in found.items()})
        if begun:  # by an earlier recipe
            writer.withdraw(MIXED)
        writer.write({MIXED: data})


def _part(name: str) -> str:
    return f"{slug(name)}/{MANIFEST}"


def _enter(writer: Writer, name: str) -> None:
    """Add the manifest of an alignment's folder to the suite's manifest, if it exists."""
    folder = writer.path / slug(name)
    if _part(name) not in writer.files and (folder / MANIFEST).exists():
        Folder(folder, ALIGNMENT).verify()
        writer.enter({_part(name): read_bytes(folder / MANIFEST)})


def unseen(folder: Path, evidence: Evidence) -> None:
    """Raise if the evidence has starts that a suite was fitted or calibrated on."""
    record: StartsRecord = Folder(folder, SUITE_KIND).record(STARTS)
    known = set(record.starts)
    shared = [name for name in evidence.identities if name[:16] in known]
    if shared:
        raise DjepaError(
            f"Start {shared[0][:16]} and {len(shared) - 1} others were used to fit {folder}; "
            "confirmation starts must be new ones."
        )


def load_suite(folder: Path, recipe: Recipe | None = None) -> Suite:
    """Load the suite that `fit_suite` wrote; every file is checked against its hash."""
    recipe = recipe or Recipe(MIXTURES, SUITE)
    stored = Folder(folder, SUITE_KIND)
    stored.verify()
    files = stored.manifest.files
    mixtures = _mixtures(stored, recipe)
    found = [name for name in recipe.alignments if _part(name) in files]
    hashes = {name: files[_part(name)] for name in found} | dict.fromkeys(mixtures, files[MIXED])
    threshold = None
    if COMPOSED in files:
        threshold, hashes["composition"] = stored.record(COMPOSED).threshold, files[COMPOSED]
    alignments = {name: load_alignment(folder / slug(name)) for name in found}
    _bind(stored, mixtures, alignments)
    return Suite(mixtures, alignments, threshold, hashes)


def _mixtures(stored: Folder, recipe: Recipe) -> dict[str, Mixture]:
    """Name -> stored fusion of the recipe.

    Fusions may be absent: the recipe may have been extended since the folder was written.
    """
    mixtures: dict[str, Mixture] = stored.record(MIXED)
    _check_mixtures(stored.path / MIXED, mixtures, recipe)
    return mixtures


def _check_mixtures(path: Path, mixtures: Mapping[str, Mixture], recipe: Recipe) -> None:
    """Raise for stored fusions that the recipe lacks or that have other inputs."""
    for name, of in mixtures.items():
        if not of.weights or recipe.mixtures.get(name) != (of.names, of.dense):
            raise DjepaError(f"{path} has another '{name}' than the recipe. {SUITE_KIND.again}")


def _bind(
    stored: Folder, mixtures: Mapping[str, Mixture], alignments: Mapping[str, Alignment]
) -> None:
    """Set the weight hashes of alignments from the suite: the first version stored none in them."""
    used = {k.removeprefix(WEIGHTS): of for k, of in stored.manifest.made_from.items()}
    for mixture in mixtures.values():
        check_bound(stored.path, used, mixture.names)
    for name, alignment in alignments.items():
        check_bound(stored.path, used, alignment.config.geometries)
        own = {n: used[n] for n in alignment.config.geometries if n in used}
        same_weights(alignment.weights, own)
        if lost := sorted(alignment.weights.keys() - own.keys()):
            raise DjepaError(
                f"{stored.path / MANIFEST} is damaged: it lacks the hash of the weights of "
                f"{lost[0]}, which '{name}' was fitted with. {SUITE_KIND.again}"
            )
        alignment.weights = own
