"""The driving study: 32 trajectories a scene, executed in traffic and judged by PDMS.

    native score                the model's own choice
    score correction, ...       the paper's readouts (App. G) and their controls
    D-JEPA                      mixture of native score, forecasts and density; graded gate

A forecast score judges every candidate in a traffic forecast from the past and present
(worlds/traffic/forecast.py, rules.py), which is known before execution. Scenes of one log are never
split, and every interval resamples whole logs.
"""

from pathlib import Path

import torch

from djepa.align.fit import Alignment, Mixing
from djepa.align.methods import Population
from djepa.align.outcomes import Outcomes
from djepa.align.presets import careful, described, mixed
from djepa.align.suite import Recipe
from djepa.bank.driving import TrafficBank, collect_traffic
from djepa.errors import DjepaError
from djepa.evidence.score import Score
from djepa.models.traffic_predict import NAME, load_scorer, predict_traffic, view
from djepa.rollout.driving import EACH, FURTHER, RECORDED, TrafficConfig, recorded_files
from djepa.studies.design import ROLES, Case, Design, Place, Sizes, Source
from djepa.studies.driving_fits import OURS, UNCHECKED, extra_choosers, fit_extra
from djepa.studies.driving_inputs import EVERY, RISKS, RULES, traffic_evidence
from djepa.studies.measures.driving import PARTS_OF_PDMS, SCENES
from djepa.studies.measures.driving_inspector import inspector
from djepa.studies.measures.driving_views import views
from djepa.studies.measures.shift import SHIFT
from djepa.studies.stages import Say
from djepa.studies.study import Study
from djepa.worlds.traffic.forecast import FORECASTS

ALONE, PLAIN = "D-JEPA, native alone", "D-JEPA, straight forecast"
SIMPLE = "mixture, simple forecasts"
GRADED: Mixing = "graded+ranks"  # the mixture maximises expected PDMS
FUSION, CONTROL = "fusion", "consensus + fusion"
STRAIGHT, TWO = (NAME, "straight"), (NAME, *FORECASTS)
ALL = (*EVERY, *RISKS)
NEAR_BEST = 0.05  # a choice is a success if its PDMS is within 5 points of the best candidate's
SPLITS = dict(zip(ROLES, ("fit", "calibration", "confirmation", "guarantee"), strict=False))
MANY = 100  # scenes of a recorded log at most, from the remaining cars
HARD = 0.1  # PDMS gap of the native choice to the best, in scenes of preset paper


