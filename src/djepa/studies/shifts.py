"""Unseen shapes and changed appearance: one model, three ranks, one fit for all seen conditions.

    evidence   visual error, proprioceptive error, their native sum (joint)
    base       calibrated fusion of the visual and the proprioceptive rank
    operator   three coordinates, task-local loss and gate                      (App. A)

Shapes: fitted on T, L, Z and +, confirmed on I, small T and square. Appearance: fitted on all
seven looks of the same starts, confirmed on all seven looks of others; once with the looks of
the stored rows, once with milder ones.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from djepa.align.fit import task_local
from djepa.align.presets import careful, mixed
from djepa.align.suite import Recipe
from djepa.bank.read import Bank
from djepa.evidence.evidence import Evidence
from djepa.models.predictions import evidence_name
from djepa.report.frames import looks_picture
from djepa.rollout.execute import CollectConfig
from djepa.studies.design import ROLES, Case, Design, Measure, Place, Sizes, share_out, split_of
from djepa.studies.measures.decisions import FILM, films, inspector
from djepa.studies.populations import evidence_from
from djepa.studies.results import Results
from djepa.studies.stages import Say
from djepa.studies.study import Study
from djepa.tasks.task import Scene
from djepa.worlds.looks import LOOK_SETS

CLEAN = "clean"
FITTED, UNSEEN = ("T", "L", "Z", "+"), ("I", "small-T", "square")
CONDITIONS = LOOK_SETS["looks.v1"]  # of the stored rows
MILDER = LOOK_SETS["looks.v2"]  # with severities chosen by a rule
INPUTS = ("visual", "proprio", "joint")
OURS, FUSION, CONTROL = "D-JEPA", "fusion", "consensus + fusion"
PUBLISHED = "visual-shape"  # the profile of both


def _evidence(bank: Bank, look: str) -> Evidence:
    of = evidence_name("jepawm", look)
    columns = {"visual": (of, "visual"), "proprio": (of, "proprio"), "joint": (of, "")}
    return evidence_from(bank, columns, {"joint": of})


def _shape_cases(role: str, sizes: Sizes, place: Place) -> list[Case]:
    """Published pools, and decoy pools, in which density does not reveal the solution."""
    if role not in ROLES[:3]:
        return []
    names, found, split = UNSEEN if role == "confirmation" else FITTED, [], split_of("shapes", role)
    for group, profile in {"published": PUBLISHED, "decoy": "decoy"}.items():
        for shape, n in share_out(getattr(sizes, role), names).items():
            bank = CollectConfig(
                "push", shape, profile=profile, split=split, starts=n, seed=place.seed
            )
            name = shape if group == "published" else f"{shape}-decoy"
            found.append(Case(name, bank, CLEAN, group))
    return found


def _looking(looks: tuple[str, ...]) -> Callable[[str, Sizes, Place], list[Case]]:
    """Cases with one bank per role, seen in each of these looks."""

    def cases(role: str, sizes: Sizes, place: Place) -> list[Case]:
        if role not in ROLES[:3]:
            return []
        split, starts = split_of("appearance", role), getattr(sizes, role)
        bank = CollectConfig(
            "push", "T", profile=PUBLISHED, split=split, starts=starts, seed=place.seed
        )
        return [Case(look, bank, look) for look in looks]

    return cases


def _shown(looks: tuple[str, ...]) -> Measure:
    """The first start and its goal in all looks, as frames."""

    def run(study: Study, case: Case, say: Say) -> list[str]:
        bank = study.bank(case)
        states = torch.from_numpy(np.stack([bank.decisions.state[0], bank.decisions.goal[0]]))
        frames: dict[str, Any] = {
            look: Scene("push", bank.config.shape, look).observe(states, FILM)[0].numpy()
            for look in looks
        }
        study.keep_arrays("looks", case.name, frames)
        return list(looks)

    def figures(results: Results, folder: Path) -> Iterator[tuple[str, str]]:
        for frames in results.arrays("looks").values():
            looks_picture(folder / "looks", {look: tuple(frames[look]) for look in looks})
            yield "looks", "One start and its goal."

    return Measure("looks", "The seven looks", run=run, figures=figures, only=looks[:1])


def _printed(looks: tuple[str, ...]) -> dict[str, tuple[str, str]]:
    """Case -> the paper's case; its conditions have the same names, but other severities."""
    return {look: (PUBLISHED, look.removesuffix(".v2")) for look in looks} | {
        "all": (PUBLISHED, "mean")
    }


