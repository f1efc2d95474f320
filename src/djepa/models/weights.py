"""Weights on disk: a folder with the tensors, configuration, card, and hashes.

FOLDER/
  model.safetensors  fp16 (statistics in float32)
  config.json        geometry, sizes, planning cost
  card.json          recipe, seed, minutes, parameters, metrics, the command that made it
  manifest.json      SHA-256 of the other three

Native models of driving and of two arms are not geometries. Their sizes are fixed: instead of
config.json they have plain arrays (.npz) from which their candidates are made.
"""

import copy
import io
import os
import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile

import msgspec
import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn

from djepa.artefacts.folder import Arrays, Folder, load_tensors
from djepa.artefacts.records import (
    MANIFEST,
    Kind,
    decode,
    encode_json,
    read_bytes,
    read_manifest,
    sha256,
    typed,
)
from djepa.artefacts.store import locate
from djepa.artefacts.write import Writer
from djepa.artefacts.write import save as save_folder
from djepa.errors import DjepaError, unknown_name
from djepa.files import to_json
from djepa.models.kinds import Model, get_kind
from djepa.models.tdjepa import TDJEPA, PlanningCost

CUDA_CHUNKS = 8  # a GPU takes so many times more candidates at once: launches are what takes time
SHIPPED = Path(__file__).parents[1] / "weights"
CHECKOUT = Path(__file__).parents[3]  # of the repository, where this is one
KEPT_WIDE = ("running_mean", "running_var", "num_batches_tracked", "_mean", "_std")
TENSORS, CARD = "model.safetensors", "card.json"
WIDEST = 2**16  # of any size of a geometry
IMPOSSIBLE = (ValueError, RuntimeError, TypeError, ArithmeticError, AssertionError, MemoryError)
BROKEN = (  # all that a damaged archive of arrays has been seen to raise
    *(OSError, ValueError, KeyError, EOFError, TypeError, AttributeError, RuntimeError),
    *(MemoryError, OverflowError, SyntaxError, TokenError, BadZipFile, struct.error, zlib.error),
)


class GeometryRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `config.json` says."""

    may_lack = ("planning",)  # which TD-JEPA alone has

    geometry: str
    config: dict[str, Any]
    planning: PlanningCost | None = None


GEOMETRY = Kind(
    "set of weights",
    "djepa-geometry",
    2,
    reads=(1,),
    again="Fetch the weights again, or train others.",
    records={"config.json": GeometryRecord, CARD: dict},
)
DRIVING = Kind(
    "driving model",
    "djepa-traffic-model",
    2,  # as the cards of folders without a manifest said
    again="Fetch it again, or train one: python -m djepa.models.traffic_train FOLDER",
    records={CARD: dict},
)
TWO_ARMS = Kind(
    "bimanual policy",
    "djepa-bimanual-policy",
    1,
    again="Fetch it again, or train one: python -m djepa.models.bimanual_train FOLDER",
    records={CARD: dict},
)
TWO_ARMS_JEPA = Kind(
    "predictive model of two arms",
    "djepa-bimanual-jepa",
    1,
    again="Fetch it again, or train one: python -m djepa.models.bimanual_jepa_train FOLDER",
    records={CARD: dict},
)
NATIVE = {  # format -> kind and files, in the order in which their hashes make one
    DRIVING.format: (DRIVING, (TENSORS, CARD, "vocabulary.npz")),
    TWO_ARMS.format: (TWO_ARMS, (TENSORS, CARD, "proposals.npz", "scene.npz")),
    TWO_ARMS_JEPA.format: (TWO_ARMS_JEPA, (TENSORS, CARD)),
}


def save_geometry(model: Model, folder: Path, card: dict[str, Any], replace: bool = False) -> None:
    """Write the folder, the manifest last, so that a folder without one is unfinished.

    The folder may also hold the log and the episodes of a training. Of finished weights only the
    card may be replaced, unless `replace` is set.
    """
    tensors = {name: _narrow(name, tensor) for name, tensor in model.state_dict().items()}
    config: dict[str, Any] = {"geometry": model.name, "config": asdict(model.config)}
    if isinstance(model, TDJEPA):
        config["planning"] = asdict(model.planning)
    files = {
        TENSORS: bytes(save(tensors)),
        "config.json": encode_json(folder / "config.json", config),
        CARD: encode_json(folder / CARD, card),
    }
    same = replace
    if not same and (folder / MANIFEST).exists():
        there = read_manifest(folder, GEOMETRY)[0].files
        same = all(there.get(n) == sha256(files[n]) for n in (TENSORS, "config.json"))
    save_folder(folder, GEOMETRY, files, alone=False, replace=same)


def load_geometry(
    where: str | Path, device: str | torch.device = "cpu", world: str | None = None
) -> Model:
    """A geometry in eval mode, from a folder or by name; anything altered is an error.

    `world`: refuse weights that were trained in another one.
    """
    stored = Folder(find_weights(where), GEOMETRY)
    if world is not None and (trained := _world(stored, world)) != world:
        raise DjepaError(f"The weights '{where}' were trained in the world '{trained}', not in "
                         f"'{world}'. Choose others: `djepa weights` lists them.")  # fmt: skip
    tensors = load_tensors(stored.path / TENSORS, stored.read(TENSORS))
    return build_geometry(stored.path, stored.record("config.json"), tensors, device)


def build_geometry(
    path: Path, record: GeometryRecord, tensors: Mapping[str, Tensor], device: str | torch.device
) -> Model:
    """A geometry in eval mode, from the parts stored at `path`."""
    model: Model = _sized(path, record, tensors)
    if isinstance(model, TDJEPA) is not (record.planning is not None):
        raise DjepaError(f"{path}: TD-JEPA has a planning cost, and no other geometry has one.")
    if isinstance(model, TDJEPA) and record.planning is not None:
        model.planned_by(record.planning)
    fill(model, tensors, path)
    return placed(model.eval().requires_grad_(False), device)


def _sized(path: Path, record: GeometryRecord, tensors: Mapping[str, Tensor]) -> Any:
    """A model of the stored sizes; unusual sizes are checked against the tensors first."""
    try:
        kind = get_kind(record.geometry)
        sizes: Any = typed(path, record.config, kind.config)
        if sizes not in kind.sizes.values():
            for name, size in vars(sizes).items():
                most = len(tensors) if name.endswith("depth") else WIDEST
                most = 1 if isinstance(size, float) else most
                if not 0 <= size <= most:
                    raise DjepaError(f"'{name}' is {size}, not 0 to {most}")
            with torch.device("meta"):
                shapes = {name: of.shape for name, of in kind.build(sizes).state_dict().items()}
            if odd := [n for n, of in tensors.items() if shapes.get(n, of.shape) != of.shape]:
                raise DjepaError(f"'{odd[0]}' is not {tuple(shapes[odd[0]])}")
        return kind.build(sizes)
    except IMPOSSIBLE as error:
        raise DjepaError(f"{path}: the tensors do not fit the configuration ({error}).") from None


def fill(model: nn.Module, tensors: Mapping[str, Tensor], path: Path, exact: bool = False) -> None:
    """Put tensors stored at `path` into a model. Names, shapes and kinds of numbers must fit.

    `exact`: they are of the very types that the model has; weights may be of 16 bits.
    """
    for name, own in model.state_dict().items():
        there, same = tensors.get(name, own), own.is_floating_point()
        fits = there.dtype == own.dtype if exact else there.is_floating_point() == same
        if not fits:  # torch would round or truncate
            raise DjepaError(f"{path}: '{name}' is {there.dtype}, not {own.dtype}.")
    try:
        model.load_state_dict({name: _widen(tensor) for name, tensor in tensors.items()})
    except (RuntimeError, ValueError) as error:
        raise DjepaError(f"{path}: the tensors do not fit the configuration ({error}).") from None


def placed(model: Any, device: str | torch.device) -> Any:
    """A geometry on that device: itself if it is there, or a copy that suits it."""
    there = next(model.parameters(), torch.empty(0)).device.type
    if there == (kind := torch.device(device).type):
        return model.to(device)
    model = copy.deepcopy(model)
    if kind == "cuda" and hasattr(model, "chunk"):
        model.chunk *= CUDA_CHUNKS
    return model.to(device)


def read_geometry(where: str | Path) -> tuple[GeometryRecord, dict[str, Tensor], str]:
    """The stored record and tensors of a geometry, and the world it was trained in."""
    stored = Folder(find_weights(where), GEOMETRY)
    tensors = load_tensors(stored.path / TENSORS, stored.read(TENSORS))
    return stored.record("config.json"), tensors, _world(stored, "")


def _world(stored: Folder, unknown: str) -> str:
    """The world that weights were trained in, if their card says so."""
    recipe = stored.record(CARD).get("recipe")
    return str(recipe.get("world", "push")) if isinstance(recipe, dict) else unknown


def weights_hash(where: str | Path) -> str:
    """Hash of tensors, configuration and card; stored results refer to it.

    The version of the manifest does not enter it, so it is the same wherever the folder lies.
    """
    files = read_manifest(find_weights(where), GEOMETRY)[0].files
    return sha256(to_json({"format": GEOMETRY.format, "version": 1, "files": files}).encode())


def copy_weights(where: str | Path, folder: Path) -> str:
    """Copy weights to `folder` and verify the copy; returns their hash."""
    stored = Folder(find_weights(where), GEOMETRY)
    save_folder(folder, GEOMETRY, {name: stored.read(name) for name in stored.manifest.files})
    return weights_hash(folder)


def read_card(where: str | Path) -> dict[str, Any]:
    """The card: how the weights were made, and their metrics."""
    return dict(Folder(find_weights(where), GEOMETRY).record(CARD))


def geometry_name(where: str | Path) -> str:
    """The geometry that weights belong to."""
    record: GeometryRecord = Folder(find_weights(where), GEOMETRY).record("config.json")
    return record.geometry


def describe(where: str | Path) -> str:
    """One line about weights whose every file was verified."""
    folder = find_weights(where)
    if (format := _format(folder)) in NATIVE:
        native = open_native(folder, NATIVE[format][0])
        native.verify()
        what, hash, size = native.kind.name, native_hash(native), len(native.read(TENSORS))
    else:
        stored = Folder(folder, GEOMETRY)
        stored.verify()
        what = f"{geometry_name(where)}, world {_world(stored, 'push')}"
        hash, size = weights_hash(where), len(stored.read(TENSORS))
    return f"{where}: {what}, {size / 1e6:.1f} MB, SHA-256 {hash[:12]}, whole ({folder})"


def open_native(where: str | Path, kind: Kind) -> Folder:
    """A native model, from a folder or by name. Strict: it lists its own files and no others."""
    folder = _by_name(where, kind)
    if folder is None and not locate(where).is_dir():
        looked = ", ".join(str(place) for place in places())
        raise DjepaError(
            f"There is no {kind.name} '{where}', neither here nor in {looked}. {kind.again}"
        )
    stored = Folder(folder or where, kind)
    _, names = NATIVE[kind.format]
    if {*stored.manifest.files} != {*names}:
        raise DjepaError(f"{stored.path / MANIFEST} must list {', '.join(names)}. {kind.again}")
    return stored


def native_hash(stored: Folder) -> str:
    """Hash over the hashes of a native model's files; stored results refer to it."""
    _, names = NATIVE[stored.kind.format]
    return sha256("".join(stored.manifest.files[name] for name in names).encode())


