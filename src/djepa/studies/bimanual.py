"""The bimanual study: one native chunk and 16 variants a start, executed from one snapshot.

    native policy                       the chunk of the policy
    fixed correction, scalar gate, ...  the paper's controls (Tab. 2, App. G)
    D-JEPA                              mixture of predictive, visual, proprioceptive and temporal
                                        evidence, operator, careful gate, and preservation of
                                        native chunks

Cases are the four tasks; they share what is fitted, and are counted together.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch

from djepa.align.fit import AlignConfig, Alignment
from djepa.align.methods import Population
from djepa.align.outcomes import Outcomes
from djepa.align.presets import careful, mixed
from djepa.align.suite import Recipe
from djepa.bank.bimanual import BimanualBank, collect_bimanual
from djepa.evaluate.verdict import Comparison
from djepa.evidence.evidence import Evidence
from djepa.models.bimanual import load_policy
from djepa.models.bimanual_jepa import Trained, load_jepa
from djepa.models.bimanual_jepa_predict import predicted
from djepa.models.bimanual_predict import Propose
from djepa.rollout.bimanual import BimanualConfig
from djepa.rollout.bimanual import Propose as Proposal
from djepa.studies.bimanual_fits import CERTIFIED, PRESERVED, choosers, fit_gates
from djepa.studies.design import Case, Design, Place, Sizes, Source, share_out, split_of
from djepa.studies.measures.bimanual import LENGTHS, VIEWS
from djepa.studies.stages import Say
from djepa.studies.study import Study
from djepa.worlds.bimanual.scene import TASKS

POLICY, JEPA = "bimanual", "bimanual-jepa"  # names of the weights
SPLITS = ("fit", "calibration", "confirmation", "audit")  # audit: the limit on harm is certified
COLUMNS = {
    "native": "apart",
    "visual": "visual",
    "scene": "scene",
    "proprioceptive": "effort",
    "temporal": "timing",
}
PREDICTIVE = "predictive"  # the patch JEPA's cost
DENSE = ("scene", PREDICTIVE)
FLOOR = {"native": 0.005, "visual": 0.005, "scene": 0.005, "proprioceptive": 0.0, "temporal": 0.02}
POOLS = "native chunk + 16 variants"  # as the paper's figures are stored
PAPER = {
    "grab roller": "roller",
    "handover block": "handover",
    "bread to skillet": "skillet",
    "object to drawer": "cabinet",
    "all": "all",
}
NATIVES = {
    "native policy": "native",
    "nearest to colours": "visual",
    "nearest to scene": "scene",
}
PREDICTED = {"nearest to prediction": PREDICTIVE}
FUSION, CONTROL = "fusion", "consensus + fusion"


def cases_of(study: str, tasks: Iterable[str], **more: Any) -> Callable[..., list[Case]]:
    """A case for each task, with its share of the starts; `more` is of the configuration."""

    def cases(role: str, sizes: Sizes, place: Place) -> list[Case]:
        if role not in SPLITS:
            return []
        split, shares = split_of(study, role), share_out(getattr(sizes, role), tuple(tasks))
        return [
            Case(task, BimanualConfig(split, task, many, place.seed, **more))
            for task, many in shares.items()
            if many
        ]

    return cases


def collect_with(hash_of: Callable[[], str], propose: Proposal) -> Callable[..., str]:
    """Collect a case's bank with the candidates of one policy."""

    def collect(study: Study, case: Case, say: Say) -> str:
        assert isinstance(case.bank, BimanualConfig)
        config = replace(case.bank, policy=hash_of())
        say(f"  {config.starts} starts: {case.folder}")
        target = study.out / "banks" / case.folder
        return collect_bimanual(target, config, study.place.engine, propose).hash

    return collect


def recipe_of(columns: tuple[str, ...], dense: tuple[str, ...]) -> Recipe:
    """The recipe over these costs; those in `dense` also have predicted ends and goals."""
    return Recipe(
        mixtures={FUSION: (columns, None), CONTROL: (columns, dense if dense[1:] else dense[0])},
        alignments={
            "mixture": mixed(columns, dense),
            "without preservation": careful(columns, dense),
            "relational": AlignConfig(dense=dense, ranked=columns, base=columns),
        },
    )


def simple_evidence(bank: BimanualBank, look: str) -> Evidence:
    """Five costs; targets of candidates as latents, targets predicted from the scene as goals."""
    known = bank.known
    found = Evidence.from_arrays(
        start_ids=known.names,
        candidate_ids=known.ids,
        costs={name: getattr(known, of) + FLOOR[name] for name, of in COLUMNS.items()},
        latents={"scene": known.targets},
        goals={"scene": known.expected},
    )
    return replace(found, weights=dict.fromkeys(COLUMNS, bank.config.policy))


