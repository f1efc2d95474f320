"""Tiny studies of cases: the real stages, on the fewest starts that have something to teach."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from djepa.align.suite import Recipe
from djepa.evaluate.rows import Row
from djepa.rollout.engine import LocalEngine
from djepa.studies.case_pages import case_rows
from djepa.studies.cases import CaseStudy, Design, new_case_study
from djepa.studies.index import DESIGNS
from djepa.studies.populations import Place
from djepa.studies.stages import run_stages

# Starts to fit on, to calibrate on, to confirm on: the fewest that have something to teach.
SIZES = {"reacher": (2, 1, 2), "granular": (2, 1, 1), "shapes": (4, 4, 3), "appearance": (1, 1, 2)}
UPDATES = 4
LOOKS = ("clean", "blur", "salt-pepper", "dark", "block-colour", "marker-colour", "pusher-colour")
UNSEEN = ("I", "small-T", "square")
CASES = {
    "reacher": {"reference": "reacher.v1", "decoy": "reacher.v1"},
    "granular": {"main": "granular.v1", "strict": "granular-strict.v1"},
    "shapes": dict.fromkeys((*UNSEEN, *(f"{name}-decoy" for name in UNSEEN)), "push.v1"),
    "appearance": dict.fromkeys(LOOKS, "push.v1"),
}
BLIND = {"random", "oracle"}  # no methods
every = pytest.mark.parametrize("name", SIZES)


@dataclass(frozen=True)
class Tiny:
    """A study in a folder."""

    design: Design
    out: Path

    @property
    def study(self) -> CaseStudy:
        return CaseStudy(self.design, Place(self.out, LocalEngine(1)), "tiny")

    def run(self, until: str = "") -> list[str]:
        """The stages that ran."""
        study, said = new_case_study(self.design, self.study.place, "tiny"), list[str]()
        run_stages(study.stages(), said.append, until)
        begun = [line.removesuffix(" ...") for line in said if line.endswith(" ...")]
        return [line.split(" ", 1)[1] for line in begun]

    def files(self) -> dict[str, tuple[int, bytes]]:
        """File -> when it was last written, what it holds."""
        files = [path for path in self.out.rglob("*") if path.is_file()]
        return {str(p.relative_to(self.out)): (p.stat().st_mtime_ns, p.read_bytes()) for p in files}

    def rows(self) -> dict[str, list[Row]]:
        """Case -> rows."""
        return case_rows(self.study)

    def chosen(self) -> dict[tuple[str, str, int], tuple[int, bool]]:
        """(case, method, start) -> candidate, and whether the gate was open."""
        return {
            (case, row.method, row.start): (row.chosen, row.opened)
            for case, of in self.rows().items()
            for row in of
        }

    def identities(self, role: str, group: str = "") -> set[str]:
        """Of the starts of a role, whole; or of those of one group of cases."""
        cases = [case for case in self.study.cases(role) if group in ("", case.group)]
        banks = (self.study.bank(role, case) for case in cases)
        return {bytes(row).hex() for bank in banks for row in bank.decisions.identities}


Finished = Callable[[str], Tiny]


def tiny_design(name: str, patch: pytest.MonkeyPatch) -> Design:
    """The design with few starts, few updates, and fusions of two voices, whose grids are small."""
    if name == "reacher":
        pytest.importorskip("mujoco")
    design = DESIGNS[name]()
    mixtures = {label: (of[:2], by) for label, (of, by) in design.recipe.mixtures.items()}
    few = {
        label: replace(config, updates=min(config.updates, UPDATES), epochs=0, every=2)
        for label, config in design.recipe.alignments.items()
    }
    recipe = Recipe(mixtures, few)
    if name == "reacher":
        from djepa.studies import reacher

        patch.setitem(reacher.UPDATES, "tiny", UPDATES)
    return replace(design, sizes={"tiny": SIZES[name]}, recipe=recipe)