def write_native(
    folder: Path, kind: Kind, model: nn.Module, card: dict[str, Any], arrays: Mapping[str, Arrays]
) -> None:
    """Write the folder of a native model, the manifest last; a finished one is not overwritten.

    Weights are stored as float16. The folder may also hold files of the training.
    """
    tensors = {n: t.detach().half().cpu().contiguous() for n, t in model.state_dict().items()}
    files = {TENSORS: bytes(save(tensors)), CARD: encode_json(folder / CARD, card)}
    files |= {name: _packed(of) for name, of in arrays.items()}
    save_folder(folder, kind, files, alone=False)


def claim_native(folder: Path, kind: Kind) -> None:
    """Make the folder for a native model; raises early if the model could not be saved there."""
    Writer(folder, kind, alone=False).claim(NATIVE[kind.format][1])
    if (folder / MANIFEST).exists():
        raise DjepaError(f"{folder} holds a finished {kind.name} already. Choose another folder.")


def stored_arrays(stored: Folder, name: str) -> Arrays:
    """A listed .npz of plain arrays."""
    try:
        with np.load(io.BytesIO(stored.read(name)), allow_pickle=False) as file:
            return {key: file[key] for key in file.files}
    except DjepaError:
        raise
    except BROKEN as error:
        raise DjepaError(
            f"{stored.path / name} is damaged: it is no archive of arrays ({error}). "
            f"{stored.kind.again}"
        ) from None


