"""Weights on disk: a folder with the tensors, what they are, how they were made, and their hashes.

FOLDER/
  model.safetensors  fp16 (statistics in float32)
  config.json        geometry, sizes, planning cost
  card.json          recipe, seed, minutes, parameters, metrics, the command that made it
  manifest.json      SHA-256 of the three
"""

import copy
import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors.torch import save
from torch import Tensor

from djepa.artefacts.folder import Folder, load_tensors
from djepa.artefacts.records import MANIFEST, Kind, encode_json, read_manifest, sha256, typed
from djepa.artefacts.store import locate
from djepa.artefacts.write import save as save_folder
from djepa.errors import DjepaError, unknown_name
from djepa.files import to_json
from djepa.models.kinds import Model, get_kind
from djepa.models.tdjepa import TDJEPA, PlanningCost

CUDA_CHUNKS = 8  # a GPU takes so many times more candidates at once: launches are what takes time
SHIPPED = Path(__file__).parents[1] / "weights"
CHECKOUT = Path(__file__).parents[3]  # of the repository, where this is one
KEPT_WIDE = ("running_mean", "running_var", "num_batches_tracked", "_mean", "_std")
TENSORS = "model.safetensors"


class GeometryRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `config.json` says."""

    geometry: str
    config: dict[str, Any]
    planning: PlanningCost | None = None


GEOMETRY = Kind(
    "set of weights",
    "djepa-geometry",
    2,
    reads=(1,),
    again="Fetch the weights again, or train others.",
    records={"config.json": GeometryRecord, "card.json": dict},
)


def save_geometry(model: Model, folder: Path, card: dict[str, Any], replace: bool = False) -> None:
    """Write the folder; the manifest comes last, so a folder without one was never finished.

    The log and the episodes of a training may lie beside. Of finished weights the card alone may
    be replaced, unless `replace` says so.
    """
    tensors = {name: _narrow(name, tensor) for name, tensor in model.state_dict().items()}
    config: dict[str, Any] = {"geometry": model.name, "config": asdict(model.config)}
    if isinstance(model, TDJEPA):
        config["planning"] = asdict(model.planning)
    files = {
        TENSORS: bytes(save(tensors)),
        "config.json": encode_json(folder / "config.json", config),
        "card.json": encode_json(folder / "card.json", card),
    }
    same = replace
    if not same and (folder / MANIFEST).exists():
        there = read_manifest(folder, GEOMETRY)[0].files
        same = all(there.get(n) == sha256(files[n]) for n in (TENSORS, "config.json"))
    save_folder(folder, GEOMETRY, files, alone=False, replace=same)


def load_geometry(
    where: str | Path, device: str | torch.device = "cpu", world: str | None = None
) -> Model:
    """A geometry in eval mode, from a folder or by name. Strict.

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
    """A geometry in eval mode, of what was stored at `path`."""
    kind = get_kind(record.geometry)
    sizes: Any = typed(path, record.config, kind.config)
    model: Model = kind.build(sizes)
    if isinstance(model, TDJEPA) and record.planning is not None:
        model.planned_by(record.planning)
    try:
        model.load_state_dict({name: _widen(tensor) for name, tensor in tensors.items()})
    except (RuntimeError, ValueError) as error:
        raise DjepaError(f"{path}: the tensors do not fit the configuration ({error}).") from None
    return placed(model.eval().requires_grad_(False), device)


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
    """What a geometry is built of, as it is stored, and the world it was trained in."""
    stored = Folder(find_weights(where), GEOMETRY)
    tensors = load_tensors(stored.path / TENSORS, stored.read(TENSORS))
    return stored.record("config.json"), tensors, _world(stored, "")


def _world(stored: Folder, unknown: str) -> str:
    """The world that weights were trained in, if their card says so."""
    recipe = stored.record("card.json").get("recipe")
    return str(recipe.get("world", "push")) if isinstance(recipe, dict) else unknown


def weights_hash(where: str | Path) -> str:
    """What results are bound to: a hash of tensors, configuration and card.

    The version of the manifest does not enter it, so it is the same wherever the folder lies.
    """
    files = read_manifest(find_weights(where), GEOMETRY)[0].files
    return sha256(to_json({"format": GEOMETRY.format, "version": 1, "files": files}).encode())


def copy_weights(where: str | Path, folder: Path) -> str:
    """A checked copy; its hash, which is the original's."""
    stored = Folder(find_weights(where), GEOMETRY)
    save_folder(folder, GEOMETRY, {name: stored.read(name) for name in stored.manifest.files})
    return weights_hash(folder)


def read_card(where: str | Path) -> dict[str, Any]:
    """How the weights were made and what they reach."""
    return dict(Folder(find_weights(where), GEOMETRY).record("card.json"))


def geometry_name(where: str | Path) -> str:
    """Which geometry weights are of."""
    record: GeometryRecord = Folder(find_weights(where), GEOMETRY).record("config.json")
    return record.geometry


def describe(where: str | Path) -> str:
    """One line about weights whose every file was verified."""
    stored = Folder(folder := find_weights(where), GEOMETRY)
    stored.verify()
    size = len(stored.read(TENSORS)) / 1e6
    recipe = stored.record("card.json").get("recipe", {})
    world = recipe.get("world", "push")
    return (
        f"{where}: {geometry_name(where)}, world {world}, {size:.1f} MB, "
        f"SHA-256 {weights_hash(where)[:12]}, whole ({folder})"
    )


def places() -> list[Path]:
    """Folders whose subfolders are weights that go by name, in the order of looking."""
    more = os.environ.get("DJEPA_WEIGHTS", "")
    checkout = [CHECKOUT / "weights"] if (CHECKOUT / "pyproject.toml").is_file() else []
    return [SHIPPED, *checkout, *(Path(place) for place in more.split(os.pathsep) if place)]


def shipped() -> list[str]:
    """Names of all weights that go by name."""
    return sorted({m.parent.name for place in places() for m in place.glob(f"*/{MANIFEST}")})


def find_weights(where: str | Path) -> Path:
    """A folder as given, one that goes by name, or a Hugging Face repository."""
    for folder in (locate(where), *(place / str(where) for place in places())):
        if (folder / MANIFEST).exists():
            return folder
    if locate(where).is_dir():
        raise DjepaError(f"{where} holds no finished weights: it has no {MANIFEST}.")
    if re.fullmatch(r"[\w.-]+/[\w.-]+", str(where)):
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
    """What goes with the weights."""
    return {
        "recipe": recipe,
        "parameters": sum(p.numel() for p in model.parameters()),
        "command": command,
        "metrics": metrics,
    }
