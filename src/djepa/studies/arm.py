"""The arm study: a PiPER-class arm, a planner with V-JEPA 2-AC's interface, two tasks.

    native       lowest energy in the final population of the search
    fusion       ranks of the energy and of the error of the tool's predicted pose
    relational   terminal directions and both ranks, bounded correction             (App. G)
    D-JEPA       mixture of both costs, density if folds gain by it, careful gate

The pool of a start is the final population of a cross-entropy search: only the model's own energy
compares iterations, ranks are taken within the final population, and the chosen sequence is sent
unchanged. No pool contains a reference.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from djepa.align.fit import AlignConfig
from djepa.align.presets import careful, mixed
from djepa.align.registry import label
from djepa.align.suite import Recipe
from djepa.bank.read import Bank
from djepa.errors import check_name
from djepa.evaluate.intervals import rate_of
from djepa.evaluate.rows import successes
from djepa.evidence.evidence import Evidence
from djepa.models.ac import ActionConditioned
from djepa.models.planner_pool import PLANNER, CEMProposer
from djepa.models.source import source_name, source_place
from djepa.models.vjepa2 import VJEPA2AC
from djepa.pools.cem import CEM
from djepa.report.results import pair_of
from djepa.report.tables import Table
from djepa.rollout.execute import CollectConfig
from djepa.studies.design import ROLES, Case, Design, Measure, Place, Sizes, split_of
from djepa.studies.measures.costs import costs
from djepa.studies.measures.decisions import films, inspector
from djepa.studies.populations import evidence_from
from djepa.studies.results import Results
from djepa.worlds.arms.starts import AXES, CONTROLS

WEIGHTS = "arm-ac"
SOURCES = ("energy", "pose")
FUSION, CONTROL, OURS = "fusion", "consensus + fusion", "D-JEPA"
SEARCH = CEM(samples=64, iterations=6, elites=10, keep=63, momentum=0.15)


def _propose(task: str, weights: str, device: str) -> CEMProposer:
    """The search; by the shipped model always on a CPU, where it repeats to the last bit."""
    on = "cpu" if weights == WEIGHTS else device
    return CEMProposer(weights, SEARCH, horizon=CONTROLS, device=on, axes=AXES[task])


def _cases(role: str, sizes: Sizes, place: Place, weights: str = WEIGHTS) -> list[Case]:
    if role not in ROLES[:3]:
        return []
    split, starts = split_of("arm", role), getattr(sizes, role)
    return [
        Case(
            task,
            CollectConfig("arm", task, profile=PLANNER, split=split, starts=starts,
                          seed=place.seed, block=4),
            group=task,
            proposer=partial(_propose, task, weights),
        )
        for task in AXES
    ]  # fmt: skip


def _evidence(bank: Bank, look: str, model: str = ActionConditioned.name) -> Evidence:
    """The energy, the error of the predicted pose, and the predicted final latents."""
    columns = {"energy": (model, ""), "pose": (model, "proprio")}
    return evidence_from(bank, columns, {"energy": model})


def _trials(results: Results) -> Iterator[Table]:
    """Gains and losses against native selection, for each task and both together."""
    rows = {case: of for case, of in results.rows.items() if of}
    seen = {case: {case: of} for case, of in rows.items()}
    if len(seen) > 1:
        seen["both"] = rows
    lines = []
    for view, of in seen.items():
        solved = [successes(part) for part in of.values()]
        for name in ("native", FUSION, "relational", OURS, "oracle"):
            if name in solved[0]:
                own = rate_of(np.concatenate([part[name] for part in solved]))
                p = pair_of(of, name, "native")
                counts = ("", "", "") if p is None else (str(p.gains), str(p.losses), f"{p.p:.2g}")
                lines.append((view, label(name), str(own.of), f"{100 * own.share:.1f}", *counts))
    if lines:
        yield Table(
            "trials",
            "Gains and losses beside the planner's own choice",
            ("task", "method", "trials", "success %", "gained", "lost", "p"),
            tuple(lines),
            "p: two-sided sign test of gained and lost trials. Published, on hardware, 50 trials "
            f"each: {', '.join(_printed(results, task) for task in AXES)}.",
        )


def _printed(results: Results, task: str) -> str:
    """The paper's success and counts, such as `push 56 to 74 (12 gained, 3 lost)`."""
    ours = ("success", "gains over native", "losses to native")
    kinds = [("native", "success"), *(("relational", quantity) for quantity in ours)]
    found = [results.beside(task, *kind) for kind in kinds]
    return "{} {} to {} ({} gained, {} lost)".format(task, *(f"{x.value:.0f}" for x in found if x))


ARM = Design(
    name="arm",
    title="Does alignment choose better for one arm?",
    question=(
        "A simulated PiPER-class arm **pushes a T** to a goal pose, or **stacks a cube** that must "
        "still lie on the other one two seconds after the gripper has withdrawn. A small "
        "action-conditioned model with V-JEPA 2-AC's interface sees the table through the front "
        "camera and searches for five controls; the last population of its search is the pool.",
        "Native selection sends the candidate of lowest energy. D-JEPA chooses another one of the "
        "same pool, from the energy and the predicted pose of the tool. Model, search and "
        "low-level controller are the same for every method.",
    ),
    weights=(WEIGHTS,),
    sizes={
        "quick": Sizes(40, 20, 50, updates=300),
        "paper": Sizes(192, 96, 50),  # trials of each task, as published
        "large": Sizes(192, 96, 256),  # 512 trials
    },
    cases=_cases,
    evidence=_evidence,
    recipe=Recipe(
        mixtures={FUSION: (SOURCES, None), CONTROL: (SOURCES, "energy")},
        alignments={
            "relational": AlignConfig(dense=("energy",), ranked=SOURCES, base=SOURCES),
            "mixture": mixed(SOURCES, ("energy",)),
            OURS: careful(SOURCES, ("energy",)),
        },
    ),
    natives={"native": "energy", "proprio alone": "pose"},
    density=("energy",),
    fusion=FUSION,
    control=CONTROL,
    base="native",
    against=("proprio alone", "relational", "mixture"),
    measures=(
        Measure("trials", "Gains and losses", tables=_trials),
        costs((OURS,), "native", {"solved below": 1.0}),
        films(("native", OURS), also=(FUSION,)),
        inspector(("native", FUSION, CONTROL, "relational", OURS), "native", (3, 1, 1)),
    ),
    summary=True,
    pools=dict.fromkeys(AXES, "the last population of a search by the model"),
    task="piper",
    paper={"push": ("cross-entropy search", "push T"), "stack": ("cross-entropy search", "stack")},
)


def arm_with(weights: str | Path) -> Design:
    """The study with another model of the same interface: a folder of weights or a published file.

    It searches, predicts and is the native method; see `djepa.models.source`.
    """
    where, model = source_place(weights), source_name(weights)
    check_name("geometry of the arm", model, (ActionConditioned.name, VJEPA2AC.name))
    cases = partial(_cases, weights=where)
    return replace(ARM, weights=(where,), cases=cases, evidence=partial(_evidence, model=model))
