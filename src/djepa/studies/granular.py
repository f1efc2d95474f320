"""The granular study: one patch geometry, seen from four sides, few executed candidates.

    relational   2,304 numbers of where predicted and wanted grains differ + the base rank  (App. A)
    multi-view   four ranks: the same backbone sees the table turned by 0, 90, 180 and 270 degrees
    D-JEPA       mixture of the views' costs, density and ranks if folds want them, careful gate

Only 16 of 63 candidates of a fitting or calibration start count as executed: what was not executed
is never a failure. What that costs is measured against fits on all of them.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from djepa.align.fit import AlignConfig
from djepa.align.methods import Population, aligned, successes
from djepa.align.operator import OperatorConfig
from djepa.align.presets import careful, mixed
from djepa.align.suite import Recipe, fit_suite
from djepa.bank.read import Bank
from djepa.evaluate.intervals import rate_of
from djepa.evidence.evidence import Evidence
from djepa.models.predictions import evidence_name, predict_bank
from djepa.models.weights import load_geometry, weights_hash
from djepa.report.shifts import paired_costs, threshold_curve
from djepa.rollout.execute import CollectConfig
from djepa.studies.case_pages import case_rows
from djepa.studies.cases import ROLES, Case, CaseStudy, Design, evidence_from, split_of
from djepa.studies.stages import Say
from djepa.tasks.task import get_task
from djepa.worlds.chamfer import MAIN, STRICT

VIEWS = get_task("granular").looks
FUSION, CONTROL, OURS = "multi-view fusion", "consensus + fusion", "D-JEPA"
EXECUTED = 16
WEIGHTS = "granular-dinowm"
THRESHOLDS = np.round(np.arange(0.06, 0.4001, 0.01), 3)


def _evidence(bank: Bank, look: str) -> Evidence:
    """Costs of the four views, and where the first says that grains end."""
    of = {view: evidence_name("dinowm", view) for view in VIEWS}
    columns = {view: (name, "") for view, name in of.items()}
    return evidence_from(bank, columns, {"plain": of["plain"]})


def _cases(role: str, starts: int, seed: int) -> list[Case]:
    bank = CollectConfig(
        "granular", split=split_of("granular", role), starts=starts, seed=seed, block=4
    )
    cases = [Case("main", bank)]
    if role == "confirmation":
        cases.append(Case("strict", bank, rule="granular-strict.v1", scale=MAIN / STRICT))
    return cases


def _look_round(study: CaseStudy, say: Say) -> None:
    """The other three views, beside the first."""
    model, of = load_geometry(WEIGHTS, study.place.device), weights_hash(WEIGHTS)
    for role in ROLES:
        bank = study.bank(role, study.cases(role)[0])
        for view in VIEWS[1:]:
            say(f"  {role}, {view}")
            predict_bank(bank, model, of, study.place.device, look=view, summary=True)


def _measure(study: CaseStudy, say: Say) -> dict[str, Any]:
    """The same methods fitted on all candidates: what sparse supervision costs."""
    dense = replace(study, design=replace(study.design, sparse=0))
    parts = [dense.population(role, dense.cases(role)[0]) for role in ROLES[:2]]
    card, folder = study.card("all", labels="dense"), study.out / "fits" / "dense"

    def told(line: str) -> None:
        say(f"  dense: {line}")

    suite = fit_suite(folder, parts[0], parts[1], card, told, recipe=study.recipe)
    rows, choosers = [], study.choosers("all")
    for case in study.cases("confirmation"):
        test = study.population("confirmation", case)
        for name in study.recipe.alignments:
            few = successes({name: choosers[name]}, test)[name]
            many = successes({name: aligned(suite.alignments[name])}, test)[name]
            rows.append([case.name, name, *(_said(x) for x in (few, many))])
        rows += _mixtures(study, suite.mixtures, test, case.name)
    table = {
        "name": "sparsity",
        "title": f"{EXECUTED} executed candidates of a fitting start against all 63",
        "columns": ["case", "method", f"{EXECUTED} executed", "all executed"],
        "rows": rows,
        "note": "The same starts, evidence and settings; success with 95 % intervals.",
    }
    return {"tables": [table]}


def _mixtures(study: CaseStudy, mixtures: Any, test: Population, case: str) -> list[list[str]]:
    few, found = study.suite("all").mixtures, []
    for name, mixture in mixtures.items():
        hits = successes({"few": few[name], "many": mixture}, test)
        found.append([case, name, _said(hits["few"]), _said(hits["many"])])
    return found


def _said(hits: Any) -> str:
    return rate_of(np.asarray(hits.cpu())).percent(interval=True)


def _figures(study: CaseStudy) -> list[Path]:
    """Success by threshold, and paired Chamfer distances."""
    rows, folder = case_rows(study)["main"], study.out / "figures"
    distances = {
        name: np.array([MAIN * row.cost for row in rows if row.method == name])
        for name in ("native", "anchor", FUSION, "relational", OURS, "oracle")
    }
    curves = {name: (of[:, None] < THRESHOLDS).mean(0) for name, of in distances.items() if len(of)}
    marks = {"strict": STRICT, "main": MAIN}
    made = threshold_curve(folder / "thresholds", THRESHOLDS, curves, marks)
    for ours in (OURS, "relational"):
        pair = (distances[ours], distances["native"])
        names, stem = (ours, "native"), folder / f"costs-{ours.lower()}"
        made += paired_costs(stem, *pair, names, marks, log=True)
    return made


RECIPE = Recipe(
    mixtures={FUSION: (VIEWS, None), CONTROL: (VIEWS, "plain")},
    alignments={
        "relational": AlignConfig(
            dense=("plain",),
            ranked=("plain",),
            base=("plain",),
            operator=OperatorConfig(inputs=1, norm_first=True),
            updates=1500,
            batch=16,
            every=25,
            seed=20260831,
        ),
        "multi-view": AlignConfig(
            dense=(),
            ranked=VIEWS,
            base=VIEWS,
            operator=OperatorConfig(inputs=1, norm_first=True),
            updates=1500,
            batch=16,
            every=25,
            seed=20260831,
        ),
        "log costs": mixed(VIEWS, (), "log"),
        "mixture": mixed(VIEWS, ("plain",)),
        OURS: careful(VIEWS, ("plain",)),
    },
)
GRANULAR = Design(
    name="granular",
    title="Does alignment choose better pushes?",
    question=(
        "A board pushes a pile of a hundred grains; five pushes make a candidate. A start is "
        "solved when the Chamfer distance of the grains to the goal's is below 0.18 (**main**) or "
        "0.12 (**strict**). A pool holds 63 transformations of a recorded attempt; candidate 1 is "
        "the attempt itself, the **anchor**.",
        f"Supervision is sparse: {EXECUTED} of 63 candidates of a fitting start are executed.",
    ),
    weights=(WEIGHTS,),
    sizes={"quick": (16, 8, 16), "paper": (32, 16, 64), "large": (192, 64, 256)},
    cases=_cases,
    evidence=_evidence,
    recipe=RECIPE,
    natives={"native": "plain", **{f"native, {view}": view for view in VIEWS[1:]}},
    density=("plain",),
    methods=(
        "random",
        "anchor",
        "consensus plain",
        "native",
        *(f"native, {view}" for view in VIEWS[1:]),
        FUSION,
        CONTROL,
        "relational",
        "multi-view",
        "log costs",
        "mixture",
        OURS,
        "oracle",
    ),
    against=("native", "anchor", FUSION, CONTROL, "mixture"),
    summary=True,
    sparse=EXECUTED,
    paper={
        ("main", "native"): 35.94,
        ("main", "relational"): 39.06,
        ("strict", "native"): 7.81,
        ("strict", "relational"): 18.75,
    },
    paper_cost={("main", "native"): 0.341, ("main", "relational"): 0.358},
    unit=(MAIN, "Chamfer distance in table units; both rules judge the same one."),
    prepare=_look_round,
    measure=_measure,
    figures=_figures,
    first="anchor",
)
