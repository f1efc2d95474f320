"""A self-contained planner in one file.

FILE.safetensors
  geometry.NAME.*   weights as `djepa train` writes them, normalisation included
  operator.0.*      the relational operator
  patch.*           the tensors that plasticity replaces, where decisions are composed
  record            JSON in the file header: configurations, base score, gate, threshold τ_P,
                    hashes of the weights, and the SHA-256 of the record and of all tensors

Equal tensors, such as an encoder that two geometries share, are stored once.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor

from djepa.align.fit import Alignment
from djepa.align.gates import Gate
from djepa.align.methods import Composition
from djepa.align.plastic import Patch, PatchRecord
from djepa.align.store import AlignmentRecord, build_alignment, describe
from djepa.artefacts.folder import Arrays, read_shard, seal_shard
from djepa.artefacts.records import Kind, typed
from djepa.errors import DjepaError
from djepa.evidence.evidence import same_weights
from djepa.files import naming, write_atomically
from djepa.models.kinds import Model
from djepa.models.weights import (
    GeometryRecord,
    build_geometry,
    geometry_name,
    read_geometry,
    weights_hash,
)

SUFFIX = ".safetensors"
ADAPTED = "patch."


class StoredGeometry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One geometry of the file."""

    config: GeometryRecord
    weights: str  # hash of the weights folder
    world: str  # the world it was trained in; empty if unknown


class StoredComposition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The stored form of a `Composition`."""

    patch: PatchRecord
    threshold: float
    hash: str


class PlannerRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON record of a planner file."""

    format: str
    version: int
    geometries: dict[str, StoredGeometry]
    alignment: AlignmentRecord
    gate: Gate
    lifted: str
    card: dict[str, Any]
    same: dict[str, str]  # tensor that is not stored -> the equal one that is
    composition: StoredComposition | None = None


PLANNER = Kind("planner", "djepa-planner", 3, PlannerRecord, again="Export the planner again.")


class Parts(NamedTuple):
    """The parts of a planner."""

    geometries: dict[str, Model]
    alignment: Alignment
    lifted: str
    composition: Composition | None
    hashes: dict[str, str]  # geometry -> hash of its weights
    worlds: dict[str, str]  # geometry -> the world it was trained in


def write_planner(
    path: Path,
    alignment: Alignment,
    weights: Sequence[str],
    lifted: str,
    card: Mapping[str, Any],
    composition: Composition | None = None,
) -> None:
    """Write all parts to one file, atomically; an existing file is not overwritten."""
    if path.suffix != SUFFIX:
        raise DjepaError(f"A planner is one file: give it a name that ends in {SUFFIX}.")
    if path.exists():
        raise DjepaError(f"{path} holds a file already. Choose another --out.")
    where = {geometry_name(place): place for place in weights}
    hashes = {name: weights_hash(place) for name, place in where.items()}
    check_parts(alignment, hashes, lifted)
    config, tensors = describe(alignment)
    assert alignment.gate is not None
    geometries = {}
    for name, place in where.items():
        record, own, world = read_geometry(place)
        geometries[name] = StoredGeometry(record, hashes[name], world)
        tensors |= {f"geometry.{name}.{n}": tensor for n, tensor in own.items()}
        if composition is not None and name == composition.patch.geometry:
            composition.adapted(build_geometry(path, record, own, "cpu"))  # raises on a misfit
    if composition is not None:
        tensors |= {ADAPTED + n: t.detach().cpu() for n, t in composition.patch.tensors.items()}
    stored, same = _once(tensors)
    head = PlannerRecord(
        format=PLANNER.format,
        version=PLANNER.version,
        geometries=geometries,
        alignment=typed(path, msgspec.to_builtins(config), AlignmentRecord),
        gate=alignment.gate,
        lifted=lifted,
        card=dict(card),
        same=same,
        composition=None if composition is None else _described(composition),
    )
    arrays = {name: tensor.numpy() for name, tensor in stored.items()}
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, seal_shard(path, arrays, msgspec.to_builtins(head)))


def read_record(path: Path) -> PlannerRecord:
    """Read the record of a planner file after checking every hash."""
    return _read(path)[1]


def read_planner(path: Path, device: str | torch.device = "cpu") -> Parts:
    """Read the parts of a planner file; anything missing or altered is an error."""
    arrays, record = _read(path)
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    missing = sorted(set(record.same.values()) - tensors.keys())
    if missing:
        raise DjepaError(f"{path} is damaged: it lacks '{missing[0]}'. {PLANNER.again}")
    tensors |= {name: tensors[of] for name, of in record.same.items()}
    weights = {name: of.weights for name, of in record.geometries.items()}
    models = {
        name: build_geometry(path, of.config, _under(tensors, f"geometry.{name}."), device)
        for name, of in record.geometries.items()
    }
    known = {n: of for n, of in weights.items() if n in record.alignment.align.geometries}
    alignment = build_alignment(path, record.alignment, record.gate, tensors, known)
    check_parts(alignment, weights, record.lifted, path)
    assert alignment.operator is not None
    alignment.operator.to(device)
    composition = None
    if (of := record.composition) is not None:
        replaced = _under(tensors, ADAPTED)
        patch = Patch(of.patch.geometry, of.patch.base, replaced, of.patch.card, path)
        composition = Composition(patch, of.threshold, of.hash)
    worlds = {name: of.world for name, of in record.geometries.items()}
    return Parts(models, alignment, record.lifted, composition, weights, worlds)


def _read(path: Path) -> tuple[Arrays, PlannerRecord]:
    """Arrays and record of a file, checked against their hashes."""
    if not path.is_file():
        older = (
            f" It is a folder, as older versions wrote. {PLANNER.again}" if path.is_dir() else ""
        )
        raise DjepaError(f"There is no planner at {path}: no such file.{older}")
    arrays, stored = read_shard(path)
    if (stored.get("format"), stored.get("version")) != (PLANNER.format, PLANNER.version):
        raise DjepaError(
            f"{path} is {stored.get('format')} {stored.get('version')}; this version reads "
            f"{PLANNER.format} {PLANNER.version}. {PLANNER.again}"
        )
    record: PlannerRecord = typed(path, stored, PlannerRecord)
    return arrays, record


def check_parts(
    alignment: Alignment, hashes: Mapping[str, str | None], lifted: str, path: Path | None = None
) -> None:
    """Raise unless every geometry that the alignment reads is given, with the fitted weights."""
    what = f"The planner at {path}" if path else "The planner"
    missing = sorted({*alignment.config.geometries, lifted} - hashes.keys())
    if missing:
        raise DjepaError(f"{what} needs the geometries {', '.join(missing)} too.")
    same_weights(alignment.weights, {name: of for name, of in hashes.items() if of is not None})


def _described(composition: Composition) -> StoredComposition:
    patch = composition.patch
    record = PatchRecord(patch.geometry, patch.base, patch.card)
    return StoredComposition(record, composition.threshold, composition.hash)


def _once(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Distinct tensors to store, and for each duplicate the name of its stored equal."""
    first: dict[tuple[Any, ...], str] = {}
    same = {}
    for name, tensor in tensors.items():
        key = (tensor.dtype, tuple(tensor.shape), tensor.contiguous().numpy().tobytes())
        if first.setdefault(key, name) != name:
            same[name] = first[key]
    return {name: t for name, t in tensors.items() if name not in same}, same


def _under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
