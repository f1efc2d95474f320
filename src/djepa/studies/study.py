"""One run of a design, stage by stage.

    FOLDER/
      study.json                design and preset; the folder of another study is refused
      banks/SPLIT/...           executed candidates, with the predictions of every geometry
      fits/GROUP/               fusions and alignments; other fits are in GROUP-own
      rows/CASE.csv.gz          one row per method and start: success, cost and comparisons
      measures/NAME/CASE.json   results of the design's measures
      planners/GROUP/           a file per method that plans by itself, where deployment is measured
      tables/ figures/ report.html

Legend: N starts, K candidates.
"""

import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from djepa.align.fit import Alignment
from djepa.align.methods import (
    Choice,
    Chooser,
    Population,
    aligned,
    densest,
    fit_each,
    lowest,
    native,
)
from djepa.align.outcomes import Outcomes
from djepa.align.store import load_alignment, save_alignment
from djepa.align.suite import Recipe, Suite, fit_suite, load_suite, unseen
from djepa.artefacts.folder import Arrays, encode
from djepa.artefacts.records import folder_hash, sha256
from djepa.bank.collect import collect
from djepa.bank.read import Bank
from djepa.errors import DjepaError, unknown_name
from djepa.evaluate.rows import Row, read_rows, write_rows
from djepa.files import to_json, write_atomically
from djepa.models.predictions import predict_bank
from djepa.models.source import open_geometry, source_hash
from djepa.rollout.execute import CollectConfig
from djepa.studies.decisions import bounds, endpoint, rows_of
from djepa.studies.design import ROLES, Case, Design, Measure, Place, Sizes
from djepa.studies.populations import thinned
from djepa.studies.stages import Say, Stage, claim


