"""What the bimanual study fits beside the shared suite: fixed corrections, gates, preservation.

These are fitted for each task separately, on fitting starts (the variant) and calibration starts
(thresholds). The limit on harm is certified for all tasks together, on separate starts.
"""

from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from djepa.align.gates import Gate
from djepa.align.methods import Choice, Chooser, Population, aligned, gated
from djepa.align.preserve import Fixed, Threshold, fit_fixed, fit_threshold
from djepa.align.risk import Guarantee, risk_controlled
from djepa.artefacts.folder import Folder
from djepa.artefacts.records import Kind, encode_json
from djepa.artefacts.write import save as save_folder
from djepa.bank.bimanual import BimanualBank
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence
from djepa.studies.design import Case
from djepa.studies.stages import Say
from djepa.studies.study import Study

PRESERVED, FILE, GATES = "D-JEPA", "gates.json", "gates"
CERTIFIED = "D-JEPA, few harmed"
HARM, CONFIDENCE = 0.05, 0.95  # share of native successes that may be lost; confidence
# Method -> the number of the native chunk that it thresholds, and the sign of the inequality.
SCALARS = {
    "scalar gate": ("doubt", 1),
    "timing gate": ("relation", -1),
    "distance gate": ("distance", 1),
}
Solved = tuple[Tensor, Tensor]  # of keeping the native chunk and of replacing it, (N,) each


class TaskGates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fixed correction and thresholds of one task."""

    fixed: Fixed
    scalars: dict[str, Threshold]
    preserve: Threshold

    def __post_init__(self) -> None:
        if self.scalars.keys() != SCALARS.keys():
            raise DjepaError(f"gates are {', '.join(SCALARS)}, not {', '.join(self.scalars)}")


class GatesRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of gates.json."""

    tasks: dict[str, TaskGates]
    limit: Guarantee

    def __post_init__(self) -> None:
        if not self.tasks:
            raise DjepaError("there are gates of no task")

    def of(self, task: str, folder: Path) -> TaskGates:
        """Fixed correction and thresholds of a task; an error if there are none."""
        if task not in self.tasks:
            known = ", ".join(self.tasks)
            raise DjepaError(
                f"{folder / FILE} has gates of {known}, not of {task}. {GATES_KIND.again}"
            )
        return self.tasks[task]


GATES_KIND = Kind(
    "set of gates",
    "djepa-bimanual-gates",
    2,
    again="Remove it, and it is made again.",
    records={FILE: GatesRecord},
)


def fit_gates(study: Study, group: str, say: Say) -> None:
    """Fit and store the gates of all tasks, unless already stored."""
    if study.place.made(group, GATES):
        return
    say("  fixed corrections and gates")
    folder, tasks = study.place.own(group, GATES), dict[str, TaskGates]()
    fits = {case.name: case for case in study.cases("fit", group)}
    for case in study.cases("calibration", group):
        fit, known = study.population("fit", fits[case.name]), study.population("calibration", case)
        fixed = fit_fixed(fit.evidence.ids, fit.outcomes)
        both = _solved(known, _position(known.evidence, fixed.candidate, folder))
        scalars = {
            name: fit_threshold(_scalar(study, case, of, known.evidence), *both, sign)
            for name, (of, sign) in SCALARS.items()
        }
        ours, gain = _ours(study, group, known.evidence)
        preserve = fit_threshold(gain, *_solved(known, ours.position))
        tasks[case.name] = TaskGates(fixed, scalars, preserve)
    limit = _certify(study, group)
    say(f"  {limit}")
    record: Any = msgspec.to_builtins(GatesRecord(tasks, limit))
    save_folder(folder, GATES_KIND, {FILE: encode_json(folder / FILE, record)})


