"""The decision record: the candidates, every score, the choice, and the gate.

One JSON file holds N decisions. `djepa decide` and `djepa control` write it, `djepa audit` and the
inspector read it, and other programs can do both: `schema()` is its JSON schema
(docs/decision-record.json).

Legend: N decisions, K candidates.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from djepa.artefacts.claim import DECISIONS, claim_file
from djepa.artefacts.records import LARGEST, decode, read_bytes
from djepa.artefacts.store import locate
from djepa.errors import DjepaError
from djepa.files import to_json, write_atomically

OWN_HASH = msgspec.Meta(
    pattern="^[0-9a-f]{64}$",
    description="SHA-256 of the file as djepa writes it, without this line; may be absent.",
)


class Scorer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one scorer said of all K candidates, in the order of `candidates`."""

    name: str
    scores: tuple[float, ...]
    direction: Literal["lower", "higher"] = "lower"  # which scores are better
    kind: Literal["model", "base", "aligned"] = "model"  # native cost, or a score of the alignment

    @property
    def cost(self) -> tuple[float, ...]:
        """(K) the scores as costs: lower is better."""
        return self.scores if self.direction == "lower" else tuple(-x for x in self.scores)


class GateState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether the aligned choice passed: it does if `advantage` is above `threshold`."""

    opened: bool
    advantage: float
    threshold: float
    base_choice: int  # chosen if the gate is closed


class Outcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What executing the choice showed."""

    success: bool
    cost: float | None = None
    rule: str = ""  # name of the success rule


class DecisionRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One decision."""

    start: str
    candidates: tuple[int, ...]  # K IDs
    choice: int
    order: tuple[int, ...]  # IDs, best first
    scorers: tuple[Scorer, ...]
    gate: GateState | None = None  # if there is one
    outcome: Outcome | None = None  # once it was executed

    def __post_init__(self) -> None:
        """Refuse a record that contradicts itself."""
        known, where = set(self.candidates), f"decision {self.start[:16]}"
        if len(known) < len(self.candidates) or not known:
            raise DjepaError(f"{where}: candidates must be IDs, each once.")
        if sorted(self.order) != sorted(known) or self.order[0] != self.choice:
            raise DjepaError(f"{where}: order must hold every candidate once, the choice first.")
        if len({one.name for one in self.scorers}) < len(self.scorers):
            raise DjepaError(f"{where}: a scorer stands twice.")
        for one in self.scorers:
            if len(one.scores) != len(known):
                raise DjepaError(
                    f"{where}: {one.name} has {len(one.scores)} scores for {len(known)} candidates."
                )
            if not all(map(math.isfinite, one.scores)):
                raise DjepaError(f"{where}: {one.name} holds a NaN or an infinity.")
        if self.gate and self.gate.base_choice not in known:
            raise DjepaError(f"{where}: the base choice is no candidate.")


class Decisions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a file holds."""

    decisions: tuple[DecisionRecord, ...]
    made_from: dict[str, str] = {}  # input -> its hash
    sha256: Annotated[str, OWN_HASH] | None = None
    format: Literal["djepa-decisions"] = "djepa-decisions"
    version: Literal[1] = 1


def write_decisions(
    path: Path | str,
    decisions: Iterable[DecisionRecord | str],
    made_from: Mapping[str, str] | None = None,
) -> None:
    """Write decisions to one file atomically; only one is in memory at a time.

    They may already be `encoded`. A file of another kind is not overwritten. The file holds the
    SHA-256 of its other lines.
    """

    def parts() -> Iterator[bytes]:
        digest = hashlib.sha256()
        *frame, last = _frame(made_from or {})
        for part in _lines(decisions, *frame):
            digest.update(part)
            yield part
        digest.update(last)
        yield f' "sha256": "{digest.hexdigest()}",\n'.encode() + last

    claim_file(path, DECISIONS)
    write_atomically(locate(path), parts())


def content_hash(given: Decisions) -> str:
    """SHA-256 of the lines that `write_decisions` writes of this, other than the hash."""
    *frame, last = _frame(given.made_from)
    digest = hashlib.sha256()
    for part in (*_lines(given.decisions, *frame), last):
        digest.update(part)
    return digest.hexdigest()


def _frame(made_from: Mapping[str, str]) -> tuple[bytes, bytes, bytes]:
    """What a file holds before its decisions, between them and the hash, and after the hash."""
    rest = msgspec.to_builtins(Decisions((), dict(made_from)))
    del rest["sha256"]
    before, _, after = to_json(rest, strict=True).partition("[]")
    between, last, end = after.rpartition(' "version"')
    return f"{before}[".encode(), f"]{between}".encode(), f"{last}{end}".encode()


def _lines(
    decisions: Iterable[DecisionRecord | str], before: bytes, after: bytes
) -> Iterator[bytes]:
    """The text of a file up to its hash."""
    yield before
    between, end = "\n  ", ""
    for one in decisions:
        yield (between + (one if isinstance(one, str) else encoded(one))).encode()
        between, end = ",\n  ", "\n "
    yield end.encode() + after


def encoded(decision: DecisionRecord) -> str:
    """A record as JSON text, with the types that it has when it is read: 1 as a score is 1.0."""
    try:
        same = msgspec.convert(msgspec.to_builtins(decision), DecisionRecord)
    except msgspec.ValidationError as error:
        raise DjepaError(f"decision {decision.start[:16]}: {error}.") from None
    text = to_json(msgspec.to_builtins(same), strict=True)
    return text.rstrip().replace("\n", "\n  ")


def read_decisions(path: Path | str) -> Decisions:
    """A file of decisions, strictly: an unknown field or a contradiction is an error.

    So is a hash that is not that of the content. Other programs may leave it out.
    """
    path = locate(path)
    found = decode(path, read_bytes(path, LARGEST), Decisions, whole=False)  # from any program
    if len({one.start for one in found.decisions}) < len(found.decisions):
        raise DjepaError(f"{path}: a start stands twice.")
    if found.sha256 and found.sha256 != content_hash(found):
        raise DjepaError(
            f"{path} was changed after it was written: its sha256 is that of other content. "
            "Restore it or make it again; a program that changes a record leaves sha256 out."
        )
    return found


def schema() -> dict[str, Any]:
    """The JSON schema of the file."""
    return msgspec.json.schema(Decisions)
