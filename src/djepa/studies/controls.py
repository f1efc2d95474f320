"""The controls study: TD-JEPA adapted in seven ways, beside D-JEPA on the same starts.

    plasticity, fine-tuned      the end of the predictor, by decisions or by dynamics alone
    PEGrad                      the same parameters, both objectives, no conflict
    Var-JEPA, conflict-safe     a variational residual on frozen futures
    expected value, CVaR        16 futures from the prior of Var-JEPA

Each is one more column of costs, and the lowest cost chooses. How they are made: align/controls.
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
from djepa.align.fit import AlignConfig
from djepa.align.methods import PLASTIC, TUNED
from djepa.align.outcomes import Outcomes
from djepa.align.plastic import Patch, load_patch, save_patch
from djepa.align.plastic_fit import Encoded, PlasticConfig, fit_patch
from djepa.align.presets import PAIR, careful
from djepa.align.suite import Recipe
from djepa.artefacts.folder import Arrays
from djepa.artefacts.records import folder_hash
from djepa.bank.read import Bank
from djepa.evidence.evidence import Evidence
from djepa.models.lewm import LeWM
from djepa.models.predictions import EvidenceRecord, write_evidence
from djepa.models.weights import load_geometry
from djepa.rollout.execute import CollectConfig
from djepa.studies.design import ROLES, Case, Design, Place, Sizes
from djepa.studies.measures.decisions import films, inspector
from djepa.studies.measures.preservation import preservation
from djepa.studies.stages import Say
from djepa.studies.study import Study
from djepa.tasks.task import PLAIN

OURS, FUSION, CONTROL, NATIVE = "D-JEPA", "fusion, two", "consensus + fusion, two", "native tdjepa"
BOTH = "both consensus + fusion, two"  # the control with both densities, as D-JEPA has them
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


def _cases(role: str, sizes: Sizes, place: Place) -> list[Case]:
    """Fitting and calibration starts are the first and the last of one bank."""
    if role not in ROLES[:3]:
        return []
    fitted, both = role in ROLES[:2], sizes.fit + sizes.calibration
    bank = CollectConfig(
        split="controls-fit" if fitted else "controls-dev",
        starts=both if fitted else sizes.confirmation,
        seed=place.seed,
        block=16,
    )
    part = {"fit": (0, sizes.fit), "calibration": (sizes.fit, both)}.get(role)
    return [Case("reference", bank, part=part)]


def _evidence(bank: Bank, look: str) -> Evidence:
    """Adapted predictors decide on confirmation starts; nothing else is fitted on their costs."""
    known = (*PAIR, *ADAPTED.values())
    found = [n for n in known if (bank.path / "evidence" / n / "manifest.json").exists()]
    return Evidence.from_bank(bank, found, PAIR)


def _adapt(study: Study, group: str, say: Say) -> None:
    """Fit what is missing, each written as it is finished; then store what each costs."""
    place, model = study.place, load_geometry("tdjepa", study.place.device)
    assert isinstance(model, LeWM)
    bank, n = study.bank(study.cases("fit", group)[0]), study.sizes.fit

    @cache
    def given() -> tuple[Supervised, Supervised]:
        say("  latents of what the fitting starts executed")
        rows = list(range(n + study.sizes.calibration))
        starts = Encoded.from_bank(model, bank, rows, place.device)
        outcomes = Outcomes.from_bank(bank).to(place.device)
        whole = Supervised(starts, outcomes, realised(model, bank, rows, place.device))
        return whole.rows(torch.arange(n)), whole.rows(torch.arange(n, len(rows)))

    for name, fit in Budget.of(study.sizes).fits().items():
        if not place.made(group, name):
            parts = given()
            say(f"  fitting {name}")
            save_patch(fit(model, *parts), place.own(group, name))
    for case in study.cases("confirmation", group):
        _store(study, group, study.bank(case), model, say)


def _store(study: Study, group: str, bank: Bank, model: LeWM, say: Say) -> None:
    """Costs of every adapted predictor beside a bank, futures too where it predicts one."""
    starts = Encoded.from_bank(model, bank, device=study.place.device)
    frozen = futures(model, starts, 8)
    for name, column in ADAPTED.items():
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
        write_evidence(bank, of, folder_hash(folder), made)


def _arrays(cost: Tensor, goal: Tensor, after: Tensor | None = None) -> Arrays:
    """As evidence stores them."""
    half: Mapping[str, Tensor] = {"goal": goal} | ({} if after is None else {"futures": after})
    small = {name: x.cpu().numpy().astype(np.float16) for name, x in half.items()}
    return {"cost": cost.cpu().numpy().astype(np.float32), **small}


CONTROLS = Design(
    name="controls",
    title="Do other ways to adapt a predictor choose better?",
    question=(
        "The paper compares D-JEPA with five methods that adapt TD-JEPA, or plan with it, in "
        "another way, with predictive plasticity and with training on dynamics alone. Here each is "
        "fitted on the same starts and decides among the same candidates, all of which were "
        "executed.",
        "A predictor that decides better need not predict better. So the table of **prediction "
        "error beside success** shows both for every method.",
    ),
    weights=PAIR,
    sizes={
        "quick": Sizes(96, 32, 128, updates=300),
        "paper": Sizes(384, 128, 256),
        "large": Sizes(384, 128, 2048),
    },
    cases=_cases,
    evidence=_evidence,
    recipe=Recipe(
        mixtures={FUSION: (PAIR, None), CONTROL: (PAIR, "tdjepa"), BOTH: (PAIR, PAIR)},
        alignments={"relational": AlignConfig(), OURS: careful(PAIR, PAIR, "log")},
    ),
    natives={NATIVE: "tdjepa", "native lewm": "lewm", **ADAPTED},
    density=("tdjepa",),
    fusion=FUSION,
    control=CONTROL,
    against=(BOTH, *ADAPTED),
    adapted=tuple(ADAPTED),
    pools={"reference": "perturbations of one hidden solution, as in the paper"},
    measures=(
        preservation(NATIVE, ADAPTED),
        films((NATIVE, OURS)),
        inspector((NATIVE, *ADAPTED, "relational", OURS), NATIVE, (3, 1, 1)),
    ),
    prepare=_adapt,
)
