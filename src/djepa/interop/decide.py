"""Decisions on a bank by an alignment or a planner, part by part.

A part is read, decided and freed, so memory does not grow with the bank.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from djepa.align.fit import Alignment, Decision, at_once
from djepa.align.gates import Gate
from djepa.align.shift import Shift, admit, compare_evidence
from djepa.align.store import alignment_hash, load_alignment
from djepa.artefacts.records import read_bytes, sha256
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence
from djepa.evidence.ranks import best
from djepa.interop.record import DecisionRecord, GateState, Scorer, encoded
from djepa.lift.planner import load_planner
from djepa.rollout.engine import Engine, in_order
from djepa.threads import one_thread


@dataclass(frozen=True, eq=False)
class Decider:
    """A loaded alignment or planner, and its inputs."""

    alignment: Alignment
    gate: Gate
    decide: Callable[[Evidence], Decision]
    names: tuple[str, ...]  # geometries whose costs it reads
    ends: tuple[str, ...]  # geometries whose last latents it reads
    hashes: dict[str, str] = field(default_factory=dict)  # what -> its hash

    def evidence(self, bank: Bank) -> Evidence:
        """The evidence that it reads, from a bank."""
        return Evidence.from_bank(bank, self.names, self.ends)


class Decided(NamedTuple):
    """A decided part: number of starts, number of open gates, records as text."""

    starts: int
    opened: int
    records: list[str]


def load_decider(path: Path) -> Decider:
    """Load a folder that `djepa fit` wrote, or a file that `djepa export` wrote."""
    if path.is_file():
        planner = load_planner(path)
        hashes = {"planner": sha256(read_bytes(path))}
        if planner.composition is not None:
            hashes["composition"] = planner.composition.hash
        reads = (planner.read, planner.ends)
        return Decider(planner.alignment, planner.gate, planner.decide, *reads, hashes)
    alignment = load_alignment(path)
    if alignment.gate is None:
        raise DjepaError(f"{path} holds no gate: fit and calibrate it again.")
    hashes, c = {"alignment": alignment_hash(path)}, alignment.config
    return Decider(alignment, alignment.gate, alignment.decide, c.geometries, c.latents, hashes)


def compared(decider: Decider, calibration: Bank, bank: Bank) -> Shift:
    """Compare the evidence of a bank with that of the calibration, part by part."""
    return compare_evidence(decider.alignment, *_both(decider, calibration, bank))


def admitted(decider: Decider, calibration: Bank, bank: Bank) -> tuple[Decider, Shift]:
    """The decider for a bank, with the gate kept closed if the evidence differs; and the shift."""
    if "composition" in decider.hashes:
        raise DjepaError(
            "A planner that composes has another gate than the one that is admitted. Give the "
            "folder of its alignment, or leave --admit out."
        )
    alignment, found = admit(decider.alignment, *_both(decider, calibration, bank))
    assert alignment.gate is not None
    changed = replace(decider, alignment=alignment, gate=alignment.gate, decide=alignment.decide)
    return changed, found


def _both(decider: Decider, *banks: Bank) -> Iterator[Iterator[Evidence]]:
    """The evidence of each bank, in the parts in which it is decided."""
    return (map(decider.evidence, one.parts(at_once(one.candidates))) for one in banks)


def decide_bank(bank: Bank, decider: Decider) -> Iterator[tuple[Evidence, Decision]]:
    """Every start of a bank; parts are whole batches of the operator, so that rounding is equal."""
    for evidence in _parts(bank, decider):
        yield evidence, decider.decide(evidence)


def decide_with(
    engine: Engine, bank: Bank, decider: Decider, recorded: bool = True
) -> Iterator[Decided]:
    """`decide_bank` in the workers of an engine, each part by one thread, with optional records."""
    items = enumerate(_parts(bank, decider))
    yield from in_order(engine.map(_decide, items, (decider, recorded)))


def _decide(evidence: Evidence, shared: tuple[Decider, bool]) -> Decided:
    decider, recorded = shared
    with one_thread():
        decision = decider.decide(evidence)
        found = record(evidence, decision, decider.gate) if recorded else []
    return Decided(len(evidence), int(decision.opened.sum()), [encoded(one) for one in found])


def _parts(bank: Bank, decider: Decider) -> Iterator[Evidence]:
    seen = set[str]()
    for part in bank.parts(at_once(bank.candidates)):
        evidence = decider.evidence(part)
        before = len(seen)
        seen.update(evidence.identities)
        if len(seen) < before + len(evidence):
            raise DjepaError("A start ID stands twice; every start has one of its own.")
        yield evidence


def record(evidence: Evidence, decision: Decision, gate: Gate) -> list[DecisionRecord]:
    """Records of decisions that an alignment made of this evidence; no outcome is known yet."""
    advantage = gate.advantage(decision.base, decision.refined, evidence.ids).tolist()
    kept = evidence.ids.gather(1, best(decision.base, evidence.ids)[:, None])[:, 0].tolist()
    found = []
    for i, start in enumerate(evidence.identities):
        scorers = [Scorer(n, tuple(evidence.cost(n)[i].tolist())) for n in evidence.names]
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
