"""The control study: does alignment solve more episodes than the best model's own search?

Every planner plans the same fixed episodes with the same number of model evaluations per decision.
Alignments are fitted on final populations of a search under the same model, as in the PushT study.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from djepa.align.fit import Alignment
from djepa.align.methods import Population, fit_aligned
from djepa.align.presets import FOUR, PAIR, SUITE
from djepa.align.registry import slug
from djepa.align.store import load_alignment, save_alignment
from djepa.align.suite import Recipe
from djepa.control.episodes import MODERATE, STRICT, EpisodeConfig
from djepa.control.loop import control
from djepa.control.planners import Planner, PlannerConfig
from djepa.control.results import Episodes
from djepa.control.visited import read_visited, visit
from djepa.evaluate.rows import Row
from djepa.evaluate.verdict import Comparison
from djepa.evidence.evidence import Evidence
from djepa.models.planner_pool import PLANNER, CEMProposer
from djepa.pools.cem import CEM
from djepa.rollout.execute import CollectConfig
from djepa.studies.design import ROLES, Case, Design, Place, Sizes
from djepa.studies.measures.episodes import FLOOR, episode_films, expense, replays
from djepa.studies.stages import Say
from djepa.studies.study import Study

SEARCHED = "tdjepa"  # the model under whose cost alignment, iCEM and MPPI search
GROUP = "planner"
FAR = 50  # controls to the goal; these episodes take four times as long as the others
GOALS = {"goal-25": 25, "goal-50": FAR}
OURS, SAME, SECOND = "aligned", f"cem {SEARCHED}", "aligned-2"
VISITS = {"medium": 128, "paper": 256, "large": 256}  # episodes of the second round by preset
SEARCH: Mapping[str, dict[str, Any]] = {  # preset -> settings of the search
    "quick": (SMALL := {"evaluations": 256, "samples": 32, "elites": 4}),
    "medium": SMALL,
    "paper": (FULL := {"evaluations": 512, "samples": 64, "elites": 8}),
    "large": FULL,
}
PLANNED = {  # preset, or preset and list of episodes -> its planners; by default all
    "quick": (SAME, "cem jepawm", OURS, "aligned-cem"),
    "medium": (SAME, OURS, SECOND, "cem jepawm"),
    "medium goal-50": (SAME, OURS),
}
ALIGNMENTS = {"aligned": "D-JEPA", "aligned-cem": "D-JEPA", "aligned-mppi": "log costs"}
ROUND = "second round"
SHIPPED = Path(__file__).parent.parent / "suites" / "pusht"


def planners() -> dict[str, dict[str, Any]]:
    """Method -> its settings, beside those of the preset."""
    found: dict[str, dict[str, Any]] = {
        f"cem {name}": {"planner": "native-cem", "geometry": name} for name in FOUR
    }
    for name in ("icem", "mppi", *ALIGNMENTS):
        found[name] = {"planner": name, "geometry": SEARCHED}
    return found | {SECOND: {"planner": OURS, "geometry": SEARCHED}}


def _cases(role: str, sizes: Sizes, place: Place) -> list[Case]:
    """Fitting starts have pools; confirmation cases are lists of episodes, judged by two rules."""
    if role in ROLES[:2] and not sizes.shipped:
        part = (0, sizes.fit) if role == "fit" else (sizes.fit, sizes.fit + sizes.calibration)
        bank = CollectConfig(
            profile=PLANNER,
            split="control-fit",
            starts=sizes.fit + sizes.calibration,
            seed=place.seed,
            block=16 if place.device == "cpu" else 64,
        )
        search = CEM(64, 5, 8, 63)  # as deep as the search of aligned choice
        make = lambda device: CEMProposer(SEARCHED, search, device=device)  # noqa: E731
        return [Case(GROUP, bank, group=GROUP, part=part, proposer=make)]
    if role != "confirmation":
        return []
    found = []
    for name, goal in GOALS.items():
        many = sizes.searched if goal == FAR and sizes.searched else sizes.confirmation
        starts = _episodes(goal, many, place).starts()
        found += [
            Case(name if rule == MODERATE else f"{name}-{rule}", starts, group=GROUP, rule=rule)
            for rule in (MODERATE, STRICT)
        ]
    return found


def _episodes(goal: int, episodes: int, place: Place) -> EpisodeConfig:
    block = 4 if place.device == "cpu" else 64
    return EpisodeConfig(episodes=episodes, goal=goal, seed=place.seed, block=block)


def found_episodes(study: Study, case: Case) -> dict[str, Episodes]:
    """Method -> stored episodes of a case."""
    folder = study.out / "episodes" / case.name.removesuffix(f"-{STRICT}")
    names = [name for name in planners() if (folder / slug(name) / "manifest.json").exists()]
    return {name: Episodes(folder / slug(name)) for name in names}


def _fitted(study: Study, name: str) -> bool:
    return name != SECOND or study.place.made(GROUP, ROUND)


def _planner(study: Study, name: str, goal: int) -> Planner:
    """The planner of a method, with the preset's settings and the study's fits; the horizon of
    candidates covers the goal.
    """
    search, folder = SEARCH[study.preset], ""
    if name in ALIGNMENTS:
        folder = str(study.place.fits(GROUP) / slug(ALIGNMENTS[name]))
    elif name == SECOND:
        folder = str(study.place.own(GROUP, ROUND))
    given = {**planners()[name], **search, "alignment": folder, "horizon": goal}
    config = PlannerConfig(**given)
    return Planner(config, "push", study.place.device)


def _second_round(study: Study, group: str, say: Say) -> Mapping[str, Alignment]:
    """D-JEPA refitted on pools at states that its planner visited with the first fit.

    The pools of the first fit are added, unless it was shipped with the package. The last quarter
    of the episodes is for calibration.
    """
    visits = VISITS.get(study.preset, 0)
    if not visits:
        return {}
    place, own = study.place, study.place.own(group, ROUND)
    if not place.made(group, ROUND):
        say(f"  second round: {visits} episodes of the first")
        config = replace(_episodes(25, visits, place), split="control-fit")
        planner, engine = _planner(study, OURS, config.goal), place.engine
        ran = Episodes(control(study.out / "episodes" / "first-round", config, planner, engine))
        pools = visit(study.out / "episodes" / "visited", ran, planner, engine)
        cut = visits - visits // 4
        parts = [
            read_visited(pools, ran, some, FOUR).to(place.device)
            for some in (range(cut), range(cut, visits))
        ]
        if not study.sizes.shipped:
            pairs = zip(study.parts(group), parts, strict=True)
            parts = [Population.join(pair) for pair in pairs]
        say(f"  fitting on {len(parts[0].evidence)} starts")
        found = fit_aligned(study.recipe.alignments["D-JEPA"], *parts)
        save_alignment(found, own, study.card(group, method=ROUND))
    return {ROUND: load_alignment(own)}


def _decide(study: Study, case: Case, say: Say) -> list[Row]:
    """Run every planner on the episodes of a case; both rules judge the same episodes."""
    assert isinstance(case.bank, CollectConfig)
    config = _episodes(case.bank.horizon, case.bank.starts, study.place)
    episodes = case.name.removesuffix(f"-{STRICT}")
    some = PLANNED.get(study.preset, planners())
    for name in PLANNED.get(f"{study.preset} {episodes}", some):
        if not _fitted(study, name):
            continue
        planner = _planner(study, name, config.goal)
        folder = study.out / "episodes" / episodes / slug(name)
        say(f"  {name}: {config.episodes} episodes, goals {config.goal} controls away")
        control(folder, config, planner, study.place.engine)
    found = found_episodes(study, case)
    rows = [row for name, of in found.items() for row in of.rows(name, case.name, case.rule)]
    first = next(iter(found.values()))
    return rows + first.rows(FLOOR, case.name, case.rule, floor=True)


CONTROL = Design(
    name="control",
    title="Does alignment finish more episodes?",
    question=(
        "In the other studies a method chooses once among executed candidates. Here it "
        "**controls**: it searches, executes five controls, looks again, until the goal is reached "
        "or the budget is spent. All planners plan the same episodes, from the same starts to the "
        "same goals, and make equally many model evaluations a decision.",
        "An episode is solved if the task's rule holds after some control (**moderate**), or if it "
        "holds with half the tolerances (**strict**). Goals are 25 or 50 controls of a hidden "
        "reference away; the budget is twice that.",
        "D-JEPA searches as CEM does, and either chooses among the final population (**aligned "
        "choice**), or scores every population (**aligned search**), or weights candidates by the "
        "likelihood mixture of log costs (**MPPI**). The primary comparison is aligned choice "
        "with the CEM of whichever single model solves most of the same episodes.",
    ),
    weights=FOUR,
    sizes={
        "quick": Sizes(0, 0, 16, shipped=True),
        "medium": Sizes(0, 0, 512, searched=256, shipped=True),
        "paper": Sizes(448, 64, 512),
        "large": Sizes(448, 64, 1024),
    },
    cases=_cases,
    evidence=lambda bank, look: Evidence.from_bank(bank, FOUR, PAIR),
    recipe=Recipe({}, {name: SUITE[name] for name in ("D-JEPA", "log costs")}),
    natives={f"cem {name}": name for name in FOUR},
    density=(),
    fusion=SAME,
    control="icem",
    against=("cem lewm", "cem jepawm", "cem dinowm", "icem", "mppi", FLOOR),
    measures=(
        expense(found_episodes, (FLOOR, SAME, "cem jepawm", "icem", OURS, SECOND, "aligned-cem")),
        episode_films(found_episodes, (SAME, OURS), tuple(GOALS)),
        replays(found_episodes, OURS, SAME, (3, 2, 1)),
    ),
    decide=_decide,
    extra=_second_round,
    declared=(
        Comparison.of(OURS, *(f"cem {name}" for name in FOUR)),
        Comparison.of("aligned-cem", *(f"cem {name}" for name in FOUR)),
        Comparison.of("aligned-mppi", *(f"cem {name}" for name in FOUR)),
        Comparison.of(SECOND, *(f"cem {name}" for name in FOUR)),
        Comparison.of(SECOND, OURS),
    ),
    shipped=SHIPPED,
    ours=OURS,
)
