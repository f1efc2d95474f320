"""The PushT study: which populations, pools, methods and measures, as a list of stages.

FOLDER/
  study.json           what it is; another study's folder is refused
  banks/POOLS/...      fit, confirmation, and where there are such, audit and development starts
  fits/POOLS/...       fusions, alignments, patches
  rows/POOLS.csv.gz    one row per method and start; the tables are made from these alone
  audit.json deployment.json budget/ lifting/ learning/ inspector/   per kind of pools
  tables/ figures/ report.html
"""

import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from djepa.align.methods import Population, aligned, fit_aligned
from djepa.align.outcomes import Outcomes
from djepa.align.presets import FOUR, PAIR, SUITE
from djepa.align.store import alignment_hash, load_alignment, save_alignment
from djepa.align.suite import Suite, fit_suite, load_suite, unseen
from djepa.audit.bank import audit_bank
from djepa.bank.read import Bank
from djepa.bank.schema import encode, sha256
from djepa.errors import DjepaError, unknown_name
from djepa.evaluate.rows import write_rows
from djepa.evidence.evidence import Evidence
from djepa.files import to_json, write_atomically
from djepa.rollout.engine import Engine
from djepa.studies.decisions import decide_all, eligible, rows_of, yardsticks
from djepa.studies.deployment import deployment
from djepa.studies.inspection import inspection
from djepa.studies.measures import SEEDS, budgets, learning_curve, lifting
from djepa.studies.populations import (
    ADAPTED,
    Place,
    fit_adapted,
    foresee,
    foresee_adapted,
    gather,
    load,
)
from djepa.studies.stages import Say, Stage

SHIPPED = Path(__file__).parent.parent / "suites" / "pusht"
HERE = "relational, fitted here"
POOLS = ("reference", "decoy", "planner")
BUDGETED = ("native lewm", "native tdjepa", "fusion, two", "relational", "fusion, four", "D-JEPA")
LIFTED = ("relational", "D-JEPA")
LEFT = {"rows": ".csv.gz", "learning": ".json"}  # by stages for kinds of pools, as their last file


@dataclass(frozen=True)
class Sizes:
    """How many starts; every population has identities of its own."""

    fit: int  # relations
    calibration: int
    plastic: tuple[int, int]  # fitting and calibration starts of patches, of the same bank; or 0
    audit: int
    confirmation: int
    searched: int  # confirmation starts of planner pools, each of which costs a search
    curve: tuple[int, ...] = ()  # fitting starts of the learning curve
    repeats: int = 10  # of every latency
    shipped: bool = False  # take what comes with the package instead of fitting


PRESETS = {
    "quick": Sizes(96, 32, (0, 0), 48, 64, 48, repeats=3, shipped=True),
    "paper": Sizes(448, 64, (384, 128), 96, 512, 256),
    "large": Sizes(4096, 512, (384, 128), 512, 2048, 2048, (448, 1024, 2048, 4096)),
}


