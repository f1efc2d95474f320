"""A fitted driving readout on disk: tensors, settings, card, hashes. No pickle."""

from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import torch
from safetensors.torch import save
from torch import Tensor

from djepa.align.driving import AnchorRelative, Normal, ScoreCorrection
from djepa.align.driving_fit import Anchored, Corrected, Setting
from djepa.align.driving_fusion import Fused
from djepa.artefacts.folder import Folder
from djepa.artefacts.records import Kind, encode_json
from djepa.artefacts.write import save as save_folder
from djepa.errors import DjepaError

Network = TypeVar("Network", bound=torch.nn.Module)
Readout = Fused | Corrected | Anchored
MODEL, CONFIG, CARD = "model.safetensors", "config.json", "card.json"


class ReadoutRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `config.json` says."""

    kind: str  # fused, corrected or anchored
    relations: bool = True
    scale: float = 0.0
    epoch: int = 0
    setting: Setting = Setting()


READOUT = Kind(
    "driving readout",
    "djepa-driving-readout",
    1,
    again="Remove it, and it is fitted again.",
    records={CONFIG: ReadoutRecord, CARD: dict},
)


def save_readout(readout: Readout, folder: Path, card: dict[str, Any]) -> None:
    """Write a fitted readout; the manifest comes last."""
    tensors = {"normal.mean": readout.normal.mean, "normal.scale": readout.normal.scale}
    if isinstance(readout, Fused):
        record = ReadoutRecord("fused")
        tensors["weights"] = readout.weights
    elif isinstance(readout, Corrected):
        relations = readout.network.encoder.relations
        record = ReadoutRecord("corrected", relations, readout.scale, readout.epoch)
    else:
        record = ReadoutRecord("anchored", setting=readout.setting)
    if not isinstance(readout, Fused):
        tensors |= {f"network.{name}": t for name, t in readout.network.state_dict().items()}
    config = {**msgspec.to_builtins(record), "setting": asdict(record.setting)}
    files = {
        MODEL: bytes(save({name: t.contiguous() for name, t in tensors.items()})),
        CONFIG: encode_json(folder / CONFIG, config),
        CARD: encode_json(folder / CARD, card),
    }
    save_folder(folder, READOUT, files)


def load_readout(folder: Path) -> Readout:
    """A readout that can decide. Strict: anything missing or altered is an error."""
    stored = Folder(folder, READOUT)
    stored.verify()
    record: ReadoutRecord = stored.record(CONFIG)
    tensors = stored.tensors(MODEL)
    try:
        normal = Normal(tensors.pop("normal.mean"), tensors.pop("normal.scale"))
        if record.kind == "fused":
            return Fused(normal, tensors["weights"])
        weights = {name.removeprefix("network."): t for name, t in tensors.items()}
        if record.kind == "corrected":
            network = ScoreCorrection(len(normal.mean), torch.Generator(), record.relations)
            return Corrected(_filled(network, weights), normal, record.scale, record.epoch)
        relative = AnchorRelative(len(normal.mean), torch.Generator())
        return Anchored(_filled(relative, weights), normal, record.setting)
    except (KeyError, RuntimeError) as error:
        raise DjepaError(f"{folder}: the tensors do not fit the settings ({error}).") from None


def _filled(network: Network, weights: dict[str, Tensor]) -> Network:
    network.load_state_dict(weights)
    return network.eval()
