"""The decision record: the candidates, every score, the choice, and the gate.

One JSON file holds N decisions. `djepa decide` and `djepa control` write it, `djepa audit` and the
inspector read it, and other programs can do both: `schema()` is its JSON schema
(docs/decision-record.json).

Legend: N decisions, K candidates.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from djepa.align.fit import Decision
from djepa.align.gates import Gate
from djepa.artefacts.claim import DECISIONS, claim_file
from djepa.artefacts.records import LARGEST, decode, read_bytes
from djepa.artefacts.store import locate
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence
from djepa.evidence.ranks import best
from djepa.files import to_json, write_atomically


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
    format: Literal["djepa-decisions"] = "djepa-decisions"
    version: Literal[1] = 1


def record(evidence: Evidence, decision: Decision, gate: Gate) -> list[DecisionRecord]:
    """Records of decisions that an alignment made of this evidence; no outcome is known yet."""
    advantage = gate.advantage(decision.base, decision.refined, evidence.ids).tolist()
    kept = evidence.ids.gather(1, best(decision.base, evidence.ids)[:, None])[:, 0].tolist()
    found, costs = [], {name: evidence.cost(name) for name in evidence.names}
    for i, start in enumerate(evidence.identities):
        scorers = [Scorer(name, tuple(cost[i].tolist())) for name, cost in costs.items()]
        base, refined = decision.base[i].tolist(), decision.refined[i].double().tolist()
        scorers += [
            Scorer(_free("base", evidence), tuple(base), kind="base"),
            Scorer(_free("aligned", evidence), tuple(refined), kind="aligned"),
        ]
        found.append(
            DecisionRecord(
                start,
                tuple(evidence.ids[i].tolist()),
                int(decision.choice[i]),
                tuple(decision.order[i].tolist()),
                tuple(scorers),
                GateState(bool(decision.opened[i]), advantage[i], gate.threshold, kept[i]),
            )
        )
    return found


def _free(name: str, evidence: Evidence) -> str:
    """A name for one of our scores that no geometry has."""
    return f"{name} score" if name in evidence.names else name


def write_decisions(
    path: Path | str,
    decisions: Iterable[DecisionRecord | str],
    made_from: Mapping[str, str] | None = None,
) -> None:
    """Write decisions to one file atomically; only one is in memory at a time.

    They may already be `encoded`. A file of another kind is not overwritten.
    """
    empty = Decisions((), dict(made_from or {}))
    before, _, after = _text(empty).partition("[]")

    def parts() -> Iterator[bytes]:
        yield f"{before}[".encode()
        between, end = "\n  ", ""
        for one in decisions:
            yield (between + (one if isinstance(one, str) else encoded(one))).encode()
            between, end = ",\n  ", "\n "
        yield f"{end}]{after}".encode()

    claim_file(path, DECISIONS)
    write_atomically(locate(path), parts())


def encoded(decision: DecisionRecord) -> str:
    """A record as JSON text."""
    return _text(decision).rstrip().replace("\n", "\n  ")


def _text(value: Decisions | DecisionRecord) -> str:
    return to_json(msgspec.to_builtins(value), strict=True)


def read_decisions(path: Path | str) -> Decisions:
    """A file of decisions, strictly: an unknown field or a contradiction is an error."""
    path = locate(path)
    found = decode(path, read_bytes(path, LARGEST), Decisions, whole=False)  # from any program
    if len({one.start for one in found.decisions}) < len(found.decisions):
        raise DjepaError(f"{path}: a start stands twice.")
    return found


def schema() -> dict[str, Any]:
    """The JSON schema of the file."""
    return msgspec.json.schema(Decisions)
