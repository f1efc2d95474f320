"""TD-JEPA adapted in seven ways. Each stores a column of costs beside a bank; the lowest chooses.

    plasticity, fine-tuned      the end of the predictor, by decisions or by dynamics alone
    PEGrad                      the same parameters, both objectives, no conflict
    Var-JEPA, conflict-safe     a variational residual on frozen futures
    expected value, CVaR        16 futures from the prior of Var-JEPA

The methods are in align/controls. A study uses them through `prepare=adapting(...)` of its design.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import torch
from torch import Tensor

from djepa.align.controls.conflict_safe import fit_conflict_safe
from djepa.align.controls.lessons import Supervised
from djepa.align.controls.methods import BATCH, SAMPLED, adapts_predictor, control_cost
from djepa.align.controls.pegrad import PEGradConfig, fit_pegrad
from djepa.align.controls.varjepa import VarConfig, fit_varjepa
from djepa.align.dynamics import fine_tune, realised
from djepa.align.methods import PLASTIC, TUNED
from djepa.align.outcomes import Outcomes
from djepa.align.plastic import Patch, apply_patch, load_patch, save_patch
from djepa.align.plastic_fit import Encoded, PlasticConfig, fit_patch, futures
from djepa.artefacts.folder import Arrays
from djepa.artefacts.records import MANIFEST, folder_hash
from djepa.bank.read import Bank
from djepa.evidence.evidence import Evidence
from djepa.models.lewm import LeWM
from djepa.models.predictions import EvidenceRecord, one_by_one, predict_bank, write_evidence
from djepa.models.weights import load_geometry
from djepa.studies.design import Sizes
from djepa.studies.populations import thinned
from djepa.studies.stages import Say
from djepa.studies.study import Study
from djepa.tasks.task import PLAIN

ADAPTED = {  # method -> its column of the evidence
    "plasticity": PLASTIC,
    "fine-tuned": TUNED,
    "PEGrad": "tdjepa-pegrad",
    "Var-JEPA": "tdjepa-var",
    "conflict-safe": "tdjepa-safe",
    "expected value": "tdjepa-mean",
    "CVaR": "tdjepa-cvar",
}
Fit = Callable[[LeWM, Supervised, Supervised], Patch]


@dataclass(frozen=True)
class Budget:
    """Budget of updates of the patches."""

    end: PlasticConfig = field(default_factory=lambda: PlasticConfig(rates=(2e-6, 2e-5)))
    caps: tuple[float, ...] = (0.1, 1.0)  # κ of PEGrad
    residual: VarConfig = field(default_factory=VarConfig)

    @classmethod
    def of(cls, sizes: Sizes) -> "Budget":
        """The budget of a preset; if it limits updates, one learning rate, see docs/controls.md."""
        if sizes.adapted:
            return cls(PlasticConfig(updates=sizes.adapted, rates=(2e-5,)), (1.0,))
        if sizes.updates is None:
            return cls()
        end = PlasticConfig(updates=min(60, sizes.updates), batch=4, rates=(2e-5,), every=30)
        code = PlasticConfig(updates=min(200, sizes.updates), rates=(1e-3,))
        return cls(end, (1.0,), VarConfig(code))

    def fits(self) -> dict[str, Fit]:
        """Method -> the function that fits its patch on fitting and calibration starts."""
        c = self
        return {
            "plasticity": lambda m, a, b: fit_patch(m, a[:2], b[:2], c.end),
            "fine-tuned": lambda m, a, b: fine_tune(m, a[::2], b[::2], c.end),
            "PEGrad": lambda m, a, b: fit_pegrad(m, a, b, PEGradConfig(c.end, c.caps)),
            "Var-JEPA": lambda m, a, b: fit_varjepa(m, a, b, c.residual),
            "conflict-safe": lambda m, a, b: fit_conflict_safe(m, a, b, c.residual),
        }


def adapting(
    weights: str = "tdjepa", fitted: tuple[str, ...] = (), methods: tuple[str, ...] = tuple(ADAPTED)
) -> Callable[[Study, str, Say], None]:
    """A `prepare` of a design: fits patches and stores their costs on confirmation starts.

    Costs of the methods in `fitted` are also stored for fitting starts, on which composition is
    calibrated.
    """

    def prepare(study: Study, group: str, say: Say) -> None:
        model = load_geometry(weights, study.place.device)
        assert isinstance(model, LeWM)
        _fit(study, group, model, methods, say)
        for role, stored in (("confirmation", methods), ("fit", fitted)):
            for case in study.cases(role, group) if stored else []:
                _store(study, group, study.bank(case), model, stored, say)

    return prepare


def with_adapted(bank: Bank, geometries: Sequence[str], dense: Sequence[str]) -> Evidence:
    """Evidence of these geometries and of adapted predictors, as far as predictions are stored."""
    known = (*geometries, *ADAPTED.values())
    found = [n for n in known if (bank.path / "evidence" / n / MANIFEST).exists()]
    return Evidence.from_bank(bank, found, [n for n in dense if n in found])


def _fit(study: Study, group: str, model: LeWM, methods: Sequence[str], say: Say) -> None:
    """Fit missing patches on the first starts of one bank; each is written when finished."""
    place, sizes = study.place, study.sizes
    bank = study.bank(study.cases("fit", group)[0])
    n, m = sizes.plastic if sum(sizes.plastic) else (sizes.fit, sizes.calibration)

    @cache
    def given() -> tuple[Supervised, Supervised]:
        say("  latents of what the fitting starts executed")
        rows = list(range(n + m))
        starts = Encoded.from_bank(model, bank, rows, place.device)
        outcomes = Outcomes.from_bank(bank).rows(torch.arange(n + m))
        if study.design.sparse:
            outcomes = thinned(outcomes, study.design.sparse)
        after = realised(model, bank, rows, place.device)
        whole = Supervised(starts, outcomes.to(place.device), after)
        return whole.rows(torch.arange(n)), whole.rows(torch.arange(n, n + m))

    for name, fit in Budget.of(sizes).fits().items():
        if name in methods and not place.made(group, name):
            parts = given()
            say(f"  fitting {name}")
            save_patch(fit(model, *parts), place.own(group, name))


def _store(
    study: Study, group: str, bank: Bank, model: LeWM, methods: Sequence[str], say: Say
) -> None:
    """Store predictions and costs of each method beside a bank."""
    place = study.place

    @cache
    def frozen() -> tuple[Encoded, Tensor]:
        starts = Encoded.from_bank(model, bank, device=place.device)
        return starts, futures(model, starts, BATCH)

    for name in methods:
        say(f"  {name}: {bank.config.starts} starts")
        folder = place.own(group, "Var-JEPA" if name in SAMPLED else name)
        patch, of = load_patch(folder), folder_hash(folder)
        if adapts_predictor(patch):
            adapted = apply_patch(model, patch)
            adapted.name = ADAPTED[name]
            predict_bank(bank, adapted, of, place.device, engine=place.engine)
            continue

        def made(rows: slice, name: str = name, patch: Patch = patch) -> Arrays:
            starts, base = frozen()
            at = torch.arange(len(starts))[rows]
            some = starts.rows(at)
            return _arrays(some.goal, *control_cost(name, model, patch, some, base[at]))

        futures_too = str(name not in SAMPLED).lower()
        record = EvidenceRecord(ADAPTED[name], bank.config.world, PLAIN, futures_too)
        write_evidence(bank, record, of, one_by_one(made))


def _arrays(goal: Tensor, cost: Tensor, after: Tensor | None) -> Arrays:
    """Arrays in the format of stored evidence."""
    half: Mapping[str, Tensor] = {"goal": goal} | ({} if after is None else {"futures": after})
    small = {name: x.cpu().numpy().astype(np.float16) for name, x in half.items()}
    return {"cost": cost.cpu().numpy().astype(np.float32), **small}
