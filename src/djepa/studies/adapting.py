"""TD-JEPA adapted in seven ways: each one more column of costs beside a bank, the lowest chooses.

    plasticity, fine-tuned      the end of the predictor, by decisions or by dynamics alone
    PEGrad                      the same parameters, both objectives, no conflict
    Var-JEPA, conflict-safe     a variational residual on frozen futures
    expected value, CVaR        16 futures from the prior of Var-JEPA

How they are made: align/controls. A study names `adapting` as what it prepares.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import torch
from torch import Tensor

from djepa.align.controls.conflict_safe import fit_conflict_safe
from djepa.align.controls.lessons import Supervised, futures
from djepa.align.controls.methods import SAMPLED, control_futures
from djepa.align.controls.pegrad import PEGradConfig, fit_pegrad
from djepa.align.controls.sampled import sampled_costs
from djepa.align.controls.trajectory import code_of
from djepa.align.controls.varjepa import VarConfig, fit_varjepa
from djepa.align.dynamics import fine_tune, realised
from djepa.align.methods import PLASTIC, TUNED
from djepa.align.outcomes import Outcomes
from djepa.align.plastic import Patch, load_patch, save_patch
from djepa.align.plastic_fit import Encoded, PlasticConfig, fit_patch
from djepa.artefacts.folder import Arrays
from djepa.artefacts.records import folder_hash
from djepa.bank.read import Bank
from djepa.models.lewm import LeWM
from djepa.models.predictions import EvidenceRecord, one_by_one, write_evidence
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
    """How the patches are fitted."""

    end: PlasticConfig = field(default_factory=lambda: PlasticConfig(rates=(2e-6, 2e-5)))
    caps: tuple[float, ...] = (0.1, 1.0)  # κ of PEGrad
    residual: VarConfig = field(default_factory=VarConfig)

    @classmethod
    def of(cls, sizes: Sizes) -> "Budget":
        """Where the preset limits updates: one rate, the one chosen in docs/controls.md."""
        if sizes.updates is None:
            return cls()
        end = PlasticConfig(updates=min(60, sizes.updates), batch=4, rates=(2e-5,), every=30)
        code = PlasticConfig(updates=min(200, sizes.updates), rates=(1e-3,))
        return cls(end, (1.0,), VarConfig(code))

    def fits(self) -> dict[str, Fit]:
        """Method -> how its patch is made of fitting and calibration starts."""
        c = self
        return {
            "plasticity": lambda m, a, b: fit_patch(m, a[:2], b[:2], c.end),
            "fine-tuned": lambda m, a, b: fine_tune(m, a[::2], b[::2], c.end),
            "PEGrad": lambda m, a, b: fit_pegrad(m, a, b, PEGradConfig(c.end, c.caps)),
            "Var-JEPA": lambda m, a, b: fit_varjepa(m, a, b, c.residual),
            "conflict-safe": lambda m, a, b: fit_conflict_safe(m, a, b, c.residual),
        }


def adapting(
    weights: str = "tdjepa", fitted: tuple[str, ...] = ()
) -> Callable[[Study, str, Say], None]:
    """What a study prepares: patches of these weights, and what they cost on confirmation starts.

    Costs of the methods `fitted` are stored for the fitting starts too, where composition is
    calibrated on them.
    """

    def prepare(study: Study, group: str, say: Say) -> None:
        model = load_geometry(weights, study.place.device)
        assert isinstance(model, LeWM)
        fit_all(study, group, model, say)
        for case in study.cases("confirmation", group):
            store(study, group, study.bank(case), model, ADAPTED, say)
        columns = {name: ADAPTED[name] for name in fitted}
        for case in study.cases("fit", group) if columns else []:
            store(study, group, study.bank(case), model, columns, say)

    return prepare


def fit_all(study: Study, group: str, model: LeWM, say: Say) -> None:
    """Fit what is missing, each written as it is finished, on the first starts of one bank."""
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
        if not place.made(group, name):
            parts = given()
            say(f"  fitting {name}")
            save_patch(fit(model, *parts), place.own(group, name))


def store(
    study: Study, group: str, bank: Bank, model: LeWM, columns: Mapping[str, str], say: Say
) -> None:
    """Costs of adapted predictors beside a bank, futures too where one predicts any."""
    starts = Encoded.from_bank(model, bank, device=study.place.device)
    frozen = futures(model, starts, 8)
    for name, column in columns.items():
        say(f"  {name}: {bank.config.starts} starts")
        folder = study.place.own(group, "Var-JEPA" if name in SAMPLED else name)
        patch, sampled = load_patch(folder), name in SAMPLED

        def made(
            rows: slice, name: str = name, patch: Patch = patch, sampled: bool = sampled
        ) -> Arrays:
            at = torch.arange(len(starts))[rows]
            some, base = starts.rows(at), frozen[at]
            if sampled:
                drawn = sampled_costs(model, code_of(model, patch), some, base)
                return _arrays(SAMPLED[name](drawn), some.goal)
            after = control_futures(model, patch, some, base)
            return _arrays(model.native_cost(after, some.goal), some.goal, after)

        of = EvidenceRecord(column, bank.config.world, PLAIN, str(not sampled).lower())
        write_evidence(bank, of, folder_hash(folder), one_by_one(made))


def _arrays(cost: Tensor, goal: Tensor, after: Tensor | None = None) -> Arrays:
    """As evidence stores them."""
    half: Mapping[str, Tensor] = {"goal": goal} | ({} if after is None else {"futures": after})
    small = {name: x.cpu().numpy().astype(np.float16) for name, x in half.items()}
    return {"cost": cost.cpu().numpy().astype(np.float32), **small}
