"""Predictions beside a bank: evidence of one geometry per folder, bound to bank and weights.

    BANK/evidence/lewm/
      block-000000.safetensors  cost (N, K) float32, goal (N, D) and futures (N, K, B, D) float16;
                                part.NAME (N, K) float32, where a cost has parts
      manifest.json             hashes of the bank, of the weights, of every shard

Costs are computed from unrounded latents; only what is stored is rounded. Futures wider than WIDE
numbers are not stored unless asked for: 1,000 starts of a patch geometry would take 4 GB. A
`summary` of their ends and goals may stand for them, as futures of one step.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load

from djepa.bank.read import Bank
from djepa.bank.schema import encode, sha256
from djepa.errors import DjepaError
from djepa.files import to_json, write_atomically
from djepa.models.predict import predict
from djepa.models.protocol import Geometry
from djepa.tasks.task import PLAIN, Scene

FORMAT, VERSION = "djepa-evidence", 3
WIDE = 1024
PART = "part."
Report = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a geometry believes of every candidate of a bank."""

    cost: npt.NDArray[np.float32]  # (N, K)
    goal: npt.NDArray[np.float16]  # (N, D)
    futures: npt.NDArray[np.float16] | None  # (N, K, B, D), where they are stored
    weights: str  # hash of the weights
    parts: Mapping[str, npt.NDArray[np.float32]] = field(default_factory=dict)  # name -> (N, K)


def predict_bank(
    bank: Bank,
    geometry: Geometry,
    weights: str,
    device: str = "cpu",
    report: Report = lambda done, total: None,
    futures: bool | None = None,
    look: str = PLAIN,
    summary: bool = False,
) -> Path:
    """Write the evidence of one geometry, block by block; blocks already there are kept.

    `futures`: whether to store them; by default only those of at most WIDE numbers. What is seen in
    another `look` is evidence of its own: geometry@look. `summary`: store that of the ends instead.
    """
    if summary and not hasattr(geometry, "summary"):
        raise DjepaError(f"{geometry.name} has no summary of its latents; store its futures.")
    scene = bank.scene(look)
    folder = bank.path / "evidence" / evidence_name(geometry.name, look)
    folder.mkdir(parents=True, exist_ok=True)
    keep = geometry.latent <= WIDE if futures is None else futures
    head = {"format": FORMAT, "version": VERSION, "bank": bank.hash, "weights": weights}
    stored = "summary" if summary else str(keep).lower()
    head["futures"] = stored
    _claim(folder, head)
    shards, first = [], 0
    total = len(bank.manifest["blocks"])
    for number, block in enumerate(bank.manifest["blocks"]):
        rows = slice(first, first + block["starts"])
        shards.append(folder / f"block-{number:06d}.safetensors")
        if not shards[-1].exists():
            write_atomically(shards[-1], _shard(bank, geometry, scene, rows, device, stored))
        first = rows.stop
        report(number + 1, total)
    hashes = {shard.name: sha256(shard.read_bytes()) for shard in shards}
    write_atomically(folder / "manifest.json", to_json({**head, "shards": hashes}).encode())
    return folder


def evidence_name(geometry: str, look: str = PLAIN) -> str:
    """What the evidence of a geometry is called that sees a bank in some look."""
    return geometry if look == PLAIN else f"{geometry}@{look}"


def read_predictions(bank: Bank, name: str) -> Predictions:
    """The evidence of one geometry, checked against the bank and against its own hashes."""
    folder = bank.path / "evidence" / name
    if not (folder / "manifest.json").exists():
        raise DjepaError(
            f"{bank.path} has no evidence of '{name}'. "
            f"Make it: djepa predict {bank.path} --geometry {name}"
        )
    manifest = json.loads((folder / "manifest.json").read_text())
    if manifest["bank"] != bank.hash:
        raise DjepaError(f"{folder} belongs to another bank. Remove it and predict again.")
    shards = []
    for shard, expected in sorted(manifest["shards"].items()):
        data = (folder / shard).read_bytes()
        if sha256(data) != expected:
            raise DjepaError(f"{folder / shard} is damaged. Remove {folder} and predict again.")
        shards.append(load(data))
    arrays = {name: np.concatenate([part[name] for part in shards]) for name in shards[0]}
    parts = {n.removeprefix(PART): a for n, a in arrays.items() if n.startswith(PART)}
    return Predictions(
        arrays["cost"], arrays["goal"], arrays.get("futures"), manifest["weights"], parts
    )


def _shard(
    bank: Bank, geometry: Geometry, scene: Scene, rows: slice, device: str, stored: str
) -> bytes:
    p = predict(geometry, scene, bank.decisions, rows, device)
    short = getattr(geometry, "summary", None)
    ends, goal = p.futures, p.goal
    if stored == "summary" and short is not None:
        ends, goal = short(p.futures[:, :, -1:]), short(p.goal)
    arrays: dict[str, npt.NDArray[Any]] = {
        "cost": p.cost.cpu().numpy().astype(np.float32),
        "goal": goal.cpu().numpy().astype(np.float16),
    }
    if stored != "false":
        arrays["futures"] = ends.cpu().numpy().astype(np.float16)
    of = getattr(geometry, "parts", None)
    for name, part in ({} if of is None else of(p.futures, p.goal)).items():
        arrays[PART + name] = part.cpu().numpy().astype(np.float32)
    return encode(arrays)


def _claim(folder: Path, head: dict[str, Any]) -> None:
    """Refuse to mix evidence of other weights or another bank into the folder."""
    mark = folder / "head.json"
    if mark.exists() and json.loads(mark.read_text()) != head:
        raise DjepaError(
            f"{folder} holds evidence of other weights, of another bank, or with other --futures. "
            "Remove it."
        )
    write_atomically(mark, to_json(head).encode())
