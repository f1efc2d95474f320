"""An alignment on disk: tensors, configuration, calibration, card, hashes. No pickle.

FOLDER/
  model.safetensors  tensors of the operator
  config.json        configuration, fusion weights, report of the fit
  calibration.json   the gate
  card.json          hashes of the banks; metrics
  manifest.json      SHA-256 of the other four, hashes of the weights of every geometry
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
from safetensors.torch import save
from torch import Tensor

from djepa.align.fit import AlignConfig, Alignment, Fit
from djepa.align.gates import Gate
from djepa.artefacts.folder import Folder
from djepa.artefacts.records import MANIFEST, Kind, encode_json, read_manifest, typed
from djepa.artefacts.write import save as save_folder
from djepa.errors import DjepaError
from djepa.evidence.fusion import Fusion
from djepa.evidence.logs import LogMixture
from djepa.models.kinds import GEOMETRIES
from djepa.models.weights import fill

WEIGHTS = "weights of "  # made_from: WEIGHTS + geometry -> hash
PREFIX = "operator.0."  # of the tensor names


class ReportRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The report of a fit, as stored."""

    starts: int
    skipped: int
    fusion: dict[str, Any]
    losses: tuple[float, ...]


class AlignmentRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of `config.json`."""

    align: AlignConfig
    report: ReportRecord
    inputs: int


ALIGNMENT = Kind(
    "alignment",
    "djepa-alignment",
    2,
    reads=(1,),
    again="Restore it from a copy, or fit again into another --out.",
    records={"config.json": AlignmentRecord, "calibration.json": Gate, "card.json": dict},
)


def save_alignment(
    alignment: Alignment,
    folder: Path,
    card: dict[str, Any],
    more: Mapping[str, bytes] | None = None,
) -> None:
    """Write a calibrated alignment, the manifest last. `more`: further files of the folder."""
    config, tensors = describe(alignment)
    assert alignment.gate is not None
    data = {
        "model.safetensors": bytes(save(tensors)),
        "config.json": encode_json(folder / "config.json", config),
        "calibration.json": encode_json(folder / "calibration.json", asdict(alignment.gate)),
        "card.json": encode_json(folder / "card.json", card),
    }
    made_from = {f"{WEIGHTS}{name}": of for name, of in alignment.weights.items()}
    save_folder(folder, ALIGNMENT, {**data, **(more or {})}, made_from=made_from)


def describe(alignment: Alignment) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The `AlignmentRecord` of a calibrated alignment as a JSON dictionary, and its tensors."""
    if alignment.gate is None or alignment.report is None or alignment.operator is None:
        raise DjepaError("Fit and calibrate before you save.")
    report = {**alignment.report._asdict(), "fusion": asdict(alignment.report.fusion)}
    inputs = alignment.operator.config.inputs
    config = {"align": asdict(alignment.config), "report": report, "inputs": inputs}
    tensors = alignment.operator.state_dict().items()
    return config, {f"{PREFIX}{name}": t.detach().cpu().contiguous() for name, t in tensors}


def load_alignment(folder: Path) -> Alignment:
    """Load a calibrated alignment; anything missing or altered is an error."""
    stored = Folder(folder, ALIGNMENT)
    stored.verify()
    made_from = stored.manifest.made_from.items()
    weights = {k.removeprefix(WEIGHTS): v for k, v in made_from if k.startswith(WEIGHTS)}
    record, gate = stored.record("config.json"), stored.record("calibration.json")
    check_bound(stored.path, weights, record.align.geometries)
    return build_alignment(folder, record, gate, stored.tensors("model.safetensors"), weights)


def build_alignment(
    path: Path,
    record: AlignmentRecord,
    gate: Gate,
    tensors: Mapping[str, Tensor],
    weights: Mapping[str, str],
) -> Alignment:
    """An alignment from the parts stored at `path`; `weights` are the hashes of its geometries."""
    alignment, report = Alignment(record.align), record.report
    fusion = _fusion(path, record)
    alignment.report = Fit(report.starts, report.skipped, fusion, report.losses)
    try:
        alignment.tokens = record.align.tokens()
        alignment.operator = alignment.fresh(record.inputs)
    except DjepaError as error:  # token width that no operator may have
        raise DjepaError(f"{path} is damaged: {error}") from None
    own = {n.removeprefix(PREFIX): t for n, t in tensors.items() if n.startswith(PREFIX)}
    fill(alignment.operator, own, path, exact=True)
    alignment.operator.eval().requires_grad_(False)
    alignment.gate, alignment.weights = gate, dict(weights)
    return alignment


def _fusion(path: Path, record: AlignmentRecord) -> Fusion | LogMixture:
    """The stored mixture, checked to be of the configured kind with one weight per input."""
    stored, base = record.report.fusion, record.align.base
    fusion: Fusion | LogMixture
    if record.align.mixture == "ranks":
        fusion, inputs = typed(path, stored, Fusion), base
    else:
        fusion = typed(path, stored, LogMixture)
        inputs = fusion.inputs
    if len(fusion.weights) != len(inputs):
        raise DjepaError(
            f"{path} is damaged: {len(fusion.weights)} weights of {len(inputs)} inputs."
        )
    return fusion


def check_bound(folder: Path, weights: Mapping[str, str], names: Iterable[str]) -> None:
    """Raise if the hashes of some of our geometries are known and those of others are missing.

    Evidence from plain arrays, and costs of models that are not ours, have no hashes.
    """
    lost = sorted({*names} & GEOMETRIES.keys() - weights.keys())
    if weights and lost:
        raise DjepaError(
            f"{folder / MANIFEST} is damaged: it lacks the hash of the weights of {lost[0]}. "
            f"{ALIGNMENT.again}"
        )


def read_alignment_card(folder: Path) -> dict[str, Any]:
    """The card of a stored alignment: how it was made."""
    return dict(Folder(folder, ALIGNMENT).record("card.json"))


def alignment_hash(folder: Path) -> str:
    """SHA-256 of the manifest, which covers every file of the folder."""
    return read_manifest(folder, ALIGNMENT)[1]