SHOWN = inspector(("native", FUSION, CONTROL, "relational", OURS), "native", (3, 1, 1))
SHAPES = Design(
    name="shapes",
    title="Do learned relations carry over to unseen shapes?",
    question=(
        "One model was trained on the blocks T, L, Z and +, and so was everything fitted here. "
        "Every candidate below pushes a block that none of it has seen: **I**, **small T** and "
        "**square**. The model's cost has a visual and a proprioceptive part; calibrated fusion "
        "mixes their ranks, and an operator over three ranks may correct that.",
        "The published pools are perturbations of a hidden solution, so pool density alone finds "
        "it: the control **fusion + pool density** shows how far that goes. In decoy pools the "
        "solution is one of four centres.",
    ),
    weights=("shapes-jepawm",),
    sizes={
        "quick": Sizes(64, 32, 48, updates=300),
        "paper": Sizes(512, 256, 300),
        "large": Sizes(512, 256, 1536),
    },
    cases=_shape_cases,
    evidence=_evidence,
    recipe=Recipe(
        mixtures={FUSION: (INPUTS[:2], None), CONTROL: (INPUTS[:2], "joint")},
        alignments={
            "relational": task_local(INPUTS),
            "log costs": mixed(INPUTS, (), "log"),
            "mixture": mixed(INPUTS, ("joint",)),
            OURS: careful(INPUTS, ("joint",)),
        },
    ),
    natives={"native": "joint", "visual alone": "visual", "proprio alone": "proprio"},
    density=("joint",),
    fusion=FUSION,
    control=CONTROL,
    against=("mixture",),
    measures=(films(("native", OURS), UNSEEN, (FUSION,)), SHOWN),
    summary=True,
    together=True,
    paper={s: (PUBLISHED, s) for s in UNSEEN} | {"all published": (PUBLISHED, "mean")},
)
APPEARANCE = replace(
    SHAPES,
    name="appearance",
    title="Do choices hold when the picture changes?",
    question=(
        "The same starts seen in seven ways: clean, blurred, with salt and pepper, darkened, and "
        "with another colour of the block, of the marker and of the pusher. The model was trained "
        "on clean frames alone; fusion and alignments were fitted on all seven looks of other "
        "starts.",
        "The seven looks of a start are not independent: over all looks, intervals come from "
        "resampling whole starts.",
    ),
    sizes={
        "quick": Sizes(12, 6, 10, updates=300),
        "paper": Sizes(126, 63, 50),
        "large": Sizes(256, 128, 256),
    },
    cases=_looking(CONDITIONS),
    measures=(_shown(CONDITIONS), films(("native", OURS), also=(FUSION,)), SHOWN),
    clustered=True,
    paper=_printed(CONDITIONS),
)
APPEARANCE_V2 = replace(
    APPEARANCE,
    name="appearance-v2",
    title="Do choices hold when the picture changes less?",
    question=(
        "The same starts as in the appearance study, in looks that are milder. How severe each is "
        "was chosen on other starts, by a rule, so that the model alone comes as near to the "
        "paper's success as it can. The model was trained on clean frames alone; fusion and "
        "alignments were fitted on all seven looks of other starts.",
        APPEARANCE.question[1],
    ),
    cases=_looking(MILDER),
    measures=(_shown(MILDER), *APPEARANCE.measures[1:]),
    paper=_printed(MILDER),
    task="appearance",
)
