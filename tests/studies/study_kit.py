"""Tiny studies: the real stages, on the fewest starts that have something to teach."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from djepa.align.suite import Recipe
from djepa.evaluate.rows import Row
from djepa.rollout.engine import LocalEngine
from djepa.studies.design import Design, Place, Sizes
from djepa.studies.measures import deployment
from djepa.studies.names import get_design
from djepa.studies.results import Results
from djepa.studies.stages import run_stages
from djepa.studies.study import Study, new_study

UPDATES = 4
SIZES = {  # starts to fit on, to calibrate on, to confirm on
    "pusht": Sizes(
        4, 2, 2, 2, 1, (2, 1), (3, 4), repeats=1, updates=UPDATES, retained=2, mechanism=1
    ),
    "reacher": Sizes(2, 1, 2, updates=UPDATES),
    "granular": Sizes(2, 1, 1, updates=UPDATES),
    "shapes": Sizes(4, 4, 3, updates=UPDATES),
    "appearance": Sizes(1, 1, 2, updates=UPDATES),
    "controls": Sizes(2, 1, 1, updates=1),
}
ONLY = {"pusht": ("published",)}  # the other kinds of pools would be searched, or teach nothing
LOOKS = ("clean", "blur", "salt-pepper", "dark", "block-colour", "marker-colour", "pusher-colour")
UNSEEN = ("I", "small-T", "square")
CASES = {
    "pusht": {"published": "push.v1"},
    "reacher": {"reference": "reacher.v1", "decoy": "reacher.v1"},
    "granular": {"main": "granular.v1", "strict": "granular-strict.v1"},
    "shapes": dict.fromkeys((*UNSEEN, *(f"{name}-decoy" for name in UNSEEN)), "push.v1"),
    "appearance": dict.fromkeys(LOOKS, "push.v1"),
    "controls": {"reference": "push.v1"},
}
BOUNDS = {"random", "oracle", "realised lewm"}  # no methods
every = pytest.mark.parametrize("name", SIZES)


@dataclass(frozen=True)
class Tiny:
    """A study in a folder."""

    design: Design
    out: Path

    @property
    def study(self) -> Study:
        return Study(
            self.design,
            Place(self.out, LocalEngine(1)),
            "tiny",
            ONLY.get(self.design.name, ()),
        )

    @property
    def results(self) -> Results:
        return Results(self.out, self.design)

    def run(self, until: str = "") -> list[str]:
        """The stages that ran."""
        study = new_study(self.design, self.study.place, "tiny", self.study.only)
        lines = list[str]()
        run_stages(study.stages(), lines.append, until)
        begun = [line.removesuffix(" ...") for line in lines if line.endswith(" ...")]
        return [line.split(" ", 1)[1] for line in begun]

    def files(self) -> dict[str, tuple[int, bytes]]:
        """File -> when it was last written, what it holds."""
        files = [path for path in self.out.rglob("*") if path.is_file()]
        return {str(p.relative_to(self.out)): (p.stat().st_mtime_ns, p.read_bytes()) for p in files}

    def rows(self) -> dict[str, list[Row]]:
        """Case -> rows."""
        return self.results.rows

    def chosen(self) -> dict[tuple[str, str, int], tuple[int, bool]]:
        """(case, method, start) -> candidate, and whether the gate was open."""
        return {
            (case, row.method, row.start): (row.chosen, row.opened)
            for case, of in self.rows().items()
            for row in of
        }

    def identities(self, role: str, group: str = "") -> set[str]:
        """Of the starts of a role, whole; or of those of one group of cases."""
        found = set()
        for case in self.study.cases(role, group):
            names = [bytes(row).hex() for row in self.study.bank(case).decisions.identities]
            found |= set(names[slice(*case.part)] if case.part else names)
        return found


Finished = Callable[[str], Tiny]


def tiny_design(name: str, patch: pytest.MonkeyPatch) -> Design:
    """The design with few starts, few updates, and fusions of two inputs, whose grids are small."""
    if name == "reacher":
        pytest.importorskip("mujoco")
    if name == "pusht":
        patch.setattr(deployment, "WARM", 0)
    design = get_design(name)
    mixtures = {label: (of[:2], by) for label, (of, by) in design.recipe.mixtures.items()}
    few = {
        label: replace(config, updates=min(config.updates, UPDATES), epochs=0, every=2)
        for label, config in design.recipe.alignments.items()
    }
    return replace(design, sizes={"tiny": SIZES[name]}, recipe=Recipe(mixtures, few))
