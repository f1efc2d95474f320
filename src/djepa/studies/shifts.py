"""Unseen shapes and changed appearance: one geometry, three ranks, one fit for all that is seen.

    evidence   visual error, proprioceptive error, their native sum (joint)
    base       calibrated fusion of the visual and the proprioceptive rank
    operator   three coordinates, task-local loss and gate                      (App. A)

Shapes: fitted on T, L, Z and +, confirmed on I, small T and square. Appearance: fitted on all
seven looks of the same starts, confirmed on all seven looks of others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from djepa.align.fit import task_local
from djepa.align.presets import careful, mixed
from djepa.align.suite import Recipe
from djepa.bank.read import Bank
from djepa.evidence.evidence import Evidence
from djepa.models.predictions import evidence_name
from djepa.report.cases import pair_of
from djepa.report.shifts import gains_and_losses, looks_picture
from djepa.rollout.execute import CollectConfig
from djepa.studies.case_pages import case_rows
from djepa.studies.cases import Case, CaseStudy, Design, evidence_from, share_out, split_of
from djepa.tasks.task import Scene
from djepa.worlds.looks import LOOK_SETS

CLEAN = "clean"
FITTED, UNSEEN = ("T", "L", "Z", "+"), ("I", "small-T", "square")
CONDITIONS = LOOK_SETS["looks.v1"]  # those of the stored rows; looks.v2 has the newer severities
VOICES = ("visual", "proprio", "joint")
OURS, FUSION, CONTROL = "D-JEPA", "fusion", "consensus + fusion"
RECIPE = Recipe(
    mixtures={FUSION: (VOICES[:2], None), CONTROL: (VOICES[:2], "joint")},
    alignments={
        "relational": task_local(VOICES),
        "log costs": mixed(VOICES, (), "log"),
        "mixture": mixed(VOICES, ("joint",)),
        OURS: careful(VOICES, ("joint",)),
    },
)
METHODS = (
    "random",
    "consensus joint",
    "native",
    "visual alone",
    "proprio alone",
    FUSION,
    CONTROL,
    "relational",
    "log costs",
    "mixture",
    OURS,
    "oracle",
)
PAPER_SHAPES = {
    "native": (22.0, 39.0, 24.0),
    FUSION: (37.0, 61.0, 36.0),
    "relational": (52.0, 66.0, 43.0),
}
PAPER_LOOKS = {
    "native": (64.0, 66.0, 68.0, 72.0, 24.0, 48.0, 54.0),
    FUSION: (70.0, 76.0, 72.0, 74.0, 30.0, 56.0, 62.0),
    "relational": (78.0, 82.0, 82.0, 82.0, 54.0, 60.0, 74.0),
}


def _printed(
    of: Mapping[str, Sequence[float]], cases: Sequence[str], together: str
) -> dict[tuple[str, str], float]:
    """The paper's figures, and its mean over cases."""
    by_case = {(c, m): x for m, xs in of.items() for c, x in zip(cases, xs, strict=True)}
    return by_case | {(together, method): sum(xs) / len(xs) for method, xs in of.items()}


def _evidence(bank: Bank, look: str) -> Evidence:
    of = evidence_name("jepawm", look)
    columns = {"visual": (of, "visual"), "proprio": (of, "proprio"), "joint": (of, "")}
    return evidence_from(bank, columns, {"joint": of})


def _bank(shape: str, split: str, starts: int, seed: int) -> CollectConfig:
    profile = "visual-shape"  # the one published for both
    return CollectConfig("push", shape, profile=profile, split=split, starts=starts, seed=seed)


def _shape_cases(role: str, starts: int, seed: int) -> list[Case]:
    """On the published pools, and on decoy pools, where density does not point at the solution."""
    names, found = UNSEEN if role == "confirmation" else FITTED, []
    for group, profile in {"published": "visual-shape", "decoy": "decoy"}.items():
        for shape, n in share_out(starts, names).items():
            bank = replace(_bank(shape, split_of("shapes", role), n, seed), profile=profile)
            found.append(
                Case(shape if group == "published" else f"{shape}-decoy", bank, CLEAN, group)
            )
    return found


def _look_cases(role: str, starts: int, seed: int) -> list[Case]:
    bank = _bank("T", split_of("appearance", role), starts, seed)
    return [Case(look, bank, look) for look in CONDITIONS]


def _net_gains(study: CaseStudy) -> list[Path]:
    """Gains and losses of ours, and of the published operator, over calibrated fusion."""
    made, rows = list[Path](), case_rows(study)
    for ours in (OURS, "relational"):
        counts = {}
        for case in rows:
            if (p := pair_of(rows, ours, FUSION, case)) is not None:
                counts[case] = (p.gains, p.losses, p.starts)
        stem = study.out / "figures" / f"gains-{ours.lower()}"
        made += gains_and_losses(stem, counts, ours, FUSION)
    return made


def _look_figures(study: CaseStudy) -> list[Path]:
    """Beside the gains, the seven looks on one state."""
    bank = study.bank("confirmation", study.cases("confirmation")[0])
    d = bank.decisions
    states = torch.from_numpy(np.stack([d.state[0], d.goal[0]]))
    frames = {}
    for look in CONDITIONS:
        drawn = Scene("push", bank.config.shape, look).observe(states, 224)[0].numpy()
        frames[look] = (drawn[0], drawn[1])
    return [*looks_picture(study.out / "figures" / "looks", frames), *_net_gains(study)]


SHAPES = Design(
    name="shapes",
    title="Do learned relations hold on shapes never seen?",
    question=(
        "One geometry was trained on the blocks T, L, Z and +, and so was everything fitted here. "
        "Every candidate below pushes a block that none of it has seen: **I**, **small T** and "
        "**square**. Its cost has two parts, what is seen and what is felt; calibrated fusion "
        "mixes their ranks, and an operator over three ranks may correct that.",
        "The published pools are perturbations of a hidden solution, so density alone points at "
        "it: the control **consensus + fusion** says how far that goes. In decoy pools the "
        "solution is one of four centres.",
    ),
    weights=("shapes-jepawm",),
    sizes={"quick": (64, 32, 48), "paper": (512, 256, 300), "large": (512, 256, 1536)},
    cases=_shape_cases,
    evidence=_evidence,
    recipe=RECIPE,
    natives={"native": "joint", "visual alone": "visual", "proprio alone": "proprio"},
    density=("joint",),
    methods=METHODS,
    against=("native", FUSION, CONTROL, "mixture"),
    summary=True,
    together=True,
    paper=_printed(PAPER_SHAPES, UNSEEN, "all published"),
    figures=_net_gains,
)
APPEARANCE = replace(
    SHAPES,
    name="appearance",
    title="Do choices hold when the picture changes?",
    question=(
        "The same starts seen in seven ways: clean, blurred, with salt and pepper, darkened, and "
        "with another colour of the block, of the marker and of the pusher. The geometry was "
        "trained on clean frames alone; fusion and alignments were fitted on all seven looks of "
        "other starts, and are counted on fresh ones.",
        "The seven looks of a start are no seven starts: over all of them intervals are those of "
        "whole starts.",
    ),
    sizes={"quick": (12, 6, 10), "paper": (126, 63, 50), "large": (256, 128, 256)},
    cases=_look_cases,
    clustered=True,
    paper=_printed(PAPER_LOOKS, CONDITIONS, "all"),
    figures=_look_figures,
)
