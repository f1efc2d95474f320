"""What the driving study fits beside the shared suite: the paper's readouts, a certified gate.

The gate of D-JEPA is also kept closed on a case whose evidence differs from the calibration's.

Legend: N scenes, K candidates.
"""

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache

import torch
from torch import Tensor

from djepa.align.driving import DrivingEvidence, DrivingOutcomes
from djepa.align.driving_fit import HERE, fit_anchor, fit_correction
from djepa.align.driving_fusion import fit_fusion
from djepa.align.driving_store import Readout, load_readout, save_readout
from djepa.align.gates import NEVER, Gate
from djepa.align.methods import Choice, Chooser, aligned, gated
from djepa.align.risk import Guarantee, risk_controlled
from djepa.align.shift import shut
from djepa.artefacts.folder import Folder
from djepa.artefacts.records import Kind, encode_json
from djepa.artefacts.write import save as save_folder
from djepa.bank.driving import TrafficBank
from djepa.evidence.evidence import Evidence, clusters
from djepa.evidence.score import Score
from djepa.models.predictions import read_predictions
from djepa.models.traffic import PARTS
from djepa.models.traffic_predict import NAME
from djepa.rollout.engine import Engine
from djepa.studies.design import Case
from djepa.studies.measures.shift import shift_of
from djepa.studies.stages import Say
from djepa.studies.study import Study
from djepa.threads import one_thread

OURS, UNCHECKED = "D-JEPA", "D-JEPA, unchecked"  # with and without a comparison of evidence
CERTIFIED, FILE = "D-JEPA, certified", "guarantee.json"
LIMIT, CONFIDENCE = 0.01, 0.95  # harm; confidence
FOLDS, FEW = 5, 12  # folds of logs; with at most FEW logs each is a fold
GUARANTEE = Kind(
    "certified gate",
    "djepa-certified-gate",
    1,
    again="Remove it, and it is made again.",
    records={FILE: Guarantee},
)
Seen = tuple[DrivingEvidence, DrivingOutcomes]
Fit = Callable[..., Readout]
FITS: dict[str, Fit] = {
    "scalar fusion": lambda fit, calibration: fit_fusion(*fit),
    "per-candidate network": lambda fit, calibration: fit_correction(
        fit, calibration, relations=False
    ),
    "score correction": fit_correction,
    "anchor-relative": lambda fit, calibration, engine=HERE: _anchor(fit, False, engine),
    "anchor-relative with risk": lambda fit, calibration, engine=HERE: _anchor(fit, True, engine),
}
FOLDED = tuple(name for name in FITS if name.startswith("anchor"))


def _anchor(fit: Seen, risk: bool, engine: Engine) -> Readout:
    folds = None if len(set(fit[0].logs)) <= FEW else FOLDS
    return fit_anchor(*fit, risk=risk, folds=folds, engine=engine)


def driving_evidence(bank: TrafficBank) -> DrivingEvidence:
    """The native scorer's outputs for every scene of a bank."""
    stored, known = read_predictions(bank, NAME), bank.known
    assert stored.futures is not None  # the study stores them
    logits = torch.stack([torch.from_numpy(stored.parts[str(i)]) for i in range(PARTS)], -1)
    return DrivingEvidence(
        queries=torch.from_numpy(stored.futures[:, :, 0]).float(),
        logits=logits,
        poses=torch.from_numpy(known.poses).float(),
        score=1 - torch.from_numpy(stored.cost).double(),
        ids=torch.from_numpy(known.ids),
        logs=tuple(name.split("@")[0] for name in known.names),
    )


def driving_outcomes(bank: TrafficBank) -> DrivingOutcomes:
    """Outcomes of execution, in the form that readouts are fitted on."""
    parts = {name: torch.from_numpy(part.copy()) for name, part in bank.parts.items()}
    return DrivingOutcomes(parts["pdms"].float(), parts["nc"] < 1, parts["ttc"] < 1)


def fit_extra(study: Study, group: str, say: Say) -> None:
    """Fit missing readouts, each written when finished; then certify the limit on harm."""

    @cache
    def seen(role: str) -> Seen:
        bank = _bank(study, study.cases(role, group)[0])
        return driving_evidence(bank), driving_outcomes(bank)

    for name, fit in FITS.items():
        if not study.place.made(group, name):
            say(f"  {name}")
            where = {"engine": study.place.engine} if name in FOLDED else {}
            with one_thread():
                found = fit(seen("fit"), seen("calibration"), **where)
            save_readout(found, study.place.own(group, name), study.card(group))
    if not study.place.made(group, CERTIFIED):
        found_limit = _certify(study, group)
        say(f"  {found_limit}")
        folder = study.place.own(group, CERTIFIED)
        save_folder(folder, GUARANTEE, {FILE: encode_json(folder / FILE, asdict(found_limit))})


def extra_choosers(study: Study, case: Case) -> dict[str, Chooser]:
    """The readouts, on the scorer's outputs for the same scenes; D-JEPA and the certified gate.

    The last two keep their gates closed if the evidence of the case differs from that of the
    calibration, or has too few scenes for the test.
    """
    place, bank = study.place, _bank(study, case)

    @cache
    def known() -> tuple[DrivingEvidence, dict[str, int]]:
        return driving_evidence(bank), {name: i for i, name in enumerate(bank.known.names)}

    def reads(readout: Readout) -> Chooser:
        def choose(e: Evidence) -> Choice:
            every, row = known()
            own = every.rows(torch.tensor([row[name] for name in e.identities]))
            cost = Score(readout.score(own), higher_is_better=True).cost
            return Choice(readout.decide(own), cost)

        return choose

    found = {name: reads(load_readout(place.own(case.group, name))) for name in FITS}
    limit: Guarantee = Folder(place.own(case.group, CERTIFIED), GUARANTEE).record(FILE)

    ours = study.suite(case.group).alignments[OURS]
    shift = shift_of(study, case)
    alike = shift is not None and not shift.noticed
    gate = limit.gate if alike else replace(limit.gate, threshold=NEVER)

    def certified(e: Evidence) -> Choice:
        return gated(gate, *_native_and_ours(study, case.group, e), e.ids)

    admitted = aligned(ours if alike else shut(ours))
    return {**found, CERTIFIED: certified, OURS: admitted, UNCHECKED: aligned(ours)}


def _certify(study: Study, group: str) -> Guarantee:
    """The most permissive gate that turns few logs from no collision at fault to one."""
    (case,) = study.cases("audit", group)
    bank, evidence = _bank(study, case), study.population("audit", case).evidence
    safe = torch.from_numpy(bank.parts["nc"] == 1)
    base, refined = _native_and_ours(study, group, evidence)
    gate = Gate(mode="refined_gap")  # on our scores of our choice and the native one
    same = clusters(evidence.identities)
    known = (base, refined, evidence.ids, safe)
    return risk_controlled(gate, *known, LIMIT, CONFIDENCE, same)


def _native_and_ours(study: Study, group: str, e: Evidence) -> tuple[Tensor, Tensor]:
    """(N, K) costs of the native choice and of ours."""
    ours = aligned(study.suite(group).alignments[study.design.ours])(e)
    return e.cost(NAME), ours.score


def _bank(study: Study, case: Case) -> TrafficBank:
    return TrafficBank(study.out / "banks" / case.folder)
