"""The paper's main table: on each of three tasks every method, on the same starts.

    four geometries, as far as weights for the task exist, and their fusion
    the five control methods, plasticity and dynamics fine-tuning, which adapt TD-JEPA
    D-JEPA as published: composition on PushT, relational elsewhere; and ours

`djepa study table` puts the rows of the three tasks beside the paper's cells (table.py).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from djepa.align.fit import AlignConfig
from djepa.align.methods import PLASTIC
from djepa.align.presets import FOUR, PAIR, careful
from djepa.align.suite import Recipe
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.evaluate import paper
from djepa.evidence.evidence import Evidence
from djepa.models.planner_pool import RETAINED, RetainingProposer
from djepa.models.weights import find_weights
from djepa.rollout.execute import CollectConfig
from djepa.studies.adapting import ADAPTED, adapting, with_adapted
from djepa.studies.design import ROLES, Case, Design, Place, Sizes
from djepa.studies.granular import EXECUTED, relational_over
from djepa.studies.measures.calibrated import calibrated
from djepa.studies.measures.decisions import films, inspector
from djepa.studies.measures.deployment import deployment
from djepa.studies.measures.preservation import preservation
from djepa.studies.populations import BOUNDARY, near_boundary
from djepa.studies.stages import Say
from djepa.studies.study import Study
from djepa.worlds.chamfer import FINE, MAIN, STRICT

OURS, NATIVE, EARLIER = "D-JEPA", "native tdjepa", "earlier"
TOLERANCE = 0.05  # of both joints of Reacher, in rad
QUESTION = (
    "The paper's main table compares four predictive models, five control methods, fusion and "
    "D-JEPA on PushT, Reacher and a granular task. Here all of them decide among the same "
    "candidates of the same starts, and every candidate was executed.",
    "A method that is not shown could not be run: the weights that it reads do not exist.",
)


def named(task: str, geometry: str) -> str:
    """The weights of a geometry that was trained for a task; fine grains take those of grains."""
    of = {"pusht": "", "fine": "granular-"}.get(task, f"{task}-")
    return f"{of}{geometry}"


def trained(task: str) -> tuple[str, ...]:
    """Geometries with weights for a task."""
    found = []
    for geometry in FOUR:
        try:
            find_weights(named(task, geometry))
            found.append(geometry)
        except DjepaError:
            continue
    return tuple(found)


def _cases(task: str, bank: CollectConfig, **more: Any) -> Callable[..., list[Case]]:
    """Cases: one bank for fitting and calibration, one or two for confirmation."""

    def cases(role: str, sizes: Sizes, place: Place) -> list[Case]:
        if role not in ROLES[:3]:
            return []
        fitted, both = role in ROLES[:2], sizes.fit + sizes.calibration
        starts = max(both, sum(sizes.plastic)) if fitted else sizes.confirmation
        split = f"main-{task}-{'fit' if fitted else role}"
        of = replace(bank, split=split, starts=starts, seed=place.seed)
        part = {"fit": (0, sizes.fit), "calibration": (sizes.fit, both)}.get(role)
        found = [Case(FIRST[task], of, part=part, **more)]
        if role == "confirmation" and task in STRICTER:
            found.append(Case("strict", of, rule=STRICTER[task], scale=MAIN / STRICT, **more))
        if role == "confirmation" and task == "pusht":
            few = replace(of, split=f"main-{task}-{EARLIER}", starts=min(32, starts))
            found.append(Case(EARLIER, few, **more))
        return found

    return cases


def _evidence(dense: tuple[str, ...]) -> Callable[[Bank, str], Evidence]:
    """Evidence from stored predictions; nothing is fitted on costs of adapted predictors."""

    def evidence(bank: Bank, look: str) -> Evidence:
        return with_adapted(bank, FOUR, (*dense, PLASTIC))

    return evidence


def _recipe(task: str, there: tuple[str, ...], fused: str, dense: str) -> Recipe:
    """The recipe of a task. On Reacher D-JEPA as published is fitted with its transport instead."""
    published = {"pusht": AlignConfig()}
    published |= dict.fromkeys(STRICTER, relational_over((dense,), (dense,)))
    density = (dense,) if task in STRICTER else PAIR
    ours = careful(there, density, "log" if task == "pusht" else "log+ranks")
    known = {"relational": published[task]} if task in published else {}
    mixtures = {fused: (there, None), f"consensus + {fused}": (there, dense)}
    return Recipe(mixtures, {**known, OURS: ours})


def _transported(study: Study, group: str, say: Say) -> Mapping[str, Any]:
    from djepa.studies.reacher import fit_transported  # needs MuJoCo

    return {"relational": fit_transported(study, group, say).relational}


FIRST = {"pusht": "published", "reacher": "reference", "granular": "main", "fine": "main"}
STRICTER = {"granular": "granular-strict.v1", "fine": "granular-fine-strict.v1"}  # of grains
FUSED = {FOUR: "fusion, four", PAIR: "fusion, two"}
BANKS = {
    "pusht": CollectConfig(profile=RETAINED, block=16),
    "reacher": CollectConfig("reacher", profile="reference-control"),
    "granular": CollectConfig("granular", block=4),
    "fine": CollectConfig("granular", shape="piles-200", rule="granular-fine.v1", block=4),
}
PRINTED = {
    "pusht": {"published, eligible": (paper.RETAINED, "")},
    "reacher": {"reference": ("reference-control", "")},
    **{task: {rule: ("replay", rule) for rule in ("main", "strict")} for task in STRICTER},
}
# Method, whether its decision is written into the futures: what the paper deploys.
DEPLOYED = (("relational", False), ("composition", False), ("relational", True))
UNITS = {
    "reacher": (TOLERANCE, "The larger error of the two joints, in rad; solved below 0.05."),
    "granular": (MAIN, "Chamfer distance in table units; both rules judge the same one."),
    "fine": (MAIN, f"Chamfer distance in units of 1 / {FINE:g} of the table's."),
}
SIZES = {
    "pusht": {
        "quick": Sizes(48, 16, 32, repeats=3, timed=16, updates=60),
        "cpu": Sizes(448, 64, 400, plastic=(384, 128), repeats=3, timed=256, adapted=150),
        "paper": Sizes(448, 64, 400, plastic=(384, 128)),
        "large": Sizes(448, 64, 2048, plastic=(384, 128)),
    },
    "reacher": {
        "quick": Sizes(48, 16, 32, updates=60),
        "cpu": Sizes(384, 128, 128, adapted=150),
        "paper": Sizes(384, 128, 128),
        "large": Sizes(384, 128, 2048),
    },
    **{
        task: {
            "quick": Sizes(16, 8, 16, updates=60),
            "cpu": Sizes(32, 16, 64, adapted=150),
            "paper": Sizes(32, 16, 64),
            "large": Sizes(192, 64, 256),
        }
        for task in STRICTER
    },
}


def main_design(task: str) -> Design:
    """Every method of the main table that the weights of a task allow."""
    there = trained(task) or FOUR  # without weights, running it reports the missing ones
    fused, grains = FUSED.get(there, "fusion"), task in STRICTER
    dense = "tdjepa"  # whose last latents make pool density, and the published operator on grains
    if grains:
        dense = "dinowm" if "dinowm" in there else there[0]
    adapted = ADAPTED if "tdjepa" in there else {}
    natives = {f"native {name}": name for name in there}
    first = NATIVE if adapted else next(iter(natives))
    more: dict[str, Any] = {}
    if task == "pusht":
        more["proposer"] = lambda device: RetainingProposer("tdjepa", device=device)
    fitted = ("plasticity",) if task == "pusht" else ()  # composition is PushT's
    weights = named(task, "tdjepa")
    return Design(
        name=f"main-{task}",
        title=f"The main table: {TITLES[task]}",
        question=QUESTION,
        weights=tuple(named(task, name) for name in there),
        sizes=SIZES[task],
        cases=_cases(task, BANKS[task], **more),
        evidence=_evidence((dense,) if grains else PAIR),
        recipe=_recipe(task, there, fused, dense),
        natives={first: natives[first], **natives, **adapted},
        density=() if grains else ("tdjepa",),
        fusion=fused,
        control=f"consensus + {fused}",
        base=f"native {dense}" if grains else fused,
        against=tuple(adapted),
        adapted=tuple(adapted),
        measures=(
            *((calibrated(tuple(adapted), (FIRST[task],)),) if adapted else ()),
            *((preservation(NATIVE, adapted, weights),) if adapted else ()),
            films((first, OURS), also=(fused,)),
            inspector((first, fused, "relational", OURS), first, (3, 1, 1), (FIRST[task],)),
            *((deployment(DEPLOYED, dense, (FIRST[task],)),) if task == "pusht" else ()),
        ),
        summary=grains,
        sparse=EXECUTED if grains else 0,
        eligible=near_boundary if task == "pusht" else Design.eligible,
        rule=BOUNDARY if task == "pusht" else "",
        paper=PRINTED[task],
        task="granular" if grains else task,
        unit=UNITS.get(task),
        prepare=adapting(weights, fitted) if adapted else None,
        extra=_transported if task == "reacher" else None,
    )


TITLES = {
    "pusht": "PushT",
    "reacher": "Reacher",
    "granular": "100 grains",
    "fine": "200 grains, goals of two kinds",
}
MAIN_PUSHT, MAIN_REACHER, MAIN_GRANULAR, MAIN_FINE = (main_design(task) for task in TITLES)
