"""The granular study: one patch model, seen from four sides, few executed candidates.

    relational   2,304 numbers of where predicted and wanted grains differ + the base rank  (App. A)
    multi-view   four ranks: the same model sees the table turned by 0, 90, 180 and 270 degrees
    D-JEPA       mixture of the views' costs, density and ranks if folds gain by them, careful gate

Only 16 of 63 candidates of a fitting or calibration start count as executed; the others are
unobserved, not failures. The effect is measured against fits on all candidates.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from djepa.align.fit import AlignConfig
from djepa.align.methods import aligned, successes
from djepa.align.operator import OperatorConfig
from djepa.align.presets import careful, mixed
from djepa.align.registry import label
from djepa.align.suite import Recipe, fit_suite
from djepa.bank.read import Bank
from djepa.evaluate.intervals import Rate
from djepa.evidence.evidence import Evidence
from djepa.models.predictions import evidence_name, predict_bank
from djepa.models.weights import load_geometry, weights_hash
from djepa.report.curves import threshold_curve
from djepa.report.tables import Table
from djepa.rollout.execute import CollectConfig
from djepa.studies.design import ROLES, Case, Design, Measure, Place, Sizes, split_of
from djepa.studies.measures.costs import costs
from djepa.studies.measures.decisions import films, inspector
from djepa.studies.populations import evidence_from
from djepa.studies.results import Results
from djepa.studies.stages import Say
from djepa.studies.study import Study
from djepa.tasks.task import get_task
from djepa.worlds.chamfer import MAIN, STRICT

VIEWS = get_task("granular").looks
FUSION, CONTROL, OURS = "multi-view fusion", "consensus + fusion", "D-JEPA"
EXECUTED = 16
WEIGHTS = "granular-dinowm"
THRESHOLDS = np.round(np.arange(0.06, 0.4001, 0.01), 3)
MARKS = {"strict": STRICT, "main": MAIN}


def _evidence(bank: Bank, look: str) -> Evidence:
    """Costs of the four views, and the final latents that the first predicts."""
    of = {view: evidence_name("dinowm", view) for view in VIEWS}
    columns = {view: (name, "") for view, name in of.items()}
    return evidence_from(bank, columns, {"plain": of["plain"]})


def _cases(role: str, sizes: Sizes, place: Place) -> list[Case]:
    if role not in ROLES[:3]:
        return []
    split, starts = split_of("granular", role), getattr(sizes, role)
    bank = CollectConfig("granular", split=split, starts=starts, seed=place.seed, block=4)
    cases = [Case("main", bank)]
    if role == "confirmation":
        cases.append(Case("strict", bank, rule="granular-strict.v1", scale=MAIN / STRICT))
    return cases


def _other_views(study: Study, group: str, say: Say) -> None:
    """Predict and store the other three views."""
    model, of = load_geometry(WEIGHTS, study.place.device), weights_hash(WEIGHTS)
    for role in ROLES[:3]:
        bank = study.bank(study.cases(role)[0])
        for view in VIEWS[1:]:
            say(f"  {role}, {view}")
            predict_bank(
                bank,
                model,
                of,
                study.place.device,
                look=view,
                summary=True,
                engine=study.place.engine,
            )


def _sparsity(study: Study, case: Case, say: Say) -> dict[str, Any]:
    """Method -> starts solved when fitted on few candidates, and when fitted on all of them."""
    dense = replace(study, design=replace(study.design, sparse=0))
    card, folder = study.card("all", labels="dense"), study.out / "fits" / "dense"
    suite = fit_suite(
        folder,
        *dense.parts("all"),
        card,
        lambda line: say(f"  dense: {line}"),
        recipe=study.recipe,
        engine=study.place.engine,
    )
    test = study.population("confirmation", case)
    few = study.choosers("all", test.evidence.names)
    many = {name: aligned(a) for name, a in suite.alignments.items()} | suite.mixtures
    solved = {}
    for name, choose in many.items():
        hits = successes({"few": few[name], "many": choose}, test)
        solved[name] = [int(hits["few"].sum()), int(hits["many"].sum())]
    return {"starts": len(test.evidence), "solved": solved}


def _sparsity_tables(results: Results) -> Iterator[Table]:
    lines = tuple(
        (case, label(name), *(Rate(h, of["starts"]).percent(interval=True) for h in hits))
        for case, of in results.measured("sparsity").items()
        for name in results.methods
        if (hits := of["solved"].get(name))
    )
    if lines:
        yield Table(
            "sparsity",
            f"Fitted on {EXECUTED} executed candidates of a start, and on all 63",
            ("case", "method", f"{EXECUTED} executed", "all executed"),
            lines,
            "The same starts, evidence and settings; success with 95 % intervals.",
        )


SPARSITY = Measure(
    name="sparsity",
    title="Few executed candidates",
    text=("What it costs that most candidates of a fitting start were not executed.",),
    run=_sparsity,
    tables=_sparsity_tables,
)


def _thresholds(results: Results, folder: Path) -> Iterator[tuple[str, str]]:
    """Success by threshold of the Chamfer distance."""
    rows = results.rows.get("main", [])
    curves = {}
    for name in ("native", "anchor", FUSION, "relational", OURS, "oracle"):
        if paid := [MAIN * row.cost for row in rows if row.method == name]:
            curves[label(name)] = (np.array(paid)[:, None] < THRESHOLDS).mean(0)
    if curves:
        threshold_curve(folder / "thresholds", THRESHOLDS, curves, MARKS)
        yield "thresholds", "Success of the same choices, by the threshold that a rule might set."


def relational_over(dense: tuple[str, ...], ranked: tuple[str, ...]) -> AlignConfig:
    """The published operator of this task."""
    return AlignConfig(
        dense=dense,
        ranked=ranked,
        base=ranked,
        operator=OperatorConfig(inputs=1, norm_first=True),
        updates=1500,
        batch=16,
        every=25,
        seed=20260831,
    )


GRANULAR = Design(
    name="granular",
    title="Does alignment choose better pushes?",
    question=(
        "A board pushes a pile of a hundred grains; five pushes make a candidate. A start is "
        "solved when the Chamfer distance of the grains to the goal's is below 0.18 (**main**) or "
        "0.12 (**strict**). A pool holds 63 transformations of a recorded attempt; candidate 1 is "
        "the recorded attempt itself.",
        f"Supervision is sparse: {EXECUTED} of 63 candidates of a fitting start are executed.",
    ),
    weights=(WEIGHTS,),
    sizes={
        "quick": Sizes(16, 8, 16, updates=300),
        "paper": Sizes(32, 16, 64),
        "large": Sizes(192, 64, 256),
    },
    cases=_cases,
    evidence=_evidence,
    recipe=Recipe(
        mixtures={FUSION: (VIEWS, None), CONTROL: (VIEWS, "plain")},
        alignments={
            "relational": relational_over(("plain",), ("plain",)),
            "multi-view": relational_over((), VIEWS),
            "log costs": mixed(VIEWS, (), "log"),
            "mixture": mixed(VIEWS, ("plain",)),
            OURS: careful(VIEWS, ("plain",)),
        },
    ),
    natives={"native": "plain", **{f"native, {view}": view for view in VIEWS[1:]}},
    density=("plain",),
    fusion=FUSION,
    control=CONTROL,
    base="native",
    against=("anchor", "mixture"),
    measures=(
        SPARSITY,
        Measure("thresholds", "Other thresholds", figures=_thresholds),
        costs((OURS, "relational"), "native", MARKS, MAIN, ("main",)),
        films(("native", OURS), also=(FUSION,)),
        inspector(("native", FUSION, CONTROL, "relational", OURS), "native", (3, 1, 1), ("main",)),
    ),
    summary=True,
    sparse=EXECUTED,
    paper={rule: ("replay", rule) for rule in ("main", "strict")},
    paper_names={"native dinowm": "native"},
    unit=(MAIN, "Chamfer distance in table units; both rules judge the same one."),
    prepare=_other_views,
    first="anchor",
)