def choosers(study: Study, case: Case) -> dict[str, Chooser]:
    """Fixed correction, gates, and our choice with the native chunk preserved."""
    folder = study.place.own(case.group, GATES)
    record: GatesRecord = Folder(folder, GATES_KIND).record(FILE)
    gates = record.of(case.name, folder)

    def corrected(e: Evidence) -> Tensor:
        return _position(e, gates.fixed.candidate, folder)

    def fixed(e: Evidence) -> Choice:
        return _chosen(e, corrected(e))

    def thresholded(name: str) -> Chooser:
        def choose(e: Evidence) -> Choice:
            opened = gates.scalars[name].opens(_scalar(study, case, SCALARS[name][0], e))
            return _replaced(e, corrected(e), opened)

        return choose

    def preserved(e: Evidence) -> Choice:
        ours, gain = _ours(study, case.group, e)
        return _replaced(e, ours.position, gates.preserve.opens(gain))

    def certified(e: Evidence) -> Choice:
        return gated(record.limit.gate, *_kept_and_ours(study, case.group, e), e.ids)

    gates_of = {name: thresholded(name) for name in SCALARS}
    return {"fixed correction": fixed, **gates_of, PRESERVED: preserved, CERTIFIED: certified}


def _certify(study: Study, group: str) -> Guarantee:
    """The most permissive gate that turns few successes of the native chunk into failures."""
    every = Population.join([study.population("audit", c) for c in study.cases("audit", group)])
    kept, ours = _kept_and_ours(study, group, every.evidence)
    gate = Gate(mode="refined_gap")  # on the advantage of our choice in our score
    known = (kept, ours, every.evidence.ids, every.outcomes.success)
    return risk_controlled(gate, *known, HARM, CONFIDENCE)


def _kept_and_ours(study: Study, group: str, e: Evidence) -> tuple[Tensor, Tensor]:
    """(N, K) scores by which the native chunk is the best, and our scores."""
    ours = aligned(study.suite(group).alignments["without preservation"])(e)
    return (e.ids != e.ids.amin(1, keepdim=True)).double(), ours.score


def _ours(study: Study, group: str, e: Evidence) -> tuple[Choice, Tensor]:
    """The aligned choice, and its score advantage (N,) over the native candidate."""
    found = aligned(study.suite(group).alignments["without preservation"])(e)
    best = found.score.gather(1, found.position[:, None])[:, 0]
    return found, found.score.gather(1, _native(e)[:, None])[:, 0] - best


def _native(e: Evidence) -> Tensor:
    """(N,) positions of the candidates with the smallest ID."""
    return e.ids.argmin(1)


def _position(e: Evidence, candidate: int, folder: Path) -> Tensor:
    """(N,) positions of the fixed correction, which every start must have."""
    there = e.ids == candidate
    if not there.any(1).all():
        raise DjepaError(
            f"{folder / FILE} corrects by candidate {candidate}, which some starts do not have. "
            f"{GATES_KIND.again}"
        )
    return there.int().argmax(1)


def _solved(known: Population, other: Tensor) -> Solved:
    success = known.outcomes.success
    kept, replaced = (
        success.gather(1, at[:, None])[:, 0] for at in (_native(known.evidence), other)
    )
    return kept, replaced


def _scalar(study: Study, case: Case, name: str, e: Evidence) -> Tensor:
    """(N,) the named number of the native chunk for these starts."""
    known = BimanualBank(study.out / "banks" / case.folder).known
    rows = {one: i for i, one in enumerate(known.names)}
    at = [rows[one] for one in e.identities]
    return torch.from_numpy(getattr(known, name)[at].copy()).to(e.ids.device)


def _replaced(e: Evidence, other: Tensor, opened: Tensor) -> Choice:
    return _chosen(e, torch.where(opened, other, _native(e)), opened)


def _chosen(e: Evidence, position: Tensor, opened: Tensor | None = None) -> Choice:
    score = torch.ones_like(e.ids, dtype=torch.float64).scatter(1, position[:, None], 0.0)
    return Choice(position, score, opened=opened)
