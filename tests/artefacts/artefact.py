"""A folder of some kind, how it is read, and the types of what its records leave open."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from djepa.align.fit import AlignConfig
from djepa.artefacts.records import Kind, sha256
from djepa.evidence.fusion import Fusion
from djepa.models.lewm import LeWMConfig
from djepa.models.tdjepa import PlanningCost


@dataclass
class Artefact:
    """A folder of one kind and all that is read from it."""

    kind: Kind | None  # of what its manifest, or the head of its file, says
    path: Path
    read: Callable[[], Any]
    sealed: str = ""  # the one file, if it stands alone
    types: dict[str, type] = field(default_factory=dict)  # of records, where the kind says less
    known: tuple[str, ...] = ()  # parts of a record that other kinds have too
    within: Path | None = None  # what it lies in, where errors name that

    def named(self, error: Exception) -> bool:
        """Whether an error says which folder it is about."""
        return str(self.within or self.path) in str(error)

    @property
    def files(self) -> list[Path]:
        return sorted(file for file in self.path.rglob("*") if file.is_file())


def rehashed(manifest: Path, name: str, data: bytes) -> bytes:
    """What a careless tool might do: record the hash of what it finds."""
    stated = json.loads(manifest.read_text())
    stated["files"][name] = sha256(data)
    if stated.get("sizes"):
        stated["sizes"][name] = len(data)
    return json.dumps(stated).encode()


class TypedGeometry(msgspec.Struct):
    """`config.json` of weights of a TD-JEPA."""

    geometry: str
    config: LeWMConfig
    planning: PlanningCost


class TypedReport(msgspec.Struct):
    """How an alignment of ranks was fitted."""

    starts: int
    skipped: int
    fusion: Fusion
    losses: tuple[float, ...]


class TypedAlignment(msgspec.Struct):
    """`config.json` of such an alignment."""

    align: AlignConfig
    report: TypedReport
    inputs: int


class TypedComposition(msgspec.Struct):
    """`composition.json` of a suite."""

    threshold: float
    bank: str


class TypedPlanner(msgspec.Struct):
    """What pools at visited states need of their planner."""

    weights: dict[str, str]


class TypedVisits(msgspec.Struct):
    """What the manifest says of them."""

    planner: TypedPlanner