def _cases(role: str, sizes: Sizes, place: Place) -> list[Case]:
    if role not in SPLITS:
        return []
    many = getattr(sizes, role)
    each = {"audit": 1, "confirmation": 6 if sizes.retained else 3}.get(role, 3)
    found = list[Case]()
    if many:
        config = TrafficConfig(SPLITS[role], -(-many // each), each, place.seed)
        found.append(Case("generated", config))
    if role == "confirmation" and place.recorded is not None:
        files = recorded_files(place.recorded) if place.recorded != Path() else (("", ""),)
        for split, each in ((RECORDED, EACH), (FURTHER, MANY)):
            config = TrafficConfig(split, len(files), each, block=2, files=files)
            found.append(Case(split, config))
    return found


def _collect(study: Study, case: Case, say: Say) -> str:
    """Collect scenes, candidates and judgements, and store predictions of the native model."""
    config, scorer = case.bank, load_scorer()
    assert isinstance(config, TrafficConfig)
    say(f"  {config.logs} logs: {case.folder}")
    bank = collect_traffic(
        study.out / "banks" / case.folder,
        config,
        study.place.engine,
        scorer.vocabulary,
        view,
        study.place.recorded,
    )
    predict_traffic(bank, scorer, study.place.device, study.place.engine)
    return bank.hash


def population(study: Study, role: str, case: Case) -> Population:
    """Evidence and outcomes; success is a PDMS near that of the best candidate."""
    bank = TrafficBank(study.out / "banks" / case.folder)
    evidence, names = traffic_evidence(bank, case.look), bank.known.names
    pdms = torch.from_numpy(bank.parts["pdms"])
    near = pdms >= pdms.amax(1, keepdim=True) - NEAR_BEST
    whole = Population(evidence, Outcomes(names, near, torch.ones_like(near), 1 - pdms))
    if study.sizes.retained and role == "confirmation":
        return whole.rows(seven(whole, study.sizes.retained))
    return whole


def seven(test: Population, many: int) -> torch.Tensor:
    """Scenes of the preset paper, by a fixed rule: hard scenes of three logs.

    A scene is hard if the native choice is at least 10 points below the best candidate. Of the
    first three logs with at least three hard scenes, the first gives its first three hard scenes,
    the others their first two. The rule uses outcomes, so it filters scenes, never decisions.
    """
    cost = test.outcomes.cost
    assert cost is not None
    at = Score(test.evidence.cost(NAME)).winners(test.evidence.ids)[:, None]
    hard = (cost.gather(1, at)[:, 0] - cost.amin(1) >= HARD).tolist()
    logs: dict[str, list[int]] = {}
    for row, name in enumerate(test.evidence.identities):
        if hard[row]:
            logs.setdefault(name.split("@")[0], []).append(row)
    three = [rows for rows in logs.values() if len(rows) >= 3][:3]
    found = [row for i, rows in enumerate(three) for row in rows[: 3 if i == 0 else 2]]
    if len(found) != many:
        raise DjepaError(f"{len(found)} hard scenes of three logs were found, not {many}.")
    return torch.tensor(found)


def _extra(study: Study, group: str, say: Say) -> dict[str, Alignment]:
    fit_extra(study, group, say)
    return {}


DRIVING = Design(
    name="driving",
    title="Does alignment drive better?",
    question=(
        "A car has 32 trajectories for the next four seconds. A native model looks at the scene "
        "from above and scores them. Every trajectory is executed in the same traffic and judged "
        "by **PDMS** (NAVSIM v1): no collision at fault, on the road, time to collision, "
        "progress, comfort. Higher is better, 100 is perfect.",
        "The paper's readouts correct the native score from what the scorer exposes. **D-JEPA** "
        "mixes the native score with forecasts that are known before execution: the PDMS of every "
        "candidate if all others kept their present velocity, if vehicles kept to their lanes, and "
        "on average over eight futures in which they drive by the rules of the road. "
        "The tables show what each part adds. Fitting, calibration and confirmation share no road "
        "and no seed. Where the evidence of a case differs from that of the calibration, or is of "
        "fewer than eight logs, the gate of D-JEPA stays shut and the mixture decides.",
    ),
    weights=(),
    sizes={
        "quick": Sizes(180, 90, 120, audit=30, updates=300),
        "paper": Sizes(480, 240, 600, audit=100, retained=7),
        "large": Sizes(6000, 3000, 1020, audit=300),
    },
    cases=_cases,
    evidence=traffic_evidence,  # type: ignore[arg-type]  # of a bank of scenes
    recipe=Recipe(
        mixtures={FUSION: (EVERY, None), CONTROL: (EVERY, NAME)},
        alignments={
            SIMPLE: mixed(TWO, (NAME,), GRADED),
            "mixture": mixed(ALL, (NAME,), GRADED),
            ALONE: careful((NAME,), (NAME,), GRADED),
            PLAIN: careful(STRAIGHT, (NAME,), GRADED),
            OURS: described(ALL, (NAME,), (RULES,)),
        },
        graded=True,
    ),
    natives={"native score": NAME, **{f"forecast, {name}": name for name in EVERY[1:]}},
    density=(NAME,),
    fusion=FUSION,
    control=CONTROL,
    against=(
        *(f"forecast, {name}" for name in EVERY[1:]),
        "scalar fusion",
        "per-candidate network",
        "score correction",
        "anchor-relative",
        "anchor-relative with risk",
        ALONE,
        PLAIN,
        SIMPLE,
        "mixture",
        UNCHECKED,
    ),
    base="native score",
    published="anchor-relative with risk",
    measures=(
        PARTS_OF_PDMS,
        SCENES,
        SHIFT,
        views(),
        inspector(("native score", "anchor-relative with risk", "mixture", OURS), (4, 2, 4)),
    ),
    pools={
        "generated": "roads and drivers that nothing was fitted on",
        RECORDED: f"{EACH} cars of each recording",
        FURTHER: "all other cars of the same recordings",
    },
    graded="PDMS",
    source=Source(_collect, TrafficBank, population, extra_choosers),
    extra=_extra,
)
