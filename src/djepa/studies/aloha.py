"""The method of the bimanual study on gym-aloha's two tasks, with third-party physics.

Arms, objects, contacts and rewards are the environment's. Candidates, evidence and the positions of
two cameras are ours; fits and baselines are those of `djepa.studies.bimanual`.
"""

from dataclasses import replace

from djepa.bank.bimanual import collect_bimanual
from djepa.evaluate.verdict import Comparison
from djepa.models.aloha import policy_hash, propose
from djepa.rollout.bimanual import BimanualConfig
from djepa.studies.bimanual import (
    BIMANUAL,
    COLUMNS,
    NATIVES,
    SPLITS,
    recipe_of,
    simple_evidence,
)
from djepa.studies.bimanual_fits import PRESERVED
from djepa.studies.design import Case, Place, Sizes, share_out, split_of
from djepa.studies.measures.bimanual import LENGTHS, VIEWS
from djepa.studies.stages import Say
from djepa.studies.study import Study
from djepa.worlds.aloha import RULES, TASKS


def _cases(role: str, sizes: Sizes, place: Place) -> list[Case]:
    if role not in SPLITS:
        return []
    name, shares = split_of("aloha", role), share_out(getattr(sizes, role), tuple(TASKS))
    return [
        Case(task, BimanualConfig(name, task, many, place.seed, world="aloha", rule=RULES[0]))
        for task, many in shares.items()
        if many
    ]


def _collect(study: Study, case: Case, say: Say) -> str:
    assert isinstance(case.bank, BimanualConfig)
    config = replace(case.bank, policy=policy_hash())
    say(f"  {config.starts} starts: {case.folder}")
    target = study.out / "banks" / case.folder
    return collect_bimanual(target, config, study.place.engine, propose).hash


assert BIMANUAL.source is not None
ALOHA = replace(
    BIMANUAL,
    name="aloha",
    title="Does it help somebody else's two arms?",
    question=(
        "gym-aloha has two ViperX arms and two tasks: **transfer cube**, in which one arm hands a "
        "cube to the other, and **insertion**, in which a peg goes into a socket. Its physics, "
        "objects and rewards are unchanged; success is its largest reward.",
        "A linear policy reads the colours of the view from above and gives the **native chunk**. "
        "Beside it stand 16 variants of a scripted demonstration, moved to where the same view "
        "says that the arms should grasp, with the published offsets. All 17 are executed from one "
        "restored state. The view from above and one at an angle differ a little between starts, "
        "each in its own way, and only pictures show it.",
        "Evidence, controls and methods are those of the bimanual study, without its patch JEPA, "
        "which was trained on other scenes. Here the **scene** is what the view at an angle says.",
    ),
    sizes={
        "quick": Sizes(32, 16, 32, audit=16, updates=300),
        "paper": Sizes(64, 32, 128, audit=60),
        "large": Sizes(256, 128, 512, audit=256),
    },
    cases=_cases,
    evidence=simple_evidence,  # type: ignore[arg-type]  # no patch JEPA sees these scenes
    prepare=None,
    recipe=recipe_of(tuple(COLUMNS), ("scene",)),
    natives=NATIVES,
    density=("scene",),
    declared=(Comparison.of(PRESERVED, *NATIVES), *BIMANUAL.declared[1:]),
    measures=(LENGTHS, VIEWS),
    pools=dict.fromkeys(TASKS, "one native chunk and 16 variants"),
    task="aloha",  # the paper has no figures for it
    paper={},
    paper_names={},
    source=replace(BIMANUAL.source, collect=_collect),
)
