"""Predictions beside a bank: evidence of one geometry per folder, bound to bank and weights.

    BANK/evidence/lewm/
      block-000000.safetensors  cost (N, K) float32, goal (N, D) and futures (N, K, B, D) float16;
                                part.NAME (N, K) float32, where a cost has parts
      manifest.json             geometry, world, look; hashes of bank, weights and every shard

Costs are computed from unrounded latents; only what is stored is rounded. Futures wider than WIDE
numbers are not stored unless asked for: 1,000 starts of a patch geometry would take 4 GB. A
`summary` of their ends and goals may stand for them, as futures of one step.

Of a large bank, `Stored` reads a block at a time, and single starts from the mapped shards.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import safetensors
import torch

from djepa.artefacts.folder import Arrays, Folder, encode, load_arrays, stacked
from djepa.artefacts.layout import check_layout
from djepa.artefacts.records import MANIFEST, Kind
from djepa.artefacts.store import remote
from djepa.artefacts.write import Writer
from djepa.bank.driving import TrafficBank
from djepa.bank.read import Bank, Decisions
from djepa.errors import DjepaError
from djepa.models.predict import predict
from djepa.models.protocol import Geometry
from djepa.models.weights import placed
from djepa.rollout.alike import arithmetic_here, same_arithmetic
from djepa.rollout.engine import Engine, LocalEngine
from djepa.tasks.task import PLAIN, Scene
from djepa.threads import threads_for

WIDE = 1024
PART = "part."
LAYOUT = {  # of a block; a part of the cost is as the cost itself
    "cost": ("float32", "N K"),
    "goal": ("float16", "N D"),
    "futures": ("float16", "N K B D"),
}
HERE = LocalEngine(1)
Report = Callable[[int, int], None]
Missing = Iterable[tuple[int, slice]]  # blocks by number, and their rows


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
    """What a geometry predicts for every candidate of a bank."""

    cost: npt.NDArray[np.float32]  # (N, K)
    goal: npt.NDArray[np.float16]  # (N, D)
    futures: npt.NDArray[np.float16] | None  # (N, K, B, D), where they are stored
    weights: str  # hash of the weights
    parts: Mapping[str, npt.NDArray[np.float32]] = field(default_factory=dict)  # name -> (N, K)


@dataclass(frozen=True, eq=False)
class Predicting:
    """What all blocks of a bank share on their way to the workers of an engine."""

    geometry: Geometry
    scene: Scene
    stored: str  # as in the record
    device: str
    arithmetic: str  # the driver's


def predict_bank(
    bank: Bank,
    geometry: Geometry,
    weights: str,
    device: str = "cpu",
    report: Report = lambda done, total: None,
    futures: bool | None = None,
    look: str = PLAIN,
    summary: bool = False,
    engine: Engine = HERE,
) -> Path:
    """Write the evidence of one geometry, block by block; blocks already there are kept.

    `futures`: whether to store them; by default only those of at most WIDE numbers. What is seen in
    another `look` is evidence of its own: geometry@look. `summary`: store that of the ends instead.
    On a CPU every block is predicted by one thread, so that no byte depends on the `engine`.
    """
    if summary and not hasattr(geometry, "summary"):
        raise DjepaError(f"{geometry.name} has no summary of its latents; store its futures.")
    scene = bank.scene(look)
    keep = geometry.latent <= WIDE if futures is None else futures
    stored = "summary" if summary else str(keep).lower()
    of = EvidenceRecord(geometry.name, bank.config.world, look, stored)
    shared = Predicting(geometry, scene, stored, device, arithmetic_here(device))

    def made(missing: Missing) -> Iterator[tuple[int, Arrays]]:
        blocks = ((n, bank.part(range(n, n + 1)).decisions) for n, _ in missing)
        return engine.map(_shard, blocks, shared, device)

    return write_evidence(bank, of, weights, made, report)


def write_evidence(
    bank: Bank | TrafficBank,
    of: EvidenceRecord,
    weights: str,
    made: Callable[[Missing], Iterator[tuple[int, Arrays]]],
    report: Report = lambda done, total: None,
) -> Path:
    """Write evidence of any source of costs; `made` yields the arrays of the missing blocks."""
    folder = bank.path / "evidence" / evidence_name(of.geometry, of.look)
    made_from = {"bank": bank.hash, "weights": weights}
    writer = Writer(folder, EVIDENCE, msgspec.to_builtins(of), made_from)
    ends = np.cumsum([0, *(block["starts"] for block in bank.manifest["blocks"])]).tolist()
    total = len(ends) - 1
    with writer.opened():
        left = [n for n in range(total) if shard_of(n) not in writer.files]
        report(total - len(left), total)
        missing = ((n, slice(ends[n], ends[n + 1])) for n in left)
        for done, (number, arrays) in enumerate(made(missing), total - len(left) + 1):
            writer.write({shard_of(number): encode(arrays)})
            report(done, total)
        writer.finish()
    return folder


def one_by_one(
    made: Callable[[slice], Arrays],
) -> Callable[[Missing], Iterator[tuple[int, Arrays]]]:
    """Blocks made in this process, of their rows."""
    return lambda missing: ((number, made(rows)) for number, rows in missing)


def evidence_name(geometry: str, look: str = PLAIN) -> str:
    """The name of a geometry's evidence: `geometry`, or `geometry@look` in another look."""
    return geometry if look == PLAIN else f"{geometry}@{look}"