@dataclass(frozen=True)
class Study:
    """One run of it."""

    place: Place
    sizes: Sizes
    pools: tuple[str, ...] = POOLS

    def stages(self) -> list[Stage]:
        """In order; each needs only files of those before it."""
        out = self.place.out
        each = [
            (f"collect {p}", out / "banks" / p / "collected.json", self._collect, p)
            for p in self.pools
        ]
        each += [
            (f"predict {p}", out / "banks" / p / "predicted.json", self._predict, p)
            for p in self.pools
        ]
        fit = self._take if self.sizes.shipped else self._fit
        each += [(f"fit {p}", out / "fits" / p / "fitted.json", fit, p) for p in self.pools]
        each += [(f"decide {p}", out / "rows" / f"{p}.csv.gz", self._decide, p) for p in self.pools]
        found = [Stage(name, makes, _bound(run, p)) for name, makes, run, p in each]
        if "reference" in self.pools:
            found.append(Stage("audit", out / "audit.json", self._audit))
        if self.sizes.curve:
            found += [
                Stage(f"learn {p}", out / "learning" / f"{p}.json", _bound(self._curve, p))
                for p in self.pools
            ]
        return found

    def writing(self) -> list[Stage]:
        """What is made of the files that the others leave; anew when there are newer ones."""
        from djepa.studies.draw import draw_figures
        from djepa.studies.pages import write_report
        from djepa.studies.write import Results, write_tables

        results = Results(out := self.place.out)
        kept = [out / part / f"{p}{end}" for part, end in LEFT.items() for p in POOLS]
        left, drawn = (*kept, out / "audit.json"), out / "figures" / "README.md"
        return [
            Stage("tables", out / "tables" / "README.md", lambda say: write_tables(results), left),
            Stage("figures", drawn, lambda say: draw_figures(results, say), left),
            Stage("page", out / "report.html", lambda say: write_report(results), (*left, drawn)),
        ]

    def populations(self, pools: str) -> dict[str, int]:
        """Name -> starts, of one kind of pools."""
        s = self.sizes
        confirmation = s.searched if pools == "planner" else s.confirmation
        found = {"fit": max(s.fit + s.calibration, sum(s.plastic)), "confirmation": confirmation}
        if pools == "reference":
            found["audit"] = s.audit
        if s.shipped and pools != "reference":
            del found["fit"]
        return found

    def bank(self, pools: str, population: str) -> Bank:
        """One of the banks."""
        return Bank(self.place.bank(pools, population))

    def suite(self, pools: str) -> Suite:
        """What was fitted."""
        return load_suite(self.place.fits(pools))

    def _collect(self, pools: str, say: Say) -> None:
        hashes = {}
        for name, starts in self.populations(pools).items():
            say(f"  {starts} starts, {name}")
            hashes[name] = gather(self.place, pools, name, starts).hash
        _keep(self.place.out / "banks" / pools / "collected.json", hashes)

    def _predict(self, pools: str, say: Say) -> None:
        for name in self.populations(pools):
            say(f"  {name}")
            few = self.sizes.shipped and name == "fit"
            foresee(self.place, self.bank(pools, name), PAIR if few else FOUR)
        _keep(self.place.out / "banks" / pools / "predicted.json", {"geometries": FOUR})

    def _fit(self, pools: str, say: Say) -> None:
        bank, s = self.bank(pools, "fit"), self.sizes
        if sum(s.plastic):
            say("  patches of TD-JEPA: by decisions, by dynamics alone")
            fit_adapted(self.place, pools, bank, s.plastic, say)
            foresee_adapted(self.place, bank, pools)
        fit, calibration = self._parts(load(self.place, bank, s.fit + s.calibration))
        card = {"bank": bank.hash, "fit": s.fit, "calibration": s.calibration, "pools": pools}
        fit_suite(
            self.place.fits(pools), fit, calibration, card, lambda line: say(f"  fitting {line}")
        )
        _keep(self.place.fits(pools) / "fitted.json", card)

    def _take(self, pools: str, say: Say) -> None:
        """What comes with the package; and one alignment fitted here, to see it happen."""
        target = self.place.fits(pools)
        say("  fusions and alignments that come with the package")
        shutil.copytree(SHIPPED / pools, target, dirs_exist_ok=True)
        if pools == "reference" and not (target / HERE / "manifest.json").exists():
            bank, s = self.bank(pools, "fit"), self.sizes
            evidence = Evidence.from_bank(bank, PAIR, PAIR)
            whole = Population(evidence, Outcomes.from_bank(bank)).to(self.place.device)
            say(f"  the published operator, on {s.fit} starts of this run")
            alignment = fit_aligned(SUITE["relational"], *self._parts(whole))
            save_alignment(alignment, target / HERE, {"bank": bank.hash})
        _keep(target / "fitted.json", {"shipped": True})

    def _parts(self, whole: Population) -> tuple[Population, Population]:
        """The fitting and the calibration starts of relations."""
        s, device = self.sizes, whole.evidence.ids.device
        first = torch.arange(s.fit, device=device)
        then = torch.arange(s.fit, s.fit + s.calibration, device=device)
        return whole.rows(first), whole.rows(then)

    def _decide(self, pools: str, say: Say) -> None:
        bank = self.bank(pools, "confirmation")
        foresee_adapted(self.place, bank, pools)
        test, suite = load(self.place, bank), self.suite(pools)
        unseen(self.place.fits(pools), test.evidence)
        methods = suite.choosers(test.evidence.names)
        hashes = suite.hashes | self._patches(pools)
        if (own := self.place.fits(pools) / HERE).exists():
            methods[HERE], hashes[HERE] = aligned(load_alignment(own)), alignment_hash(own)
        choices = decide_all(methods, test)
        out = self.place.out
        say("  budgets")
        some = {name: methods[name] for name in BUDGETED if name in methods}
        _keep(out / "budget" / f"{pools}.json", budgets(some, test, SEEDS))
        say("  lifting, latency, inspection")
        lifted = {}
        for name in LIFTED:
            lifted[name], drawn = lifting(choices[name], test.evidence, bank)
        _keep(out / "lifting" / f"{pools}.json", lifted)
        write_atomically(out / "lifting" / f"{pools}.safetensors", encode(drawn))
        if pools == "reference":
            _keep(out / "deployment.json", deployment(self.place, suite, bank, self.sizes.repeats))
        rulers = yardsticks(bank, test, self.place.device)
        matters = eligible(test).cpu().numpy()
        _keep(out / "inspector" / f"{pools}.json", inspection(bank, test, choices, matters, pools))
        write_rows(
            out / "rows" / f"{pools}.csv.gz",
            rows_of({**choices, **rulers}, test, bank, pools, hashes),
        )

    def _patches(self, pools: str) -> dict[str, str]:
        """Hashes of what stands in for the end of TD-JEPA's predictor, by method."""
        files = {
            label: self.place.fits(pools) / label / "manifest.json" for label in ADAPTED.values()
        }
        return {name: sha256(file.read_bytes()) for name, file in files.items() if file.exists()}

    def _audit(self, say: Say) -> None:
        bank = self.bank("reference", "audit")
        found = [audit_bank(bank, name, self.place.device).as_dict(each=True) for name in FOUR]
        _keep(self.place.out / "audit.json", found)

    def _curve(self, pools: str, say: Say) -> None:
        starts = self.sizes.fit + self.sizes.calibration
        fit, calibration = self._parts(load(self.place, self.bank(pools, "fit"), starts))
        test = load(self.place, self.bank(pools, "confirmation"))
        found = learning_curve(fit, calibration, test, self.sizes.curve, say)
        _keep(self.place.out / "learning" / f"{pools}.json", found)


def new_study(
    out: Path, preset: str, engine: Engine, device: str, seed: int, pools: tuple[str, ...] = POOLS
) -> Study:
    """A study of a preset, its folder claimed."""
    from djepa.studies.stages import claim

    if preset not in PRESETS:
        raise unknown_name("preset", preset, PRESETS)
    for name in pools:
        if name not in POOLS:
            raise unknown_name("pools", name, POOLS)
        if PRESETS[preset].shipped and not (SHIPPED / name).is_dir():
            raise DjepaError(
                f"This version ships nothing fitted on {name} pools, which preset '{preset}' "
                "needs. Fit here: --preset paper."
            )
    sizes = PRESETS[preset]
    claim(out, {"study": "pusht", "preset": preset, "seed": seed, "sizes": asdict(sizes)})
    return Study(Place(out, engine, device, seed), sizes, pools)


def _bound(run: Callable[[str, Say], None], pools: str) -> Callable[[Say], None]:
    return lambda say: run(pools, say)


def _keep(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, to_json(value).encode())
