"""A converted transport head on disk; heads fitted by this package are stored by temporal.py.

HEAD/
  transport.safetensors  the coefficient network, float32
  card.json              its width and radius, how it was made
  manifest.json          format, version, SHA-256 of both files
"""

from pathlib import Path
from typing import Any

import msgspec
from safetensors.torch import save

from djepa.artefacts.folder import Folder
from djepa.artefacts.records import Kind, encode_json
from djepa.artefacts.write import save as save_folder
from djepa.errors import DjepaError
from djepa.lift.transport import TemporalTransport
from djepa.models.weights import fill

CARD, TENSORS = "card.json", "transport.safetensors"


class HeadRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of `card.json`."""

    hidden: int
    radius: float
    card: dict[str, Any]


HEAD = Kind("transport head", "djepa-transport", 1, records={CARD: HeadRecord})


def save_head(head: TemporalTransport, folder: Path, card: dict[str, Any]) -> None:
    """Write the head folder, the manifest last; a finished head is not overwritten."""
    record = {"hidden": head.up.out_features, "radius": head.radius, "card": card}
    tensors = {name: tensor.contiguous() for name, tensor in head.state_dict().items()}
    files = {TENSORS: bytes(save(tensors)), CARD: encode_json(folder / CARD, record)}
    save_folder(folder, HEAD, files)


def load_head(folder: Path) -> TemporalTransport:
    """Read a head; any missing or altered file raises an error."""
    stored = Folder(folder, HEAD)
    record: HeadRecord = stored.record(CARD)
    if not 0 < record.radius < float("inf"):
        raise DjepaError(f"{stored.path / CARD}: the radius must be above 0, not {record.radius}.")
    return filled(stored, TENSORS, record.hidden, record.radius)


def filled(stored: Folder, file: str, hidden: int, radius: float) -> TemporalTransport:
    """The head of a stored file, which must have the units that a card says."""
    tensors = stored.tensors(file)
    bias = tensors.get("up.bias")
    if bias is None or bias.shape != (hidden,):  # check before allocating
        raise DjepaError(f"{stored.path / file} has not the {hidden} units of its card.")
    head = TemporalTransport(hidden, radius)
    fill(head, tensors, stored.path / file, exact=True)
    return head.requires_grad_(False)
