"""Common design of studies with LeWM and TD-JEPA: two kinds of pools, the fusion of both models,
and D-JEPA as a mixture of both costs, with density and ranks if cross-validation gains by them.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from djepa.align.fit import AlignConfig
from djepa.align.presets import PAIR, careful, mixed
from djepa.align.suite import Recipe
from djepa.evidence.evidence import Evidence
from djepa.rollout.execute import CollectConfig
from djepa.studies.design import ROLES, Case, Design, Measure, Place, Sizes, split_of
from djepa.studies.measures.costs import costs
from djepa.studies.measures.decisions import films, inspector

FUSION, CONTROL, OURS = "fusion", "consensus + fusion", "D-JEPA"
BOTH = "both consensus + fusion"  # fusion with both densities, which D-JEPA uses too
NATIVES = {"native lewm": "lewm", "native tdjepa": "tdjepa"}


def pair_design(
    world: str, block: int, measure: Measure, published: Mapping[str, AlignConfig], **more: Any
) -> Design:
    """The design of a study with the name of its world; `measure` is added to the common ones."""
    return Design(
        name=world,
        weights=tuple(f"{world}-{name}" for name in PAIR),
        cases=two_pools(world, block),
        evidence=lambda bank, look: Evidence.from_bank(bank, PAIR, PAIR),
        recipe=Recipe(
            mixtures={FUSION: (PAIR, None), CONTROL: (PAIR, "tdjepa"), BOTH: (PAIR, PAIR)},
            alignments={
                **published,
                "log costs": mixed(PAIR, (), "log"),
                "mixture": mixed(PAIR, PAIR),
                OURS: careful(PAIR, PAIR),
            },
        ),
        natives=NATIVES,
        density=("tdjepa",),
        fusion=FUSION,
        control=CONTROL,
        against=("native tdjepa", BOTH, "mixture"),
        measures=(
            measure,
            costs((OURS,), "native lewm", {"solved below": 1.0}),
            films(("native lewm", OURS), also=(FUSION,)),
            inspector((*NATIVES, FUSION, CONTROL, "relational", OURS), "native lewm", (3, 1, 1)),
        ),
        **more,
    )


def two_pools(world: str, block: int) -> Callable[[str, Sizes, Place], list[Case]]:
    """Cases with one bank of reference pools and one of decoy pools per role."""

    def cases(role: str, sizes: Sizes, place: Place) -> list[Case]:
        if role not in ROLES[:3]:
            return []
        split, starts = split_of(world, role), getattr(sizes, role)
        bank = CollectConfig(world, split=split, starts=starts, seed=place.seed, block=block)
        pools = {"reference": "reference-control", "decoy": "decoy"}
        return [Case(name, replace(bank, profile=of), group=name) for name, of in pools.items()]

    return cases
