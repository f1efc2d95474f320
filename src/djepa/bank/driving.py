"""Banks of driving scenes: what may be known before execution, and apart from it what it showed.

    BANK/
      manifest.json                      configuration, blocks, SHA-256 of every shard
      decision/block-000000.safetensors  candidates, what a model sees, judgements in forecasts
      outcome/block-000000.safetensors   PDMS and its parts; deciding never opens these

Legend: N scenes, K candidates.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy.typing as npt

from djepa.artefacts.folder import Arrays, Folder, encode, load_arrays, stacked
from djepa.artefacts.records import Kind
from djepa.artefacts.write import Writer
from djepa.errors import DjepaError
from djepa.pools.driving import Vocabulary
from djepa.rollout.driving import PARTS, TrafficConfig, TrafficWork, run_traffic, scenes_in
from djepa.rollout.engine import Engine
from djepa.worlds.traffic.scene import Scene

Array = npt.NDArray[Any]
KINDS = ("decision", "outcome")


class TrafficRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the manifest says."""

    config: TrafficConfig
    blocks: list[dict[str, int]] = []


TRAFFIC = Kind(
    "bank of driving scenes",
    "djepa-traffic",
    2,
    TrafficRecord,
    shards=rf"({'|'.join(KINDS)})/block-\d{{6}}\.safetensors",
    again="Remove it, and the scenes are made again.",
)


@dataclass(frozen=True, eq=False)
class Known:
    """What may be known before execution."""

    place: Array  # (N, 2) log and place in it
    identity: Array  # (N, 32) uint8
    log: Array  # (N, 32) uint8: a hash of its name
    ids: Array  # (N, K)
    poses: Array  # (N, K, 8, 3)
    ego: Array  # (N, 6)
    frame: Array  # (N, C, S, S) uint8
    straight: Array  # (N, K, 8) PARTS in a forecast of traffic at constant velocity
    lanes: Array  # (N, K, 8) in one where vehicles keep to their lanes
    rules: Array  # (N, K, 8) means over several where they drive by the rules of the road

    @property
    def names(self) -> tuple[str, ...]:
        """N names LOG@SCENE: scenes of one log are one start in several looks."""
        pairs = zip(self.log, self.identity, strict=True)
        return tuple(f"{bytes(a).hex()[:16]}@{bytes(b).hex()[:16]}" for a, b in pairs)


class TrafficBank:
    """A finished bank."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._folder = Folder(path, TRAFFIC)
        record: TrafficRecord = self._folder.about
        self.config, self.hash = record.config, self._folder.hash
        self.manifest = self._folder.manifest.about
        self.blocks = range(len(self.manifest["blocks"]))

    def __len__(self) -> int:
        return sum(block["starts"] for block in self.manifest["blocks"])

    @property
    def candidates(self) -> int:
        """K."""
        return int(self.known.ids.shape[1])

    @cached_property
    def known(self) -> Known:
        """Opens no outcome."""
        return Known(**self._read("decision"))

    @cached_property
    def parts(self) -> dict[str, Array]:
        """Name -> (N, K) what execution showed: PDMS and its parts."""
        found = self._read("outcome")["parts"]
        return {name: found[..., i] for i, name in enumerate(PARTS)}

    def scene(self, row: int, folder: Path | None = None) -> Scene:
        """The scene itself, made or read again."""
        log, place = self.known.place[row].tolist()
        return scenes_in(self.config, log, folder)[place]

    def _read(self, kind: str) -> Arrays:
        names = sorted(n for n in self._folder.manifest.files if n.startswith(f"{kind}/"))
        shards = (load_arrays(self.path / name, self._folder.read(name)) for name in names)
        return stacked(self.path, shards, len(self))


def collect_traffic(
    path: Path,
    config: TrafficConfig,
    engine: Engine,
    vocabulary: Vocabulary,
    view: Callable[[Scene], Array],
    folder: Path | None = None,
) -> TrafficBank:
    """Execute all candidates of all scenes into the bank at `path`, or finish what is there."""
    writer, begun = Writer(path, TRAFFIC, {"config": asdict(config)}), dict[int, int]()
    with writer.opened():
        if not writer.complete:
            begun = {piece.note["block"]: piece.note["starts"] for piece in writer.pieces}
            missing = [block for block in range(config.blocks) if block not in begun]
            items = ((b, TrafficWork(config, b, vocabulary, view, folder)) for b in missing)
            for block, found in engine.map(run_traffic, items):
                scenes = len(found["decision"].get("ids", ()))
                files = {
                    f"{kind}/block-{block:06d}.safetensors": encode(arrays)
                    for kind, arrays in found.items()
                    if arrays
                }
                writer.write(files, {"block": block, "starts": scenes})
                begun[block] = scenes
            blocks = [{"starts": begun[block]} for block in sorted(begun) if begun[block]]
            if not blocks:
                raise DjepaError("No scene was found: no car could be the ego.")
            writer.finish({**writer.about, "blocks": blocks})
    return TrafficBank(path)
