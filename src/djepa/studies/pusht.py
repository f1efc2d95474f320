"""The PushT study: four world models on four kinds of pools.

    relational, composition   the published operator over two models, with predictive plasticity
    D-JEPA                    likelihood mixture of four models and pool density, careful gate

The preset `quick` uses fitted methods from the package and fits one alignment in the run. The
package has none for the paper's own pools, `published`.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from djepa.align.methods import PLASTIC
from djepa.align.presets import FOUR, PAIR, SUITE
from djepa.align.suite import MIXTURES, Recipe
from djepa.bank.read import Bank
from djepa.evaluate import paper
from djepa.evidence.evidence import Evidence
from djepa.models.planner_pool import PLANNER, RETAINED, CEMProposer, RetainingProposer
from djepa.rollout.execute import CollectConfig, Proposer
from djepa.studies.adapting import ADAPTED, adapting, with_adapted
from djepa.studies.design import ROLES, Case, Design, Place, Sizes, split_of
from djepa.studies.measures.audit import audit
from djepa.studies.measures.budget import budget
from djepa.studies.measures.decisions import films, inspector
from djepa.studies.measures.deployment import deployment
from djepa.studies.measures.inverted import inverted
from djepa.studies.measures.learning import learning
from djepa.studies.measures.lifting import lifting
from djepa.studies.measures.mechanism import mechanism
from djepa.studies.populations import BOUNDARY, near_boundary
from djepa.studies.stages import Say
from djepa.studies.study import Study

SHIPPED = Path(__file__).parent.parent / "suites" / "pusht"
OURS, FUSION, CONTROL = "D-JEPA", "fusion, four", "consensus + fusion, four"
BOTH = "both consensus + fusion, four"  # fusion with both densities, which D-JEPA uses too
PUBLISHED = "published"
PROFILES = {
    "reference": "reference-control",
    "decoy": "decoy",
    "planner": PLANNER,
    PUBLISHED: RETAINED,
}
AUDITED = ("reference", PUBLISHED)
PATCHED = ("plasticity", "fine-tuned")
HERE = {"relational, fitted here": SUITE["relational"]}


def _cases(role: str, sizes: Sizes, place: Place) -> list[Case]:
    """Relations and patches are fitted and calibrated on the first starts of one bank."""
    if not getattr(sizes, role):
        return []
    fitted = role in ROLES[:2]
    ends = {"fit": (0, sizes.fit), "calibration": (sizes.fit, sizes.fit + sizes.calibration)}
    confirmed = {"planner": sizes.searched, PUBLISHED: sizes.retained}
    here = {"audit": AUDITED, "mechanism": (PUBLISHED,)}.get(role, tuple(PROFILES))
    found = []
    for pools in here if not (fitted and sizes.shipped) else ("reference",):
        starts = getattr(sizes, role)
        split = f"pusht-{'fit' if fitted else role}"
        if fitted:
            starts = max(sizes.fit + sizes.calibration, sum(sizes.plastic))
        elif role == "confirmation":
            starts = confirmed.get(pools, starts)
            split = split_of("pusht", role) if pools == PUBLISHED else split
        bank = CollectConfig(
            profile=PROFILES[pools],
            split=split,
            starts=starts,
            seed=place.seed,
            block=16 if place.device == "cpu" else 64,  # a block is a batch, too
        )
        part = ends.get(role)
        found.append(Case(pools, bank, group=pools, part=part, proposer=_search.get(pools)))
    return found


_search: dict[str, Callable[[str], Proposer]] = {
    "planner": lambda device: CEMProposer("tdjepa", device=device),
    PUBLISHED: lambda device: RetainingProposer("tdjepa", device=device),
}


def _evidence(bank: Bank, look: str) -> Evidence:
    """Evidence of every geometry with stored predictions."""
    return with_adapted(bank, FOUR, (*PAIR, PLASTIC))


def _adapt(study: Study, group: str, say: Say) -> None:
    """TD-JEPA with the end of its predictor adapted by decisions, and by dynamics alone.

    Only on the paper's pools, for which the paper has figures: a patch takes minutes on a GPU.
    """
    if group == PUBLISHED and any(study.sizes.plastic):
        adapting(fitted=PATCHED, methods=PATCHED)(study, group, say)


BUDGETED = ("native lewm", "native tdjepa", "fusion, two", "relational", FUSION, OURS)
DEPLOYED = (  # method, whether its decision is written into the futures
    ("relational", False),
    ("composition", False),
    ("relational", True),
    ("composition", True),
    (OURS, True),
)
PAPER = Sizes(448, 64, 512, 256, 96, (384, 128), retained=400, mechanism=128)
LARGE = Sizes(
    4096, 512, 2048, 2048, 512, (384, 128), (448, 1024, 2048, 4096), retained=2048, mechanism=512
)

PUSHT = Design(
    name="pusht",
    title="Does alignment choose better?",
    question=(
        "A latent world model predicts where candidate actions lead, and a planner executes the "
        "candidate whose predicted end is nearest to the goal. Among the few best candidates that "
        "distance hardly separates successes from failures. Here every candidate of every start "
        "was **executed** from the same restored state, so the choice of each method is counted.",
        "On pools made around a hidden solution, a method that uses neither the goal nor any "
        "outcome and only takes the candidate in the densest part of the pool does well. So every "
        "table has several kinds of pools and the control **fusion + pool density**. Only a gain "
        "over that control, on decoy and planner pools, counts as decision alignment.",
        "Methods were fitted and calibrated on other starts than those counted here, and no method "
        "or setting was chosen on these. **Eligible** starts have a success and a failure among "
        "the 16 candidates with the lowest TD-JEPA cost, at distances that differ by at most a "
        f"quarter (`{BOUNDARY}`).",
    ),
    weights=FOUR,
    sizes={
        "quick": Sizes(96, 32, 64, 48, 48, repeats=3, timed=16, shipped=True, retained=64),
        "paper": PAPER,
        "frozen": replace(PAPER, plastic=(0, 0)),  # no adapted predictors, which need a GPU
        "large": LARGE,
    },
    cases=_cases,
    evidence=_evidence,
    recipe=Recipe(MIXTURES, SUITE),
    natives={
        **{f"native {name}": name for name in FOUR},
        **{name: ADAPTED[name] for name in PATCHED},
    },
    density=PAIR,
    fusion=FUSION,
    control=CONTROL,
    base="fusion, two",
    against=("native tdjepa", "native jepawm", "fusion, two", BOTH, "log costs", "log mixture"),
    pools={
        "reference": "perturbations of one hidden solution",
        "decoy": "perturbations of the solution and of three other recorded sequences",
        "planner": "results of a cross-entropy search under TD-JEPA's cost; no hidden solution",
        PUBLISHED: "the paper's: of 255 perturbations of one hidden solution the 63 that TD-JEPA's "
        "cost retains",
    },
    measures=(
        audit(*AUDITED),
        inverted("lewm", *AUDITED),
        budget(BUDGETED),
        budget(BUDGETED, eligible=(PUBLISHED,)),
        mechanism(PUBLISHED),
        learning((FUSION, "pointwise", "relational", OURS)),
        lifting(("relational", OURS), "tdjepa"),
        deployment(DEPLOYED, "tdjepa", AUDITED),
        films(("native lewm", "native tdjepa", OURS), also=(FUSION,)),
        inspector(("native lewm", "native tdjepa", FUSION, "relational", OURS), FUSION, (5, 2, 3)),
    ),
    blocks={
        "Mechanisms": (
            "native tdjepa",
            "fine-tuned",
            "plasticity",
            "pointwise",
            "relational",
            "composition",
        ),
        "Predictive sources": ("lewm descriptors", "temporal descriptors", "relational"),
        "More models": (
            "native jepawm",
            "native dinowm",
            FUSION,
            "multi-geometry",
            "log mixture",
            OURS,
        ),
    },
    eligible=near_boundary,
    rule=BOUNDARY,
    paper={f"{PUBLISHED}, eligible": (paper.RETAINED, "")},
    realised="lewm",
    prepare=_adapt,
    shipped=SHIPPED,
    here=HERE,
)