@dataclass(frozen=True)
class Study:
    """One run of a design."""

    design: Design
    place: Place
    preset: str
    only: tuple[str, ...] = ()  # groups of cases; all of them if empty

    @property
    def out(self) -> Path:
        """Folder of the study."""
        return self.place.out

    @property
    def sizes(self) -> Sizes:
        """Sizes of the preset."""
        return self.design.sizes[self.preset]

    @property
    def recipe(self) -> Recipe:
        """The design's recipe, with updates limited by the preset."""
        recipe, most = self.design.recipe, self.sizes.updates
        if most is None:
            return recipe
        few = {n: replace(c, updates=min(c.updates, most)) for n, c in recipe.alignments.items()}
        return Recipe(recipe.mixtures, few)

    def cases(self, role: str, group: str = "") -> list[Case]:
        """Cases of one role, and of one group if given."""
        wanted = (group,) if group else self.only
        found = self.design.cases(role, self.sizes, self.place)
        return [case for case in found if not wanted or case.group in wanted]

    def stages(self) -> list[Stage]:
        """All stages in order; each needs only files of earlier ones."""
        from djepa.studies.pages import writing

        out, cases = self.out, self.cases("confirmation")
        groups = list(dict.fromkeys(case.group for case in cases))
        steps = (
            ("collect", "banks/collected-{}.json", self._collect),
            ("predict", "banks/predicted-{}.json", self._predict),
            ("fit", "fits/fitted-{}.json", self._fit),
        )
        found = [
            Stage(f"{name} {group}", out / file.format(group), partial(run, group))
            for name, file, run in steps
            for group in groups
        ]
        found += [
            Stage(f"decide {case.name}", self._rows(case.name), partial(self._decide, case))
            for case in cases
        ]
        measures = [m for m in self.design.measures if m.run is not None and m.when(self.sizes)]
        found += [
            Stage(f"{m.name} {case.name}", self.measured(m.name, case.name),
                  partial(self._measure, m, case))
            for m in measures
            for case in cases
            if not m.only or case.name in m.only
        ]  # fmt: skip
        names = self.design.names  # another run in the same folder may have made some
        left = [self._rows(name) for name in names]
        left += [self.measured(m.name, name) for m in measures for name in names]
        return [*found, *writing(self, tuple(left))]

    def weights(self) -> dict[str, str]:
        """Name -> hash of each geometry's weights."""
        return {name: source_hash(name)[:12] for name in self.design.weights}

    def card(self, group: str, **more: str) -> dict[str, Any]:
        """Inputs of a fit of a group: hashes of banks and geometries."""
        fitted = {case.folder: self.bank(case) for r in ROLES[:2] for case in self.cases(r, group)}
        of = {"study": self.design.name, "preset": self.preset, "group": group, **more}
        banks = {folder: bank.hash[:12] for folder, bank in fitted.items()}
        return {**of, "banks": banks, "weights": self.weights()}

    def bank(self, case: Case) -> Bank:
        """The bank of a case, or what the design's source opens instead."""
        open_bank = Bank if self.design.source is None else self.design.source.open
        found: Bank = open_bank(self.out / "banks" / case.folder)
        return found

    def rows(self, case: str) -> list[Row]:
        """Stored rows of a case."""
        return read_rows(self._rows(case))

    def measured(self, name: str, case: str) -> Path:
        """File of a measure."""
        return self.out / "measures" / name / f"{case}.json"

    def keep_arrays(self, name: str, case: str, arrays: Arrays) -> None:
        """Write the arrays of a measure beside its file."""
        file = self.measured(name, case).with_suffix(".safetensors")
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, encode(arrays))

    def population(self, role: str, case: Case) -> Population:
        """Evidence and outcomes of a case; if cases share starts, identities include the look."""
        if self.design.source is not None:
            return self.design.source.population(self, role, case).to(self.place.device)
        bank = self.bank(case)
        evidence, outcomes = self.design.evidence(bank, case.look), Outcomes.from_bank(bank)
        if self.design.clustered:
            names = tuple(f"{name}@{case.look}" for name in evidence.identities)
            evidence = replace(evidence, identities=names)
            outcomes = replace(outcomes, identities=names)
        if self.design.sparse and role in ROLES[:2]:
            outcomes = thinned(outcomes, self.design.sparse)
        if case.rule and outcomes.cost is not None:
            cost = outcomes.cost * case.scale
            outcomes = replace(outcomes, cost=cost, success=cost < 1)
        whole = Population(evidence, outcomes)
        if case.part is not None:
            whole = whole.rows(torch.arange(*case.part))
        return whole.to(self.place.device)

    def parts(self, group: str) -> tuple[Population, Population]:
        """Fitting and calibration starts of a group, all its cases together."""
        fit, calibration = (
            Population.join([self.population(role, case) for case in self.cases(role, group)])
            for role in ROLES[:2]
        )
        return fit, calibration

    def suite(self, group: str) -> Suite:
        """The fitted methods of a group of cases."""
        return load_suite(self.place.fits(group), self.design.recipe)

    def choosers(self, group: str, columns: tuple[str, ...]) -> dict[str, Chooser]:
        """Every method that these columns of evidence allow, by the names of the rows."""
        design = self.design
        found: dict[str, Chooser] = {
            name: native(of) for name, of in design.natives.items() if of in columns
        }
        found |= {f"consensus {name}": densest(name) for name in design.density}
        found |= self.suite(group).choosers(columns)
        if design.first:
            found[design.first] = lambda e: lowest(e.ids.double(), e.ids)
        more: dict[str, Alignment] = {}
        if design.extra is not None:
            more |= design.extra(self, group, lambda line: None)
        for name in design.here:
            if self.place.made(group, name):
                more[name] = load_alignment(self.place.own(group, name))
        return found | {name: aligned(alignment) for name, alignment in more.items()}

    def decided(self, case: Case) -> tuple[Population, dict[str, Choice]]:
        """Confirmation starts of a case, and what every method chooses; no outcome is used."""
        test = self.population("confirmation", case)
        unseen(self.place.fits(case.group), test.evidence)
        choosers = self.choosers(case.group, test.evidence.names)
        if self.design.source is not None:
            choosers |= self.design.source.choosers(self, case)
        return test, {name: choose(test.evidence) for name, choose in choosers.items()}

    def _rows(self, case: str) -> Path:
        return self.out / "rows" / f"{case}.csv.gz"

    def _banks(self, group: str) -> dict[tuple[str, str], tuple[str, Case]]:
        """(folder, look) -> role and case of each bank to collect and predict."""
        found: dict[tuple[str, str], tuple[str, Case]] = {}
        for role in ROLES:
            if role == "confirmation" and self.design.decide is not None:
                continue  # its starts are executed in closed loop
            for case in self.cases(role, group):
                found.setdefault((case.folder, case.look), (role, case))
        return found

    def _collect(self, group: str, say: Say) -> None:
        hashes: dict[str, str] = {}
        for (folder, _), (role, case) in self._banks(group).items():
            if self.design.source is not None:
                hashes[folder] = self.design.source.collect(self, case, say)
            elif folder not in hashes:
                assert isinstance(case.bank, CollectConfig)
                say(f"  {case.bank.starts} starts, {role}: {case.folder}")
                search = case.proposer and case.proposer(self.place.device)
                target = self.out / "banks" / folder
                hashes[folder] = collect(target, case.bank, self.place.engine, search).hash
        keep(self.out / "banks" / f"collected-{group}.json", hashes)

    def _predict(self, group: str, say: Say) -> None:
        device, banks = self.place.device, self._banks(group).values()
        for weights in self.design.weights:
            model, of = open_geometry(weights, device), source_hash(weights)
            for role, case in banks:
                if weights in self._needed(role):
                    say(f"  {weights}: {role}, {case.name}")
                    summary = self.design.summary and hasattr(model, "summary")
                    predict_bank(
                        self.bank(case),
                        model,
                        of,
                        device,
                        look=case.look,
                        summary=summary,
                        engine=self.place.engine,
                    )
        if self.design.prepare is not None:
            self.design.prepare(self, group, say)
        keep(self.out / "banks" / f"predicted-{group}.json", {"weights": self.design.weights})

    def _needed(self, role: str) -> tuple[str, ...]:
        """Geometries to predict for a role; with shipped fits, only those that fits here need."""
        if not self.sizes.shipped or role not in ROLES[:2]:
            return self.design.weights
        return tuple({name for config in self.design.here.values() for name in config.geometries})

    def _fit(self, group: str, say: Say) -> None:
        target = self.place.fits(group)
        if self.sizes.shipped:
            assert self.design.shipped is not None
            say("  fusions and alignments of the package")
            shutil.copytree(self.design.shipped / group, target, dirs_exist_ok=True)
            if self.cases("fit", group):
                self._fit_here(group, say)
        else:
            fit_suite(
                target,
                *self.parts(group),
                self.card(group),
                lambda line: say(f"  fitting {line}"),
                recipe=self.recipe,
                engine=self.place.engine,
            )
        if self.design.extra is not None:
            self.design.extra(self, group, say)
        keep(self.out / "fits" / f"fitted-{group}.json", {"preset": self.preset})

    def _fit_here(self, group: str, say: Say) -> None:
        fit, calibration = self.parts(group)
        here = self.design.here.items()
        left = [(name, config) for name, config in here if not self.place.made(group, name)]
        for name, _ in left:
            say(f"  {name}, on {len(fit.evidence)} starts")
        for name, found in fit_each(left, fit, calibration, self.place.engine):
            save_alignment(found, self.place.own(group, name), self.card(group))

    def _decide(self, case: Case, say: Say) -> None:
        if self.design.decide is not None:
            write_rows(self._rows(case.name), self.design.decide(self, case, say))
            return
        bank, (test, choices) = self.bank(case), self.decided(case)
        if self.design.source is None:
            choices |= endpoint(bank, test.evidence.ids)
        choices |= bounds(bank, test, self.design.realised, self.place.device)
        about = (self.design.name, case.name, case.rule or bank.config.rule, bank.hash)
        hashes = self._hashes(case.group, choices)
        rows = rows_of(choices, test, about, self.design.eligible(test), hashes)
        write_rows(self._rows(case.name), rows)
        say(f"  {case.name}: {len(test.evidence)} starts")

    def _hashes(self, group: str, methods: Iterable[str]) -> dict[str, str]:
        """Method -> hash of its fit."""
        found = dict(self.suite(group).hashes)
        for name in methods:
            if name not in found and self.place.made(group, name):
                found[name] = folder_hash(self.place.own(group, name))
        return found

    def _measure(self, measure: Measure, case: Case, say: Say) -> None:
        assert measure.run is not None
        file = self.measured(measure.name, case.name)
        keep(file, measure.run(self, case, say))


