"""Propose, execute and judge the candidates of driving scenes.

A block of logs is one unit of work; its result depends on the configuration alone. Generated
logs come from seeds, recorded ones from files. Legend: N scenes of the block, K candidates.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.artefacts.records import read_bytes, sha256
from djepa.checks import check_int
from djepa.errors import DjepaError
from djepa.pools.driving import Vocabulary, propose
from djepa.worlds.traffic.contacts import Where, collisions
from djepa.worlds.traffic.execute import execute
from djepa.worlds.traffic.forecast import FORECASTS
from djepa.worlds.traffic.generate import make_log, scenes_of
from djepa.worlds.traffic.judge import RULE, Judge, Judgement, judge_states, locate, route_progress
from djepa.worlds.traffic.plane import Array
from djepa.worlds.traffic.read import (
    READERS,
    files_of,
    is_recording,
    moment_of,
    read_recording,
)
from djepa.worlds.traffic.recording import Recording, cut, egos
from djepa.worlds.traffic.reference import progress_of, reference_drive
from djepa.worlds.traffic.rules import by_rules
from djepa.worlds.traffic.scene import AHEAD, Scene

Arrays = dict[str, npt.NDArray[Any]]
PARTS = ("pdms", "nc", "dac", "ttc", "ep", "comfort", "ddc", "progress")
RECORDED = "recorded"  # the split of scenes from files
FURTHER = "recorded-further"  # the split of the other cars in the same files
EACH = 6  # cars of a recorded log in RECORDED


@dataclass(frozen=True)
class TrafficConfig:
    """Everything that the bytes of a bank depend on."""

    split: str
    logs: int
    per_log: int = 3  # scenes per log at most; in a recorded log evenly among its cars
    seed: int = 0
    block: int = 8  # logs per block
    files: tuple[tuple[str, str], ...] = ()  # names and hashes of recorded logs
    vocabulary: str = ""  # hash of the motions that candidates come from
    world: str = "traffic"
    rule: str = RULE

    def __post_init__(self) -> None:
        for name, least in {"logs": 1, "per_log": 1, "seed": 0, "block": 1}.items():
            check_int(name, getattr(self, name), least)
        if self.files and self.logs > len(self.files):
            raise DjepaError(f"There are {len(self.files)} recorded logs, not {self.logs}.")

    @property
    def shape(self) -> str:
        """The source of the roads."""
        return RECORDED if self.files else "generated"

    @property
    def profile(self) -> str:
        """The number of logs, and of scenes per log, as text."""
        return f"{self.logs}x{self.per_log}"

    @property
    def starts(self) -> int:
        """Scenes of generated logs, at most."""
        return self.logs * self.per_log

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return -(-self.logs // self.block)

    def members(self, block: int) -> range:
        """Logs of a block."""
        return range(block * self.block, min((block + 1) * self.block, self.logs))


@dataclass(frozen=True)
class TrafficWork:
    """One block to execute."""

    config: TrafficConfig
    block: int
    vocabulary: Vocabulary
    view: Callable[[Scene], npt.NDArray[np.uint8]]  # what the native model sees
    folder: Path | None = None  # of recorded logs


def recorded_files(folder: Path) -> tuple[tuple[str, str], ...]:
    """Names and hashes of all recordings in a folder, by name: files, and folders of Argoverse 2.

    The hash of a folder covers the hashes and names of the files that are read.
    """
    names = sorted(p.name for p in folder.glob("*") if is_recording(p))
    if not names:
        known = ", ".join(READERS)
        raise DjepaError(
            f"{folder} holds no recorded traffic: no file ends in {known}, and no folder in it "
            "is a log of Argoverse 2 with annotations."
        )
    return tuple((name, _hash(folder / name)) for name in names)


def _hash(path: Path) -> str:
    if not path.is_dir():
        return sha256(read_bytes(path))
    files = {file.relative_to(path).as_posix(): file for file in files_of(path)}
    lines = (f"{sha256(read_bytes(file))} {name}\n" for name, file in sorted(files.items()))
    return sha256("".join(lines).encode())


@lru_cache(maxsize=4)
def scenes_in(config: TrafficConfig, log: int, folder: Path | None = None) -> tuple[Scene, ...]:
    """The scenes of one log."""
    if not config.files:
        return tuple(scenes_of(make_log(config.split, log, config.seed), config.per_log))
    if folder is None:
        raise DjepaError("Recorded scenes are read again from their files: give their folder.")
    recording = _recording(config, log, folder)
    before = _shown_before(config, log, folder)
    rows = [row for row in egos(recording) if recording.ids[row] not in before]
    return tuple(cut(recording, rows[i]) for i in _places(config, len(rows)))


def _places(config: TrafficConfig, cars: int) -> list[int]:
    """Indices of the cars of a recorded log: an even selection, or all others."""
    each = EACH if config.split == FURTHER else config.per_log
    spread = np.unique(np.linspace(0, cars - 1, min(each, cars)).round().astype(int)).tolist()
    if config.split != FURTHER:
        return spread
    return [i for i in range(cars) if i not in spread][: config.per_log]


def _recording(config: TrafficConfig, log: int, folder: Path) -> Recording:
    name, expected = config.files[log]
    if _hash(folder / name) != expected:
        raise DjepaError(f"{folder / name} is not the file that was judged before.")
    return read_recording(folder / name)


def _shown_before(config: TrafficConfig, log: int, folder: Path) -> set[str]:
    """Cars that are egos of an earlier recording of the same take at overlapping times.

    Recordings of a take show the same cars. If two begin at most 5 s apart, a car that can be the
    ego in both would count twice: only the earlier recording counts.
    """
    moments = _moments(config.files, folder)
    here, found = moments[log], set[str]()
    if here is None:
        return found
    for other, there in enumerate(moments):
        if there is None or there[0] != here[0] or (there[1], other) >= (here[1], log):
            continue
        if here[1] - there[1] <= AHEAD:
            recording = _recording(config, other, folder)
            found.update(recording.ids[row] for row in egos(recording))
    return found


@lru_cache(maxsize=4)
def _moments(
    files: tuple[tuple[str, str], ...], folder: Path
) -> tuple[tuple[str, int] | None, ...]:
    return tuple(moment_of(folder / name) for name, _ in files)


def run_traffic(work: TrafficWork) -> dict[str, Arrays]:
    """Arrays of one block by kind: known before execution, and outcomes."""
    rows = [
        _scene(work, log, place, scene)
        for log in work.config.members(work.block)
        for place, scene in enumerate(scenes_in(work.config, log, work.folder))
    ]
    return {kind: _stacked([row[kind] for row in rows]) for kind in ("decision", "outcome")}


def _scene(work: TrafficWork, log: int, place: int, scene: Scene) -> dict[str, Arrays]:
    poses = propose(work.vocabulary, scene)
    states = execute(scene.ego, poses)
    where = locate(scene, states)  # the same in every forecast
    decision = {
        "place": np.array([log, place]),
        "identity": _identity(scene),
        "log": _digest(scene.log),
        "ids": np.arange(len(poses)),
        "poses": poses,
        "ego": scene.ego,
        "frame": work.view(scene),
        **_forecasts(scene, states, where),
    }
    return {
        "decision": decision,
        "outcome": {"parts": _parts(Judge(scene).of_states(states, where))},
    }


def _forecasts(scene: Scene, states: Array, where: Where) -> Arrays:
    """Name -> (K, 8) judgement in each forecast; the reference driver sees only the present."""
    made = {name: forecast(scene) for name, forecast in FORECASTS.items()}
    present = made["straight"]
    drive = reference_drive(present, present.future)
    found = {}
    for name, one in made.items():
        reference = progress_of(one, one.future, drive)
        found[name] = _parts(judge_states(one, one.future, states, reference, where))
    found["rules"] = _expected(present, states, where, drive)
    return found


def _expected(present: Scene, states: Array, where: Where, drive: Array) -> Array:
    """(K, 8) means over sampled forecasts; only NC and TTC depend on the forecast."""
    most = float(route_progress(present, drive)[0])
    known = judge_states(present, present.future[:0], states, most, where)
    futures = by_rules(present, present.future)
    seen = (collisions(present, one, states, where) for one in futures)
    parts = [_parts(replace(known, nc=nc, ttc=ttc)) for nc, ttc in seen]
    return np.mean(parts, 0)


def _parts(judged: Judgement) -> npt.NDArray[np.float64]:
    """(K, 8) the judgement in the order of PARTS."""
    return np.stack([getattr(judged, name) for name in PARTS], 1)


def _digest(text: str) -> npt.NDArray[np.uint8]:
    return np.frombuffer(bytes.fromhex(sha256(text.encode())), np.uint8)


def _identity(scene: Scene) -> npt.NDArray[np.uint8]:
    """(32,) hash of name, ego and traffic up to now: equal only for the same decision."""
    content = scene.name.encode() + scene.ego.tobytes() + scene.past.tobytes()
    return np.frombuffer(bytes.fromhex(sha256(content)), np.uint8)


def _stacked(rows: list[Arrays]) -> Arrays:
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]} if rows else {}
