"""What decides a bank: an alignment or a planner, some starts after the other.

Memory does not grow with the bank: a part is read, decided and let go of.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from djepa.align.fit import Alignment, Decision, at_once
from djepa.align.gates import Gate
from djepa.align.store import alignment_hash, load_alignment
from djepa.artefacts.records import read_bytes, sha256
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence
from djepa.lift.planner import load_planner


@dataclass(frozen=True, eq=False)
class Decider:
    """What was loaded, and what it reads."""

    alignment: Alignment
    gate: Gate
    decide: Callable[[Evidence], Decision]
    names: tuple[str, ...]  # geometries whose costs it reads
    ends: tuple[str, ...]  # and whose last latents
    hashes: dict[str, str] = field(default_factory=dict)  # what -> its hash

    def evidence(self, bank: Bank) -> Evidence:
        """All that it reads of a bank."""
        return Evidence.from_bank(bank, self.names, self.ends)


def load_decider(path: Path) -> Decider:
    """A folder that `djepa fit` wrote, or a file that `djepa export` wrote."""
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


def decide_bank(bank: Bank, decider: Decider) -> Iterator[tuple[Evidence, Decision]]:
    """Every start of a bank; parts are whole batches of the operator, so that all rounds alike."""
    seen = set[str]()
    for part in bank.parts(at_once(bank.candidates)):
        evidence = decider.evidence(part)
        before = len(seen)
        seen.update(evidence.identities)
        if len(seen) < before + len(evidence):
            raise DjepaError("A start ID stands twice; every start has one of its own.")
        yield evidence, decider.decide(evidence)
