"""Banks of driving scenes: what may be known before execution, and separately its outcomes.

    BANK/
      manifest.json                      configuration, blocks, SHA-256 of every shard
      decision/block-000000.safetensors  candidates, what a model sees, judgements in forecasts
      outcome/block-000000.safetensors   PDMS and its parts; deciding never opens these

Legend: N scenes, K candidates, C channels and S pixels of what the native model sees.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from djepa.artefacts.folder import Arrays, Folder
from djepa.artefacts.layout import Layout
from djepa.artefacts.records import MANIFEST, Kind
from djepa.bank.known import KINDS, read_kind, write_blocks
from djepa.bank.schema import StartsRecord, shard_name
from djepa.errors import DjepaError
from djepa.pools.driving import Vocabulary
from djepa.rollout.driving import PARTS, TrafficConfig, TrafficWork, run_traffic, scenes_in
from djepa.rollout.engine import Engine
from djepa.worlds.traffic.scene import Scene

Array = npt.NDArray[Any]
JUDGED = ("float64", f"N K {len(PARTS)}")
LAYOUT: dict[str, Layout] = {
    "decision": {
        "place": ("int64", "N 2"),
        "identity": ("uint8", "N 32"),
        "log": ("uint8", "N 32"),
        "ids": ("int64", "N K"),
        "poses": ("float64", "N K 8 3"),
        "ego": ("float64", "N 6"),
        "frame": ("uint8", "N C S S"),
        **dict.fromkeys(("straight", "lanes", "rules"), JUDGED),
    },
    "outcome": {"parts": JUDGED},
}


class TrafficRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the manifest says."""

    config: TrafficConfig
    blocks: list[StartsRecord]  # only blocks with scenes


TRAFFIC = Kind(
    "bank of driving scenes",
    "djepa-traffic",
    2,
    TrafficRecord,
    shards=rf"({'|'.join(KINDS)})/block-(?P<block>\d{{6}})\.safetensors",
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
    lanes: Array  # (N, K, 8) PARTS in a forecast where vehicles keep to their lanes
    rules: Array  # (N, K, 8) mean PARTS over forecasts where they follow the rules of the road

    @property
    def names(self) -> tuple[str, ...]:
        """N names LOG@SCENE: scenes of one log count as looks of one start."""
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
        self.blocks = range(len(record.blocks))
        self._numbers = _numbers(self._folder)

    def __len__(self) -> int:
        return sum(block["starts"] for block in self.manifest["blocks"])

    @property
    def candidates(self) -> int:
        """K, the number of candidates per scene."""
        return int(self.known.ids.shape[1])

    @cached_property
    def known(self) -> Known:
        """Everything known before execution. Opens no outcome."""
        return Known(**self._read("decision"))

    @cached_property
    def parts(self) -> dict[str, Array]:
        """Name -> (N, K) outcomes: PDMS and its parts."""
        found = self._read("outcome")["parts"]
        return {name: found[..., i] for i, name in enumerate(PARTS)}

    def scene(self, row: int, folder: Path | None = None) -> Scene:
        """The scene of a row, generated or read again."""
        log, place = self.known.place[row].tolist()
        return scenes_in(self.config, log, folder)[place]

    def _read(self, kind: str) -> Arrays:
        scenes = (block["starts"] for block in self.manifest["blocks"])
        blocks = dict(zip(self._numbers, scenes, strict=True))
        return read_kind(self._folder, kind, LAYOUT, blocks, self._complaint)

    def _complaint(self, number: int, arrays: Arrays) -> str:
        logs, most = self.config.members(number), (0, self.config.per_log)
        ends, found = np.array([[logs.start, logs.stop], most]).T, arrays["place"]
        places = [tuple(place) for place in found.tolist()]
        inside = (found >= ends[0]).all() and (found < ends[1]).all()
        fine = inside and places == sorted(set(places))
        return "" if fine else "does not hold scenes of its logs"


def _numbers(folder: Folder) -> list[int]:
    """Numbers of the blocks with scenes; files and configuration must agree."""
    config: TrafficConfig = folder.about.config
    found = map(re.compile(TRAFFIC.shards).fullmatch, folder.manifest.files)
    numbers = sorted({int(of["block"]) for of in found if of})
    blocks = dict(zip(numbers, folder.about.blocks, strict=False))
    fits = len(blocks) == len(numbers) == len(folder.about.blocks) > 0
    fits = fits and numbers[-1] < config.blocks
    fits = fits and {*folder.manifest.files} == {shard_name(k, b) for k in KINDS for b in numbers}
    if not fits or not all(
        1 <= of.starts <= config.per_log * len(config.members(number))
        for number, of in blocks.items()
    ):
        raise DjepaError(
            f"{folder.path / MANIFEST}: its blocks are not those of its configuration. "
            f"{TRAFFIC.again}"
        )
    _check_left_out(folder, config, numbers)
    return numbers


def _check_left_out(folder: Folder, config: TrafficConfig, numbers: list[int]) -> None:
    """Check that blocks without files have no scene; generated ones are made again.

    They are rare. The first that has a scene is an error.
    """
    shown = set(numbers)
    left = (number for number in range(config.blocks) if number not in shown)
    logs = (log for number in left for log in config.members(number))
    if not config.files and any(scenes_in(config, log) for log in logs):
        raise DjepaError(
            f"{folder.path / MANIFEST} does not list all blocks of its configuration. "
            f"{TRAFFIC.again}"
        )


def collect_traffic(
    path: Path,
    config: TrafficConfig,
    engine: Engine,
    vocabulary: Vocabulary,
    view: Callable[[Scene], Array],
    folder: Path | None = None,
) -> TrafficBank:
    """Execute all candidates of all scenes into the bank at `path`; resumes a partial bank."""

    def work(block: int) -> TrafficWork:
        return TrafficWork(config, block, vocabulary, view, folder)

    nothing = "No scene was found: no car could be the ego."
    write_blocks(path, TRAFFIC, config, engine, run_traffic, work, nothing)
    return TrafficBank(path)