class Stored:
    """The evidence of one geometry on disk, checked against the bank; read block by block."""

    def __init__(self, bank: Bank | TrafficBank, name: str) -> None:
        self.bank, self.folder = bank, bank.path / "evidence" / name
        if not (self.folder / MANIFEST).exists():
            raise DjepaError(
                f"{bank.path} has no evidence of '{name}'. "
                f"Make it: djepa predict {bank.path} --geometry {name}"
            )
        self._files = Folder(self.folder, EVIDENCE)
        self._files.belongs("bank", bank.hash)
        of: EvidenceRecord = self._files.about
        if (evidence_name(of.geometry, of.look), of.world) != (name, bank.config.world):
            raise DjepaError(
                f"{self.folder} holds evidence of '{of.geometry}' in look '{of.look}' of the world "
                f"'{of.world}'. It was moved here; remove it and predict again."
            )
        if sorted(self._files.manifest.files) != [
            shard_of(number) for number in range(len(bank.manifest["blocks"]))
        ]:
            raise DjepaError(f"{self.folder} is damaged: it does not have the bank's blocks.")
        self.weights = self._files.manifest.made_from["weights"]
        self.futures = of.futures != "false"  # whether they are stored

    def block(self, number: int) -> Arrays:
        """Arrays of one block, as they were written: a row per start, a number per candidate."""
        path = self.folder / shard_of(number)
        arrays = load_arrays(path, self._files.read(shard_of(number)))
        starts = self.bank.manifest["blocks"][number]["starts"]
        needed = ["cost", "goal", *(["futures"] if self.futures else [])]
        layout = {name: LAYOUT[name] for name in needed}
        layout |= {name: LAYOUT["cost"] for name in arrays if name.startswith(PART)}
        sizes = {"N": starts, "K": self.bank.candidates}
        check_layout(path, arrays, layout, sizes, EVIDENCE.again)
        return arrays

    def ends(self, number: int, rows: Sequence[int]) -> npt.NDArray[np.float16]:
        """(n, K, D) last latents of some starts of a block, from the mapped file.

        Its hash is not computed anew: `block` has done that when the costs were read. A copy of
        what lies in a store is another download, and is compared with the manifest.
        """
        shard = shard_of(number)
        path = self.folder / shard
        if far := remote(path):
            path = far.local(self._files.manifest.files[shard])
        with safetensors.safe_open(path, framework="np") as file:
            futures = file.get_slice("futures")
            return np.stack([futures[row : row + 1, :, -1][0] for row in rows])


def read_predictions(bank: Bank | TrafficBank, name: str) -> Predictions:
    """All evidence of one geometry, checked against the bank and against its own hashes."""
    stored = Stored(bank, name)
    arrays = stacked(stored.folder, map(stored.block, bank.blocks), len(bank))
    parts = {n.removeprefix(PART): a for n, a in arrays.items() if n.startswith(PART)}
    return Predictions(arrays["cost"], arrays["goal"], arrays.get("futures"), stored.weights, parts)


def shard_of(block: int) -> str:
    """File of a block."""
    return f"block-{block:06d}.safetensors"


@lru_cache(maxsize=1)
def _on_device(of: Predicting) -> Geometry:
    """The geometry on its device; moved once per worker."""
    same_arithmetic(of.arithmetic, of.device)
    own: Geometry = of.geometry
    return placed(own, of.device) if isinstance(own, torch.nn.Module) else own


def _shard(decisions: Decisions, of: Predicting) -> Arrays:
    """The arrays of one block."""
    with threads_for(of.device):
        return _arrays(_on_device(of), decisions, of)


def _arrays(geometry: Geometry, decisions: Decisions, of: Predicting) -> Arrays:
    p = predict(geometry, of.scene, decisions, device=of.device)
    short = getattr(geometry, "summary", None)
    ends, goal = p.futures, p.goal
    if of.stored == "summary" and short is not None:
        ends, goal = short(p.futures[:, :, -1:]), short(p.goal)
    arrays: Arrays = {
        "cost": p.cost.cpu().numpy().astype(np.float32),
        "goal": goal.cpu().numpy().astype(np.float16),
    }
    if of.stored != "false":
        arrays["futures"] = ends.cpu().numpy().astype(np.float16)
    parts = getattr(geometry, "parts", None)
    for name, part in ({} if parts is None else parts(p.futures, p.goal)).items():
        arrays[PART + name] = part.cpu().numpy().astype(np.float32)
    return arrays
