"""The controls study: TD-JEPA adapted in seven ways, beside D-JEPA on the same starts.

adapting.py fits each and stores its column of costs.
"""

from djepa.align.fit import AlignConfig
from djepa.align.presets import PAIR, careful
from djepa.align.suite import Recipe
from djepa.bank.read import Bank
from djepa.evidence.evidence import Evidence
from djepa.rollout.execute import CollectConfig
from djepa.studies.adapting import ADAPTED, adapting, with_adapted
from djepa.studies.design import ROLES, Case, Design, Place, Sizes
from djepa.studies.measures.calibrated import calibrated
from djepa.studies.measures.decisions import films, inspector
from djepa.studies.measures.preservation import preservation

OURS, FUSION, CONTROL, NATIVE = "D-JEPA", "fusion, two", "consensus + fusion, two", "native tdjepa"
BOTH = "both consensus + fusion, two"  # fusion with both densities, which D-JEPA uses too


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
    return with_adapted(bank, PAIR, PAIR)


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
        calibrated(tuple(ADAPTED), ("reference",)),
        preservation(NATIVE, ADAPTED),
        films((NATIVE, OURS), also=(FUSION,)),
        inspector((NATIVE, *ADAPTED, "relational", OURS), NATIVE, (3, 1, 1)),
    ),
    prepare=adapting(),
)
