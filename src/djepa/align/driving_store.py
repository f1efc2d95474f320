"""A fitted driving readout on disk: tensors, settings, card, hashes. No pickle."""

from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch
from safetensors.torch import save
from torch import Tensor

from djepa.align.driving import AnchorRelative, Normal, ScoreCorrection
from djepa.align.driving_fit import CORRECTION, SCALES, Anchored, Corrected, Setting
from djepa.align.driving_fusion import SCALARS, Fused
from djepa.artefacts.folder import Folder
from djepa.artefacts.records import Kind, encode_json
from djepa.artefacts.write import save as save_folder
from djepa.errors import DjepaError
from djepa.models.weights import WIDEST, fill

Readout = Fused | Corrected | Anchored
MODEL, CONFIG, CARD = "model.safetensors", "config.json", "card.json"
NETWORK = "network."  # prefix of the names of the network's tensors


class ReadoutRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of `config.json`."""

    kind: Literal["fused", "corrected", "anchored"]
    relations: bool = True
    scale: float = 0.0
    epoch: int = 0
    setting: Setting = Setting()

    def __post_init__(self) -> None:
        if self.scale not in SCALES or not 0 <= self.epoch <= CORRECTION.epochs:
            raise DjepaError(
                f"A correction has a scale of {SCALES} and an epoch up to {CORRECTION.epochs}, "
                f"not {self.scale} and {self.epoch}."
            )


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
        tensors |= {f"{NETWORK}{name}": t for name, t in readout.network.state_dict().items()}
    config = {**msgspec.to_builtins(record), "setting": asdict(record.setting)}
    files = {
        MODEL: bytes(save({name: t.contiguous() for name, t in tensors.items()})),
        CONFIG: encode_json(folder / CONFIG, config),
        CARD: encode_json(folder / CARD, card),
    }
    save_folder(folder, READOUT, files)


def load_readout(folder: Path) -> Readout:
    """Load a fitted readout; anything missing or altered is an error."""
    stored = Folder(folder, READOUT)
    stored.verify()
    record: ReadoutRecord = stored.record(CONFIG)
    tensors, path = stored.tensors(MODEL), stored.path / MODEL
    normal = _normal(path, tensors)
    if record.kind == "fused":
        shape = (len(normal.mean) + 1,)  # + 1 for the constant
        weights = _taken(path, tensors, "weights", shape, torch.float64)
        if tensors:
            raise _damaged(path, f"it holds '{min(tensors)}' too")
        return Fused(normal, weights)
    if record.kind == "corrected":
        network = ScoreCorrection(len(normal.mean), torch.Generator(), record.relations)
        _fill(network, tensors, path)
        return Corrected(network.eval(), normal, record.scale, record.epoch)
    relative = AnchorRelative(len(normal.mean), torch.Generator())
    _fill(relative, tensors, path)
    return Anchored(relative.eval(), normal, record.setting)


def _normal(path: Path, tensors: dict[str, Tensor]) -> Normal:
    """Mean and scale, one per token coordinate; removes both from `tensors`."""
    wide = tensors.get(f"{NETWORK}encoder.embed.0.weight")
    count = SCALARS if wide is None else wide.shape[-1] if wide.ndim == 2 else 0
    if not 0 < count <= WIDEST:
        raise _damaged(path, f"no network reads tokens of {count} numbers")
    mean, scale = (
        _taken(path, tensors, f"normal.{name}", (count,), torch.float32)
        for name in ("mean", "scale")
    )
    if not (scale > 0).all():
        raise _damaged(path, "'normal.scale' must be above 0")
    return Normal(mean, scale)


def _taken(
    path: Path, tensors: dict[str, Tensor], name: str, shape: tuple[int, ...], kind: torch.dtype
) -> Tensor:
    """The tensor of that name, checked for shape and dtype; removes it from `tensors`."""
    tensor = tensors.pop(name, torch.empty(0))
    if tensor.shape != shape or tensor.dtype != kind or not tensor.isfinite().all():
        raise _damaged(path, f"'{name}' must be {shape} finite numbers of {kind}")
    return tensor


def _fill(network: torch.nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Load the remaining tensors into a network."""
    odd = [name for name in tensors if not name.startswith(NETWORK)]
    odd += [name for name, tensor in tensors.items() if not tensor.isfinite().all()]
    if odd:
        raise _damaged(path, f"'{min(odd)}' is foreign, or not finite")
    fill(network, {name.removeprefix(NETWORK): t for name, t in tensors.items()}, path, exact=True)


def _damaged(path: Path, why: str) -> DjepaError:
    return DjepaError(f"{path} is damaged: {why}. {READOUT.again}")
