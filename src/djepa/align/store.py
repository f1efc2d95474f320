"""An alignment on disk: tensors, configuration, calibration, card, hashes. No pickle.

FOLDER/
  model.safetensors  operators, and the principal directions where tokens are reduced
  config.json        how it was fitted, fusion weights, report
  calibration.json   the gate
  card.json          which banks and geometries, by hash; metrics
  manifest.json      format version and SHA-256 of the four
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save

from djepa.align.fit import AlignConfig, Alignment, Fit
from djepa.align.gates import Gate
from djepa.align.objectives import RelationalLoss
from djepa.align.operator import OperatorConfig
from djepa.bank.schema import sha256
from djepa.errors import DjepaError
from djepa.evidence.fusion import Fusion
from djepa.evidence.logs import LogMixture
from djepa.evidence.tokens import Tokens
from djepa.files import to_json, write_atomically

FORMAT, VERSION = "djepa-alignment", 1
FILES = ("model.safetensors", "config.json", "calibration.json", "card.json")


def save_alignment(alignment: Alignment, folder: Path, card: dict[str, Any]) -> None:
    """Write a calibrated alignment; the manifest comes last."""
    if alignment.gate is None or alignment.report is None or alignment.tokens is None:
        raise DjepaError("Fit and calibrate before you save.")
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {f"directions.{name}": d for name, d in alignment.tokens.directions.items()}
    for i, operator in enumerate(alignment.operators):
        tensors |= {f"operator.{i}.{name}": t for name, t in operator.state_dict().items()}
    config: dict[str, Any] = {
        "align": asdict(alignment.config),
        "report": alignment.report._asdict(),
    }
    config["report"]["fusion"] = asdict(alignment.report.fusion)
    config["inputs"] = alignment.operators[0].config.inputs
    data = {
        "model.safetensors": bytes(save({n: t.contiguous() for n, t in tensors.items()})),
        "config.json": to_json(config).encode(),
        "calibration.json": to_json(asdict(alignment.gate)).encode(),
        "card.json": to_json(card).encode(),
    }
    for name, content in data.items():
        write_atomically(folder / name, content)
    hashes = {name: sha256(content) for name, content in data.items()}
    manifest = {"format": FORMAT, "version": VERSION, "files": hashes}
    write_atomically(folder / "manifest.json", to_json(manifest).encode())


def load_alignment(folder: Path) -> Alignment:
    """A calibrated alignment, ready to decide. Strict: anything missing or altered is an error."""
    files = _read(folder)
    config = json.loads(files["config.json"])
    alignment = Alignment(_config(config["align"]))
    report = config["report"]
    alignment.report = Fit(
        report["starts"], report["skipped"], _fusion(report["fusion"]), tuple(report["losses"])
    )
    tensors = load(files["model.safetensors"])
    c = alignment.config
    reduced = {
        name.removeprefix("directions."): tensor
        for name, tensor in tensors.items()
        if name.startswith("directions.")
    }
    alignment.tokens = Tokens(c.dense, c.ranked, c.extras, reduced)
    alignment.operators = alignment.fresh(config["inputs"])
    for i, operator in enumerate(alignment.operators):
        prefix = f"operator.{i}."
        own = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
        try:
            operator.load_state_dict(own)
        except RuntimeError as error:
            raise DjepaError(
                f"{folder}: the tensors do not fit the configuration ({error})."
            ) from None
        operator.eval().requires_grad_(False)
    alignment.gate = Gate(**json.loads(files["calibration.json"]))
    return alignment


def alignment_hash(folder: Path) -> str:
    """SHA-256 of the manifest: it stands for everything in the folder."""
    return sha256((folder / "manifest.json").read_bytes())


def _fusion(held: dict[str, Any]) -> Fusion | LogMixture:
    weights, hits, held_out = tuple(held["weights"]), held["successes"], held["held_out"]
    if "names" in held:
        of, ranked = (tuple(held["names"]), tuple(held["density"])), held.get("ranked", False)
        return LogMixture(*of, weights, hits, held_out, ranked)
    return Fusion(weights, hits, tuple(map(tuple, held["folds"])), held_out)


def _config(held: dict[str, Any]) -> AlignConfig:
    operator, loss = OperatorConfig(**held.pop("operator")), RelationalLoss(**held.pop("loss"))
    plain: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in held.items()}
    return AlignConfig(operator=operator, loss=loss, **plain)


def _read(folder: Path) -> dict[str, bytes]:
    path = folder / "manifest.json"
    if not path.exists():
        raise DjepaError(f"{folder} holds no finished alignment: it has no manifest.json.")
    try:
        manifest = json.loads(path.read_text())
        kind, version, hashes = manifest["format"], manifest["version"], manifest["files"]
    except (ValueError, KeyError, TypeError):
        raise DjepaError(f"{path} is damaged.") from None
    if (kind, version) != (FORMAT, VERSION):
        raise DjepaError(f"{folder} is {kind} {version}; this version reads {FORMAT} {VERSION}.")
    files = {}
    for name in FILES:
        if not (folder / name).is_file():
            raise DjepaError(f"{folder / name} is missing.")
        files[name] = (folder / name).read_bytes()
        if sha256(files[name]) != hashes.get(name):
            raise DjepaError(f"{folder / name} is damaged: its SHA-256 is not the recorded one.")
    return files


def device_of(alignment: Alignment) -> torch.device:
    """Where its operators are."""
    return next(alignment.operators[0].parameters()).device