def new_study(design: Design, place: Place, preset: str, only: tuple[str, ...] = ()) -> Study:
    """A study with its folder marked. `only` names groups of cases, such as decoy."""
    if preset not in design.sizes:
        raise unknown_name("preset", preset, design.sizes)
    study = Study(design, place, preset)
    groups = list(dict.fromkeys(case.group for case in study.cases("confirmation")))
    if study.sizes.shipped and design.shipped and not only:
        only = tuple(group for group in groups if (design.shipped / group).is_dir())
    for group in only or groups:
        if group not in groups:
            raise unknown_name("pools", group, groups)
        if study.sizes.shipped and not (design.shipped and (design.shipped / group).is_dir()):
            raise DjepaError(
                f"This version ships nothing fitted on {group} pools, which preset '{preset}' "
                "needs. Fit here: --preset paper."
            )
    head = {"study": design.name, "preset": preset, "seed": place.seed, "weights": study.weights()}
    splits = {role: study.cases(role)[0].bank.split for role in ROLES if study.cases(role)}
    recipe = sha256(to_json(asdict(study.recipe)).encode())[:12]
    sizes = {of: size for of, size in asdict(study.sizes).items() if size or of != "adapted"}
    claim(place.out, {**head, "sizes": sizes, "splits": splits, "recipe": recipe})
    return replace(study, only=only)


def keep(path: Path, value: Any) -> None:
    """Write JSON atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, to_json(value).encode())
