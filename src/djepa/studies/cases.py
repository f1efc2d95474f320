"""A study of any world: populations, evidence, fits, choices and rows, stage by stage.

    FOLDER/
      study.json            what it is; another study's folder is refused
      banks/ROLE/NAME       fit, calibration and confirmation starts
      fits/GROUP/           fusions and alignments
      inspector/CASE.json   single decisions, for the page
      rows/CASE.csv.gz      one row per method and start; tables are made from these alone
      measures.json         what else the study measures
      tables/ figures/ report.html

A case is a set of starts on which methods are compared: a kind of pools, a shape, a look. Cases of
one group share what was fitted. A study of its own is a `Design`: see reacher.py, granular.py and
shifts.py.

Legend: N starts, K candidates.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from djepa.align.fit import Alignment
from djepa.align.methods import Chooser, Population, aligned, densest, lowest, native
from djepa.align.outcomes import Outcomes
from djepa.align.store import alignment_hash
from djepa.align.suite import Recipe, Suite, fit_suite, load_suite, unseen
from djepa.bank.collect import collect
from djepa.bank.read import Bank
from djepa.bank.schema import sha256
from djepa.errors import unknown_name
from djepa.evaluate.rows import write_rows
from djepa.evidence.evidence import Evidence
from djepa.files import to_json, write_atomically
from djepa.models.predictions import predict_bank
from djepa.models.weights import load_geometry, weights_hash
from djepa.rollout.execute import CollectConfig
from djepa.seeds import generator
from djepa.studies.decisions import bounds, rows_of
from djepa.studies.inspection import Plan, inspection
from djepa.studies.populations import Place
from djepa.studies.stages import Say, Stage, claim
from djepa.tasks.task import PLAIN

ROLES = ("fit", "calibration", "confirmation")
HURRY = 300  # updates of an operator in the preset `quick`


@dataclass(frozen=True)
class Case:
    """Starts on which methods are compared."""

    name: str  # as the tables name it
    bank: CollectConfig
    look: str = PLAIN
    group: str = "all"  # cases of one group share what was fitted
    rule: str = ""  # another rule than the bank's, by which its costs are judged,
    scale: float = 1.0  # and what they are multiplied by for it

    @property
    def folder(self) -> str:
        """Name of the bank: cases that differ in their look alone share it."""
        b = self.bank
        return f"{b.shape}-{b.profile}".replace("+", "plus")


@dataclass(frozen=True)
class Design:
    """What a study is beyond its world."""

    name: str
    title: str
    question: tuple[str, ...]  # paragraphs at the head of the page
    weights: tuple[str, ...]  # shipped geometries
    sizes: Mapping[str, tuple[int, int, int]]  # preset -> starts of the roles, in all
    cases: Callable[[str, int, int], list[Case]]  # role, starts, seed
    evidence: Callable[[Bank, str], Evidence]  # bank, look
    recipe: Recipe
    natives: Mapping[str, str]  # method -> column of the evidence
    density: tuple[str, ...]  # columns whose terminals make a consensus control
    methods: tuple[str, ...]  # in the order of the tables
    against: tuple[str, ...]  # what D-JEPA is compared with
    summary: bool = False  # store summaries of wide latents
    sparse: int = 0  # so many candidates of a fitting start are executed; 0: all of them
    together: bool = False  # whether cases of one group may be counted together
    clustered: bool = False  # cases share their starts
    paper: Mapping[tuple[str, str], float] = field(default_factory=dict)  # (case, method) -> %
    paper_cost: Mapping[tuple[str, str], float] = field(default_factory=dict)  # likewise
    unit: tuple[float, str] | None = None  # what brings costs into a unit, and a note that names it
    first: str = ""  # what the candidate with the smallest ID is called, where it is somebody
    prepare: Callable[["CaseStudy", Say], None] | None = None  # more evidence
    extra: Callable[["CaseStudy", str, Say], Mapping[str, Alignment]] | None = None  # fits by group
    measure: Callable[["CaseStudy", Say], dict[str, Any]] | None = None
    figures: Callable[["CaseStudy"], list[Path]] | None = None
    ours: str = "D-JEPA"

    @property
    def plan(self) -> Plan:
        """Which single decisions the page shows."""
        others = [name for name in self.against if name not in ("mixture", self.first)]
        return Plan((*others, "relational", self.ours), (self.ours, others[0]), (3, 1, 1))

    def units(self) -> dict[str, list[str]]:
        """What a verdict is said of, name -> cases: each group, or each case."""
        cases = self.cases("confirmation", 1000, 0)
        if not self.together:
            return {case.name: [case.name] for case in cases}
        groups = list(dict.fromkeys(case.group for case in cases))
        return {
            "all" if len(groups) == 1 else f"all {group}": [
                case.name for case in cases if case.group == group
            ]
            for group in groups
        }


@dataclass(frozen=True)
class CaseStudy:
    """One run of a design."""

    design: Design
    place: Place
    preset: str

    @property
    def out(self) -> Path:
        """Its folder."""
        return self.place.out

    def cases(self, role: str) -> list[Case]:
        """Of one role."""
        starts = self.design.sizes[self.preset][ROLES.index(role)]
        return self.design.cases(role, starts, self.place.seed)

    def stages(self) -> list[Stage]:
        """In order; each needs only files of those before it."""
        from djepa.studies.case_pages import draw_cases, write_case_report, write_case_tables

        out, design = self.out, self.design
        rows = [out / "rows" / f"{case.name}.csv.gz" for case in self.cases("confirmation")]
        found = [
            Stage("collect", out / "banks" / "collected.json", self._collect),
            Stage("predict", out / "banks" / "predicted.json", self._predict),
            Stage("fit", out / "fits" / "fitted.json", self._fit),
            Stage("decide", rows[-1], self._decide),
        ]
        if design.measure is not None:
            found.append(Stage("measure", out / "measures.json", self._measure))
        left, drawn = (*rows, out / "measures.json"), out / "figures" / "README.md"
        listed, page = out / "tables" / "README.md", out / "report.html"
        return [
            *found,
            Stage("tables", listed, lambda say: write_case_tables(self), left),
            Stage("figures", drawn, lambda say: draw_cases(self), left),
            Stage("page", page, lambda say: write_case_report(self), (*left, drawn)),
        ]

    @property
    def recipe(self) -> Recipe:
        """What is fitted; the preset `quick` stops operators early."""
        recipe = self.design.recipe
        if self.preset != "quick":
            return recipe
        few = {n: replace(c, updates=min(c.updates, HURRY)) for n, c in recipe.alignments.items()}
        return Recipe(recipe.mixtures, few)

    def weights(self) -> dict[str, str]:
        """Hashes of the geometries."""
        return {name: weights_hash(name)[:12] for name in self.design.weights}

    def card(self, group: str, **more: str) -> dict[str, Any]:
        """What a fit of a group was made of: banks and geometries, by hash."""
        fitted = [(role, c) for role in ROLES[:2] for c in self.cases(role) if c.group == group]
        banks = {f"{role}/{case.folder}": self.bank(role, case).hash[:12] for role, case in fitted}
        of = {"study": self.design.name, "preset": self.preset, "group": group, **more}
        return {**of, "banks": banks, "weights": self.weights()}

    def bank(self, role: str, case: Case) -> Bank:
        """The bank of a case."""
        return Bank(self._folder(role, case))

    def population(self, role: str, case: Case) -> Population:
        """Evidence and outcomes of a case; identities carry the look where cases share starts."""
        bank = self.bank(role, case)
        evidence, outcomes = self.design.evidence(bank, case.look), Outcomes.from_bank(bank)
        if self.design.clustered:
            names = tuple(f"{name}@{case.look}" for name in evidence.identities)
            evidence, outcomes = (
                replace(evidence, identities=names),
                replace(outcomes, identities=names),
            )
        if self.design.sparse and role != "confirmation":
            outcomes = thinned(outcomes, self.design.sparse)
        if case.rule and outcomes.cost is not None:
            cost = outcomes.cost * case.scale
            outcomes = replace(outcomes, cost=cost, success=cost < 1)
        return Population(evidence, outcomes).to(self.place.device)

    def suite(self, group: str) -> Suite:
        """What was fitted for a group of cases."""
        return load_suite(self.place.fits(group), self.design.recipe)

    def choosers(self, group: str) -> dict[str, Chooser]:
        """Every method of the study, by the names of the tables."""
        design, suite = self.design, self.suite(group)
        found: dict[str, Chooser] = {name: native(of) for name, of in design.natives.items()}
        found |= {f"consensus {name}": densest(name) for name in design.density}
        found |= suite.mixtures
        if design.first:
            found[design.first] = lambda e: lowest(e.ids.double(), e.ids)
        fitted = dict(suite.alignments)
        if design.extra is not None:
            fitted |= design.extra(self, group, lambda line: None)
        return found | {name: aligned(alignment) for name, alignment in fitted.items()}

    def _folder(self, role: str, case: Case) -> Path:
        return self.out / "banks" / role / case.folder

    def _collect(self, say: Say) -> None:
        hashes = {}
        for role in ROLES:
            for case in self.cases(role):
                if (folder := self._folder(role, case)) not in hashes:
                    say(f"  {case.bank.starts} starts, {role}: {case.folder}")
                    hashes[folder] = collect(folder, case.bank, self.place.engine).hash
        names = {str(folder.relative_to(self.out)): of for folder, of in hashes.items()}
        keep(self.out / "banks" / "collected.json", names)

    def _predict(self, say: Say) -> None:
        for weights in self.design.weights:
            model, of = load_geometry(weights, self.place.device), weights_hash(weights)
            for role in ROLES:
                for case in self.cases(role):
                    say(f"  {weights}: {role}, {case.name}")
                    predict_bank(
                        self.bank(role, case),
                        model,
                        of,
                        self.place.device,
                        look=case.look,
                        summary=self.design.summary,
                    )
        if self.design.prepare is not None:
            self.design.prepare(self, say)
        keep(self.out / "banks" / "predicted.json", {"weights": self.design.weights})

    def _fit(self, say: Say) -> None:
        for group in dict.fromkeys(case.group for case in self.cases("fit")):
            parts = [
                Population.join(
                    [self.population(role, c) for c in self.cases(role) if c.group == group]
                )
                for role in ROLES[:2]
            ]
            fit_suite(
                self.place.fits(group),
                parts[0],
                parts[1],
                self.card(group),
                lambda line: say(f"  fitting {line}"),
                recipe=self.recipe,
            )
            if self.design.extra is not None:
                self.design.extra(self, group, say)
        keep(self.out / "fits" / "fitted.json", {"preset": self.preset})

    def _decide(self, say: Say) -> None:
        for case in self.cases("confirmation"):
            test, bank = self.population("confirmation", case), self.bank("confirmation", case)
            unseen(self.place.fits(case.group), test.evidence)
            choices = {n: choose(test.evidence) for n, choose in self.choosers(case.group).items()}
            choices |= bounds(bank, test)
            hashes = self._hashes(case.group)
            of = (self.design.name, mixed(test), case.rule)
            rows = rows_of(choices, test, bank, case.name, hashes, *of)
            if not case.rule:  # another rule judges the same executions
                label, matters = case.name, np.array(mixed(test))
                held = inspection(bank, test, choices, matters, label, self.design.plan, case.look)
                keep(self.out / "inspector" / f"{case.name}.json", held)
            write_rows(self.out / "rows" / f"{case.name}.csv.gz", rows)
            say(f"  {case.name}: {len(test.evidence)} starts")

    def _hashes(self, group: str) -> dict[str, str]:
        """Of everything fitted, by method."""
        folder, found = self.place.fits(group), dict(self.suite(group).hashes)
        for name in self.design.methods:
            if name not in found and (folder / name / "manifest.json").exists():
                found[name] = alignment_hash(folder / name)
        return found

    def _measure(self, say: Say) -> None:
        assert self.design.measure is not None
        keep(self.out / "measures.json", self.design.measure(self, say))


def new_case_study(design: Design, place: Place, preset: str) -> CaseStudy:
    """A study of a preset, its folder claimed."""
    if preset not in design.sizes:
        raise unknown_name("preset", preset, design.sizes)
    study = CaseStudy(design, place, preset)
    head = {"study": design.name, "preset": preset, "seed": place.seed, "weights": study.weights()}
    splits = {role: study.cases(role)[0].bank.split for role in ROLES}
    recipe = sha256(to_json(asdict(study.recipe)).encode())[:12]
    sizes = list(design.sizes[preset])
    claim(place.out, {**head, "sizes": sizes, "splits": splits, "recipe": recipe})
    return study


def mixed(test: Population) -> list[bool]:
    """Which starts have a success and a failure: on the others no decision matters."""
    found: list[bool] = test.outcomes.mixed.tolist()
    return found


def thinned(outcomes: Outcomes, few: int) -> Outcomes:
    """Only so many candidates of a start count as executed: those that a hash of it draws."""
    observed = torch.zeros_like(outcomes.observed)
    K = observed.shape[1]
    for row, name in enumerate(outcomes.identities):
        drawn = generator("sparse", name.split("@")[0]).permutation(K)[:few]
        observed[row, torch.from_numpy(drawn)] = True
    return replace(outcomes, observed=observed & outcomes.observed)


def evidence_from(
    bank: Bank,
    columns: Mapping[str, tuple[str, str]],
    dense: Mapping[str, str],
) -> Evidence:
    """Columns name -> (stored evidence, part of its cost or ""); dense name -> stored evidence."""
    from djepa.models.predictions import read_predictions

    held = {of: read_predictions(bank, of) for of in {of for of, _ in columns.values()}}
    costs = {name: held[of].parts[part] if part else held[of].cost
             for name, (of, part) in columns.items()}  # fmt: skip
    ends, goals = {}, {}
    for name, of in dense.items():
        futures = held[of].futures
        assert futures is not None  # the study had them stored
        ends[name], goals[name] = futures[:, :, -1], held[of].goal
    identities = [bytes(row).hex() for row in bank.decisions.identities]
    ids = bank.decisions.candidate_ids
    return Evidence.from_arrays(
        start_ids=identities, candidate_ids=ids, costs=costs, latents=ends, goals=goals
    )


def keep(path: Path, value: Any) -> None:
    """JSON, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, to_json(value).encode())


def split_of(study: str, role: str) -> str:
    """Name of the split of a role: no two share a start.

    Confirmation starts are the second set: ours was changed after the first had been looked at.
    """
    return f"{study}-{role}-2" if role == "confirmation" else f"{study}-{role}"


def share_out(starts: int, names: Sequence[str]) -> dict[str, int]:
    """As many of each as make `starts` together; what does not divide goes to the first."""
    each, left = divmod(starts, len(names))
    return {name: each + (i < left) for i, name in enumerate(names)}
