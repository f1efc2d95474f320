"""The method of the bimanual study on gym-aloha's two tasks, with third-party physics.

Arms, objects, contacts and rewards are the environment's. Candidates, evidence and the positions of
two cameras are ours; fits and baselines are those of `djepa.studies.bimanual`.
"""

from dataclasses import replace

from djepa.evaluate.verdict import Comparison
from djepa.models.aloha import policy_hash, propose
from djepa.studies.bimanual import (
    BIMANUAL,
    COLUMNS,
    NATIVES,
    cases_of,
    collect_with,
    recipe_of,
    simple_evidence,
)
from djepa.studies.bimanual_fits import PRESERVED
from djepa.studies.design import Sizes
from djepa.studies.measures.bimanual import LENGTHS, VIEWS
from djepa.worlds.aloha import RULES, TASKS

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
    cases=cases_of("aloha", TASKS, world="aloha", rule=RULES[0]),
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
    source=replace(BIMANUAL.source, collect=collect_with(policy_hash, propose)),
)