def _evidence(bank: BimanualBank, look: str) -> Evidence:
    """`simple_evidence` with the patch JEPA's cost, predicted ends and goals."""
    known, jepa, simple = bank.known, _jepa(), simple_evidence(bank, look)
    said = predicted(bank, jepa)
    found = Evidence.from_arrays(
        start_ids=known.names,
        candidate_ids=known.ids,
        costs={**{name: simple.cost(name) for name in COLUMNS}, PREDICTIVE: said["cost"]},
        latents={"scene": known.targets, PREDICTIVE: said["ends"]},
        goals={"scene": known.expected, PREDICTIVE: said["goals"]},
    )
    return replace(found, weights={**simple.weights, PREDICTIVE: jepa.hash})


@lru_cache(maxsize=1)
def _jepa() -> Trained:
    return load_jepa(JEPA)


def _predict(study: Study, group: str, say: Say) -> None:
    """Store the patch JEPA's predictions for every bank of a group, unless already stored."""
    for role in SPLITS:
        for case in study.cases(role, group):
            say(f"  {JEPA}: {role}, {case.name}")
            predicted(BimanualBank(study.out / "banks" / case.folder), _jepa())


def _population(study: Study, role: str, case: Case) -> Population:
    bank = BimanualBank(study.out / "banks" / case.folder)
    success, cost = (torch.from_numpy(bank.outcome[name].copy()) for name in ("success", "cost"))
    outcomes = Outcomes(bank.known.names, success, torch.ones_like(success), cost)
    evidence: Callable[..., Evidence] = study.design.evidence
    return Population(evidence(bank, case.look), outcomes)


def _extra(study: Study, group: str, say: Say) -> dict[str, Alignment]:
    fit_gates(study, group, say)
    return {}


BIMANUAL = Design(
    name="bimanual",
    title="Does alignment help two arms?",
    question=(
        "Two arms at a table have one of four tasks. A small policy reads an instruction, the head "
        "camera's picture and the joints, and gives a whole sequence of commands: the **native "
        "chunk**. Beside it stand 16 variants of a demonstration, moved to where the picture says "
        "that the arms should grasp, with 16 offsets. All 17 are executed from one snapshot.",
        "Between starts the head camera moves a little. Only the picture shows it: the colours "
        "from which variants are made do not say it, the policy may have learned it. So both "
        "err in different ways, and no candidate is right everywhere.",
        "The controls are the paper's: one **fixed correction**, and **gates** that choose between "
        "the native chunk and that correction by one number. **D-JEPA** compares all candidates by "
        "where a patch JEPA of the head view and the tools predicts that they end, by visual, "
        "proprioceptive and temporal evidence and by a map of the whole scene, and keeps the "
        "native chunk unless its own choice is better by a margin.",
    ),
    weights=(),
    sizes={
        "quick": Sizes(96, 48, 96, audit=64, updates=300),
        "paper": Sizes(512, 256, 512, audit=256),
        "large": Sizes(1024, 512, 2048, audit=512),
    },
    cases=cases_of("bimanual", TASKS),
    evidence=_evidence,  # type: ignore[arg-type]  # of a bank of these starts
    recipe=recipe_of((*COLUMNS, PREDICTIVE), DENSE),
    prepare=_predict,
    natives=NATIVES | PREDICTED,
    density=DENSE,
    fusion=FUSION,
    control=CONTROL,
    against=(
        "fixed correction",
        "scalar gate",
        "timing gate",
        "distance gate",
        "without preservation",
        "relational",
        CERTIFIED,
        "mixture",
    ),
    base="native policy",
    published="without preservation",
    declared=(
        Comparison.of(PRESERVED, *NATIVES, *PREDICTED),  # the best of them
        Comparison.of(PRESERVED, "native policy"),
        Comparison.of(PRESERVED, "scalar gate"),
        Comparison.of(PRESERVED, "fixed correction"),
        Comparison.of(PRESERVED, FUSION),
        Comparison.of(PRESERVED, CONTROL),
    ),
    measures=(LENGTHS, VIEWS),
    pools=dict.fromkeys(TASKS, "one native chunk and 16 variants"),
    task="robotwin",
    paper={view: (POOLS, case) for view, case in PAPER.items()},
    # Its row "D-JEPA" has preservation, as ours of that name; our `relational` has none.
    paper_names={"native chunk": "native policy", "relational": PRESERVED},
    together=True,
    source=Source(
        collect_with(lambda: load_policy(POLICY).hash, Propose(POLICY)),
        BimanualBank,
        _population,
        choosers,
    ),
    extra=_extra,
    ours=PRESERVED,
)