def _packed(arrays: Arrays) -> bytes:
    """Arrays as a compressed .npz; equal arrays give equal bytes."""
    np.savez_compressed(data := io.BytesIO(), **arrays)  # type: ignore[arg-type]
    return data.getvalue()


def places() -> list[Path]:
    """Folders whose subfolders are weights that go by name, in the order of looking."""
    more = os.environ.get("DJEPA_WEIGHTS", "")
    checkout = [CHECKOUT / "weights"] if (CHECKOUT / "pyproject.toml").is_file() else []
    return [SHIPPED, *checkout, *(Path(place) for place in more.split(os.pathsep) if place)]


def shipped() -> list[str]:
    """Names of all geometries that go by name."""
    return sorted(name for name, format in _named().items() if format not in NATIVE)


def listed() -> list[str]:
    """Names of all weights that go by name, those of native models too."""
    return sorted(_named())


def _named() -> dict[str, str]:
    """Name -> format of all named weights; of equal names the first found."""
    every = [file.parent for place in places()[::-1] for file in place.glob(f"*/{MANIFEST}")]
    found = {folder.name: folder for folder in every}
    return {name: _format(folder) for name, folder in found.items()}


def _format(folder: Path) -> str:
    """The format that a folder's manifest states, or "" if unreadable; opening it then raises."""
    path = folder / MANIFEST
    try:
        return str(decode(path, read_bytes(path), dict[str, Any]).get("format"))
    except DjepaError:
        return ""


def _by_name(where: str | Path, kind: Kind) -> Path | None:
    """The first finished folder of that name and kind, else of any kind, else any folder.

    A damaged folder matches every kind, so that it raises instead of being replaced by another.
    """
    folders = (locate(where), *(place / str(where) for place in places()))
    found = {folder: _format(folder) for folder in folders if (folder / MANIFEST).exists()}
    for known in ({kind.format}, {GEOMETRY.format, *NATIVE}, {*found.values()}):
        for folder, format in found.items():
            if format in known or not format:
                return folder
    return None


def find_weights(where: str | Path) -> Path:
    """A folder as given, one that goes by name, or a Hugging Face repository."""
    if folder := _by_name(where, GEOMETRY):
        return folder
    if locate(where).is_dir():
        raise DjepaError(f"{where} holds no finished weights: it has no {MANIFEST}.")
    if re.fullmatch(r"[\w.-]+/[\w.-]+(?<!\.pt)", str(where)):
        return _from_hub(str(where))
    looked = ", ".join(str(place) for place in places())
    if not shipped():
        raise DjepaError(
            f"There are no weights at '{where}', and none in {looked}. "
            "`djepa train` makes some; give --geometry its folder."
        )
    raise DjepaError(
        f"{unknown_name('weights', str(where), shipped())} Looked for a folder of that name here "
        f"and in {looked}; set DJEPA_WEIGHTS to look elsewhere too."
    )


def _from_hub(name: str) -> Path:
    looked = ", ".join(str(place) for place in places())
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise DjepaError(
            f"There is no folder '{name}', neither here nor in {looked}. If it is a repository of "
            "Hugging Face, install the extra 'hub': pip install 'djepa[hub]'"
        ) from None
    try:
        return Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors"]))
    except Exception as error:  # whatever the network and the library raise
        raise DjepaError(
            f"There is no folder '{name}', neither here nor in {looked}, and Hugging Face gave "
            f"none: {error}"
        ) from None


def _narrow(name: str, tensor: Tensor) -> Tensor:
    wide = name.endswith(KEPT_WIDE) or not tensor.is_floating_point()
    return (tensor if wide else tensor.half()).detach().cpu().contiguous()


def _widen(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor


def card(recipe: dict[str, Any], model: Model, command: str, metrics: Any) -> dict[str, Any]:
    """The card that is stored with the weights."""
    return {
        "recipe": recipe,
        "parameters": sum(p.numel() for p in model.parameters()),
        "command": command,
        "metrics": metrics,
    }
