"""Predictions beside a bank: evidence of one geometry per folder, bound to bank and weights.

    BANK/evidence/lewm/
      block-000000.safetensors  cost (N, K) float32, goal (N, D) and futures (N, K, B, D) float16;
                                part.NAME (N, K) float32, where a cost has parts
      manifest.json             geometry, world, look; hashes of bank, weights and every shard

Costs are computed from unrounded latents; only what is stored is rounded. Futures wider than WIDE
numbers are not stored unless asked for: 1,000 starts of a patch geometry would take 4 GB. A
`summary` of their ends and goals may stand for them, as futures of one step.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from djepa.artefacts.folder import Arrays, Folder, encode, load_arrays
from djepa.artefacts.records import MANIFEST, Kind
from djepa.artefacts.write import Writer
from djepa.bank.driving import TrafficBank
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.models.predict import predict
from djepa.models.protocol import Geometry
from djepa.tasks.task import PLAIN, Scene

WIDE = 1024
PART = "part."
Report = Callable[[int, int], None]


class EvidenceRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the manifest says of evidence."""

    geometry: str
    world: str
    look: str
    futures: str  # true, false or summary


EVIDENCE = Kind(
    "set of predictions",
    "djepa-evidence",
    4,
    EvidenceRecord,
    shards=r"block-\d{6}\.safetensors",
    again="Remove the folder and predict again.",
)


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
    keep = geometry.latent <= WIDE if futures is None else futures
    stored = "summary" if summary else str(keep).lower()
    of = EvidenceRecord(geometry.name, bank.config.world, look, stored)

    def made(rows: slice) -> Arrays:
        return _shard(bank, geometry, scene, rows, device, stored)

    return write_evidence(bank, of, weights, made, report)


def write_evidence(
    bank: Bank | TrafficBank,
    of: EvidenceRecord,
    weights: str,
    made: Callable[[slice], Arrays],
    report: Report = lambda done, total: None,
) -> Path:
    """Evidence of whatever gives every candidate a cost: `made` returns the arrays of a block."""
    folder = bank.path / "evidence" / evidence_name(of.geometry, of.look)
    made_from = {"bank": bank.hash, "weights": weights}
    writer, first = Writer(folder, EVIDENCE, msgspec.to_builtins(of), made_from), 0
    total = len(bank.manifest["blocks"])
    with writer.opened():
        for number, block in enumerate(bank.manifest["blocks"]):
            rows = slice(first, first + block["starts"])
            if (shard := f"block-{number:06d}.safetensors") not in writer.files:
                writer.write({shard: encode(made(rows))})
            first = rows.stop
            report(number + 1, total)
        writer.finish()
    return folder


def evidence_name(geometry: str, look: str = PLAIN) -> str:
    """What the evidence of a geometry is called that sees a bank in some look."""
    return geometry if look == PLAIN else f"{geometry}@{look}"


def read_predictions(bank: Bank | TrafficBank, name: str) -> Predictions:
    """The evidence of one geometry, checked against the bank and against its own hashes."""
    folder = bank.path / "evidence" / name
    if not (folder / MANIFEST).exists():
        raise DjepaError(
            f"{bank.path} has no evidence of '{name}'. "
            f"Make it: djepa predict {bank.path} --geometry {name}"
        )
    stored = Folder(folder, EVIDENCE)
    stored.belongs("bank", bank.hash)
    of: EvidenceRecord = stored.about
    if (evidence_name(of.geometry, of.look), of.world) != (name, bank.config.world):
        raise DjepaError(
            f"{folder} holds evidence of '{of.geometry}' in look '{of.look}' of the world "
            f"'{of.world}'. It was moved here; remove it and predict again."
        )
    shards = [
        load_arrays(folder / shard, stored.read(shard)) for shard in sorted(stored.manifest.files)
    ]
    _check(folder, bank, shards)
    arrays = {name: np.concatenate([part[name] for part in shards]) for name in shards[0]}
    parts = {n.removeprefix(PART): a for n, a in arrays.items() if n.startswith(PART)}
    return Predictions(
        arrays["cost"],
        arrays["goal"],
        arrays.get("futures"),
        stored.manifest.made_from["weights"],
        parts,
    )


def _shard(
    bank: Bank, geometry: Geometry, scene: Scene, rows: slice, device: str, stored: str
) -> Arrays:
    p = predict(geometry, scene, bank.decisions, rows, device)
    short = getattr(geometry, "summary", None)
    ends, goal = p.futures, p.goal
    if stored == "summary" and short is not None:
        ends, goal = short(p.futures[:, :, -1:]), short(p.goal)
    arrays: Arrays = {
        "cost": p.cost.cpu().numpy().astype(np.float32),
        "goal": goal.cpu().numpy().astype(np.float16),
    }
    if stored != "false":
        arrays["futures"] = ends.cpu().numpy().astype(np.float16)
    of = getattr(geometry, "parts", None)
    for name, part in ({} if of is None else of(p.futures, p.goal)).items():
        arrays[PART + name] = part.cpu().numpy().astype(np.float32)
    return arrays


def _check(folder: Path, bank: Bank | TrafficBank, shards: list[Arrays]) -> None:
    """Every block has the same arrays, one row per start and one number per candidate."""
    for shard, block in zip(shards, bank.manifest["blocks"], strict=True):
        names, N, K = set(shards[0]), block["starts"], bank.candidates
        whole = shard.keys() == names >= {"cost", "goal"} and all(
            len(array) == N and (name == "goal" or array.shape[1] == K)
            for name, array in shard.items()
        )
        if not whole:
            raise DjepaError(f"{folder} is damaged: a block is not of {N} starts, {K} candidates.")
