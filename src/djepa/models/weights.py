"""Weights on disk: a folder with the tensors, what they are, how they were made, and their hashes.

FOLDER/
  model.safetensors  fp16 (statistics in float32)
  config.json        geometry, sizes, planning cost
  card.json          recipe, seed, minutes, parameters, metrics, the command that made it
  manifest.json      format version and SHA-256 of the three
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from djepa.bank.schema import sha256
from djepa.errors import DjepaError, unknown_name
from djepa.files import to_json, write_atomically
from djepa.models.kinds import Model, get_kind
from djepa.models.tdjepa import TDJEPA, PlanningCost

CUDA_CHUNKS = 8  # a GPU takes so many times more candidates at once: launches are what takes time
FORMAT, VERSION = "djepa-geometry", 1
SHIPPED = Path(__file__).parents[1] / "weights"
KEPT_WIDE = ("running_mean", "running_var", "num_batches_tracked", "_mean", "_std")


def save_geometry(model: Model, folder: Path, card: dict[str, Any]) -> None:
    """Write the folder; the manifest comes last, so a folder without one was never finished."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: _narrow(name, tensor) for name, tensor in model.state_dict().items()}
    config: dict[str, Any] = {"geometry": model.name, "config": asdict(model.config)}
    if isinstance(model, TDJEPA):
        config["planning"] = asdict(model.planning)
    files = {
        "model.safetensors": bytes(save(tensors)),
        "config.json": to_json(config).encode(),
        "card.json": to_json(card).encode(),
    }
    for name, data in files.items():
        write_atomically(folder / name, data)
    hashes = {name: sha256(data) for name, data in files.items()}
    manifest = {"format": FORMAT, "version": VERSION, "files": hashes}
    write_atomically(folder / "manifest.json", to_json(manifest).encode())


def load_geometry(where: str | Path, device: str | torch.device = "cpu") -> Model:
    """A geometry in eval mode, from a folder or by the name of a shipped one. Strict."""
    folder = find_weights(where)
    files = _read(folder)
    config = json.loads(files["config.json"])
    kind = get_kind(str(config.get("geometry")))
    model: Model = kind.build(kind.config(**config["config"]))
    if isinstance(model, TDJEPA):
        model.planned_by(PlanningCost(**config["planning"]))
    try:
        tensors = load(files["model.safetensors"])
        model.load_state_dict({name: _widen(tensor) for name, tensor in tensors.items()})
    except (RuntimeError, ValueError) as error:
        raise DjepaError(f"{folder}: the tensors do not fit the configuration ({error}).") from None
    if torch.device(device).type == "cuda":
        model.chunk *= CUDA_CHUNKS
    return model.eval().requires_grad_(False).to(device)


def weights_hash(where: str | Path) -> str:
    """SHA-256 of the manifest: it stands for everything in the folder."""
    return sha256((find_weights(where) / "manifest.json").read_bytes())


def read_card(where: str | Path) -> dict[str, Any]:
    """How the weights were made and what they reach."""
    card: dict[str, Any] = json.loads((find_weights(where) / "card.json").read_text())
    return card


def shipped() -> list[str]:
    """Names of the weights that come with the package."""
    return sorted(manifest.parent.name for manifest in SHIPPED.glob("*/manifest.json"))


def find_weights(where: str | Path) -> Path:
    """A folder as given, or a shipped one by name."""
    for folder in (Path(where), SHIPPED / str(where)):
        if (folder / "manifest.json").exists():
            return folder
    if Path(where).is_dir():
        raise DjepaError(f"{where} holds no finished weights: it has no manifest.json.")
    if not shipped():
        raise DjepaError(
            f"There are no weights at '{where}', and none come with this version. "
            "`djepa train` makes some; give --geometry its folder."
        )
    raise unknown_name("weights", str(where), shipped())


def _read(folder: Path) -> dict[str, bytes]:
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        kind, version, hashes = manifest["format"], manifest["version"], manifest["files"]
    except (ValueError, KeyError, TypeError):
        raise DjepaError(f"{folder / 'manifest.json'} is damaged.") from None
    if (kind, version) != (FORMAT, VERSION):
        raise DjepaError(f"{folder} is {kind} {version}; this version reads {FORMAT} {VERSION}.")
    files = {}
    for name, expected in hashes.items():
        path = folder / name
        if not path.is_file():
            raise DjepaError(f"{path} is missing. Fetch the weights again.")
        files[name] = path.read_bytes()
        if sha256(files[name]) != expected:
            raise DjepaError(f"{path} is damaged: its SHA-256 is not the recorded one.")
    return files


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
