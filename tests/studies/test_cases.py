"""Real studies of cases, tiny: every stage runs, what is there stays, the same rows come out again,
and no outcome gets into a choice.
"""

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from djepa.align.labels import Labels
from djepa.align.methods import Population
from djepa.align.suite import Recipe
from djepa.errors import DjepaError
from djepa.evaluate.intervals import rate_of
from djepa.evaluate.rows import Row, successes
from djepa.report.page import inline
from djepa.rollout.engine import LocalEngine
from djepa.studies.case_pages import case_rows, verdict
from djepa.studies.cases import ROLES, CaseStudy, Design, new_case_study, share_out
from djepa.studies.index import DESIGNS, across_studies, write_index
from djepa.studies.populations import Place
from djepa.studies.stages import run_stages

pytest.importorskip("matplotlib")

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
        label: replace(config, updates=min(config.updates, UPDATES), every=2)
        for label, config in design.recipe.alignments.items()
    }
    recipe = Recipe(mixtures, few)
    if name == "granular":
        patch.setattr("djepa.studies.granular.RECIPE", recipe, raising=False)
    if name == "reacher":
        from djepa.studies import reacher

        patch.setitem(reacher.UPDATES, "tiny", UPDATES)
    return replace(design, sizes={"tiny": SIZES[name]}, recipe=recipe)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    """Name -> a study that has run once, in a folder of that name. Not to be written to."""
    made: dict[str, Tiny] = {}
    root = tmp_path_factory.mktemp("studies")
    with pytest.MonkeyPatch.context() as patch:

        def make(name: str) -> Tiny:
            if name not in made:
                tiny = Tiny(tiny_design(name, patch), root / name)
                ran = tiny.run()
                middle = [] if tiny.design.measure is None else ["measure"]
                first = ["collect", "predict", "fit", "decide"]
                assert ran == [*first, *middle, "tables", "figures", "page"]
                made[name] = tiny
            return made[name]

        yield make


@pytest.fixture
def again(finished: Finished, tmp_path: Path) -> Finished:
    """Name -> a copy to work on, with all its times."""

    def copy(name: str) -> Tiny:
        whole = finished(name)
        return Tiny(whole.design, Path(shutil.copytree(whole.out, tmp_path / name)))

    return copy


# ----------------------------------------------------------------------------- what a run leaves


@every
def test_every_stage_leaves_what_it_says(name: str, finished: Finished) -> None:
    tiny = finished(name)
    for stage in tiny.study.stages():
        assert stage.makes.exists(), stage.name
        assert stage.done()
    assert not list(tiny.out.rglob("*.part"))
    held = json.loads((tiny.out / "study.json").read_text())
    assert (held["study"], held["preset"], held["seed"]) == (name, "tiny", 0)
    assert held["sizes"] == list(SIZES[name])
    assert set(held["weights"]) == set(tiny.design.weights)
    tables = {path.stem for path in (tiny.out / "tables").glob("*.csv")}
    own = {"reacher": {"transport"}, "granular": {"sparsity"}}.get(name, set())
    assert tables == {"success", "cost", "paired-d-jepa", "paired-relational", *own}
    listed = (tiny.out / "tables" / "README.md").read_text()
    assert {line.split("](")[1] for line in listed.splitlines()} == {f"{t}.md)" for t in tables}


DRAWN = {
    "reacher": {"success", *(f"{what}-{of}" for what in ("transport", "costs")
                             for of in ("reference", "decoy"))},
    "granular": {"success", "thresholds", "costs-d-jepa", "costs-relational"},
    "shapes": {"gains-d-jepa", "gains-relational"},  # so many panels would not fit
    "appearance": {"looks", "gains-d-jepa", "gains-relational"},
}  # fmt: skip


@every
def test_figures_and_page(name: str, finished: Finished) -> None:
    tiny = finished(name)
    drawn = {path.stem for path in (tiny.out / "figures").glob("*.svg")}
    assert {stem for stem in drawn if not stem.startswith("films-")} == DRAWN[name]
    listed = re.findall(r"!\[(.+?)\]", (tiny.out / "figures" / "README.md").read_text())
    assert listed == sorted(drawn)
    page = (tiny.out / "report.html").read_text()
    assert page.count("data:image/svg+xml") == len(drawn)
    for text in (*tiny.design.question, *verdict(tiny.design, tiny.rows())):
        assert inline(text) in page
    assert f"djepa study {name} --preset tiny --seed 0." in page
    for of in tiny.rows().values():
        assert f"{of[0].pools} {of[0].bank}" in page


@every
def test_films_show_a_start_that_ours_alone_solves(name: str, finished: Finished) -> None:
    """There is one of each of the first four cases that have such a start, and no other."""
    tiny, wanted = finished(name), set()
    native = next(iter(tiny.design.natives))
    for case, of in list(tiny.rows().items())[:4]:
        won = successes(of)
        if (won["D-JEPA"] & ~won[native]).any():
            wanted.add(f"films-{case}")
    assert {path.stem for path in (tiny.out / "figures").glob("films-*.svg")} == wanted


@every
def test_rows_hold_every_method_of_every_case(name: str, finished: Finished) -> None:
    tiny, starts = finished(name), SIZES[name][2]
    starts = 1 if name == "shapes" else starts
    assert list(tiny.rows()) == list(CASES[name])
    for case, of in tiny.rows().items():
        counted = dict.fromkeys(tiny.design.methods, starts)
        assert Counter(row.method for row in of) == counted
        about = {(row.study, row.pools, row.rule) for row in of}
        assert about == {(name, case, CASES[name][case])}


@every
def test_rows_are_what_the_bank_says_of_the_choices(name: str, finished: Finished) -> None:
    """Successes, costs, identities; under a stricter rule, costs in its own unit."""
    tiny = finished(name)
    for case in tiny.study.cases("confirmation"):
        bank, rows = tiny.study.bank("confirmation", case), tiny.rows()[case.name]
        d, seen = bank.decisions, bank.outcomes
        scale = 0.18 / 0.12 if case.name == "strict" else 1.0
        cost = seen.cost.astype(float) * scale
        assert ((cost < 1) == seen.success).all() or case.name == "strict"
        for row in rows:
            at = d.candidate_ids[row.start].tolist().index(row.chosen)
            paid = cost[row.start, at]
            assert row.cost == pytest.approx(paid, abs=1e-6)
            assert row.success == (paid < 1)
            both = 0 < (cost[row.start] < 1).sum() < bank.candidates
            assert row.eligible == both
            assert row.identity == bytes(d.identities[row.start]).hex()[:16]
            assert row.bank == bank.hash[:12]
        paid_by = {m: [r.cost for r in rows if r.method == m] for m in tiny.design.methods}
        assert paid_by["oracle"] == pytest.approx(cost.min(1), abs=1e-6)
        assert all(
            best <= of + 1e-9
            for paid_for in paid_by.values()
            for best, of in zip(paid_by["oracle"], paid_for, strict=True)
        )


@every
def test_every_fitted_method_says_from_which_file(name: str, finished: Finished) -> None:
    tiny = finished(name)
    plain = {*tiny.design.natives, *(f"consensus {of}" for of in tiny.design.crowd)}
    plain |= BLIND | ({tiny.design.first} - {""})
    for of in tiny.rows().values():
        assert {row.method for row in of if not row.checkpoint} == plain
        fitted = {row.method: row.checkpoint for row in of if row.checkpoint}
        alignments = set(fitted) - set(tiny.design.recipe.mixtures)
        assert len({fitted[method] for method in alignments}) == len(alignments)
        assert {row.method for row in of if row.opened} <= alignments


@every
def test_groups_are_fitted_apart(name: str, finished: Finished) -> None:
    """Cases of a group share all that was fitted, cases of two groups nothing."""
    tiny, marks = finished(name), dict[str, set[str]]()
    for case in tiny.study.cases("confirmation"):
        held = {row.checkpoint for row in tiny.rows()[case.name]} - {""}
        assert held == marks.setdefault(case.group, held)
    groups = {"reacher": ["reference", "decoy"], "shapes": ["published", "decoy"]}
    assert list(marks) == groups.get(name, ["all"])
    assert sum(map(len, marks.values())) == len(set.union(*marks.values()))


def test_the_anchor_is_the_first_candidate(finished: Finished) -> None:
    for of in finished("granular").rows().values():
        assert {row.chosen for row in of if row.method == "anchor"} == {1}


def test_a_stricter_rule_changes_counts_and_no_choice(finished: Finished) -> None:
    main, strict = finished("granular").rows().values()
    assert [(r.method, r.chosen, r.opened) for r in main] == [
        (r.method, r.chosen, r.opened) for r in strict
    ]
    assert all(a.success or not b.success for a, b in zip(main, strict, strict=True))


def measured(tiny: Tiny) -> dict:
    return json.loads((tiny.out / "measures.json").read_text())


def test_what_few_executed_candidates_cost_agrees_with_the_rows(finished: Finished) -> None:
    """The same fits on the same starts are counted in the table of sparsity and in the rows."""
    tiny = finished("granular")
    (table,) = measured(tiny)["tables"]
    recipe = tiny.design.recipe
    wanted = [*recipe.alignments, *recipe.mixtures]
    assert Counter((case, method) for case, method, *_ in table["rows"]) == {
        (case, method): 1 for case in CASES["granular"] for method in wanted
    }
    for case, method, few, _ in table["rows"]:
        assert few == rate_of(successes(tiny.rows()[case])[method]).percent(interval=True)
    dense, sparse = (tiny.out / "fits" / of / "D-JEPA" / "manifest.json" for of in ("dense", "all"))
    assert dense.read_bytes() != sparse.read_bytes()


def test_transport_stays_within_its_bound(finished: Finished) -> None:
    tiny = finished("reacher")
    held = measured(tiny)
    assert [row[0] for row in held["tables"][0]["rows"]] == list(CASES["reacher"])
    for of in held["transport"].values():
        assert 0 <= of["mean"] <= of["largest"] <= 0.1 + 1e-6
        assert [len(row) for row in of["coefficients"]] == [5] * 9
        assert max(abs(x) for row in of["coefficients"] for x in row) <= of["largest"] + 1e-6


# ----------------------------------------------------------------------------- populations


@every
def test_no_confirmation_start_was_fitted(name: str, finished: Finished) -> None:
    tiny = finished(name)
    whole = [tiny.identities(role) for role in ROLES]
    assert len(set.union(*whole)) == sum(map(len, whole))
    for group in {case.group for case in tiny.study.cases("confirmation")}:
        fit, calibration, confirmation = (tiny.identities(role, group) for role in ROLES)
        used = json.loads((tiny.study.place.fits(group) / "suite.json").read_text())["starts"]
        assert set(used) == {start[:16] for start in fit | calibration}
        assert not set(used) & {start[:16] for start in confirmation}


@every
def test_a_fit_on_starts_that_are_tested_is_refused(name: str, again: Finished) -> None:
    tiny = again(name)
    case = tiny.study.cases("confirmation")[-1]
    path = tiny.study.place.fits(case.group) / "suite.json"
    held = json.loads(path.read_text())
    held["starts"][0] = tiny.rows()[case.name][0].identity
    path.write_text(json.dumps(held))
    for file in (tiny.out / "rows").iterdir():
        file.unlink()
    with pytest.raises(DjepaError, match="confirmation starts must be new ones"):
        tiny.run(until="decide")
    assert not (tiny.out / "rows" / f"{case.name}.csv.gz").exists()


def test_only_sixteen_grain_candidates_of_a_fitting_start_are_known(finished: Finished) -> None:
    study = finished("granular").study
    for role, known in (("fit", 16), ("calibration", 16), ("confirmation", 63)):
        labels = study.population(role, study.cases(role)[0]).labels
        assert labels.observed.sum(1).tolist() == [known] * len(labels.identities)


def test_looks_of_a_start_keep_apart_and_can_be_told_to_be_one(finished: Finished) -> None:
    study = finished("appearance").study
    parts = [study.population("fit", case) for case in study.cases("fit")]
    whole = Population.join(parts)  # which refuses names that stand twice
    starts = SIZES["appearance"][0]
    assert [name.split("@")[1] for name in whole.evidence.identities[::starts]] == list(LOOKS)
    assert len({name.split("@")[0] for name in whole.evidence.identities}) == starts
    seen = whole.evidence.costs.unflatten(0, (len(LOOKS), starts))
    assert all((seen[0] != other).any() for other in seen[1:])  # every look is another evidence
    bank = study.bank("fit", study.cases("fit")[0])
    held = {path.name for path in (bank.path / "evidence").iterdir()}
    assert held == {f"jepawm@{look}" for look in LOOKS}


def test_shapes_are_fitted_on_some_and_confirmed_on_others(finished: Finished) -> None:
    study = finished("shapes").study
    shapes = {role: [case.bank.shape for case in study.cases(role)] for role in ROLES}
    assert shapes["fit"] == shapes["calibration"] == ["T", "L", "Z", "+"] * 2
    assert shapes["confirmation"] == [*UNSEEN] * 2
    for role in ROLES:
        for case in study.cases(role):
            config = study.bank(role, case).config
            assert config.shape == case.bank.shape
            assert config.profile == {"published": "visual-shape", "decoy": "decoy"}[case.group]


@pytest.mark.parametrize(
    ("starts", "wanted"), [(9, (3, 2, 2, 2)), (8, (2, 2, 2, 2)), (3, (1, 1, 1, 0))]
)
def test_starts_are_shared_out(starts: int, wanted: tuple[int, ...]) -> None:
    assert share_out(starts, "abcd") == dict(zip("abcd", wanted, strict=True))


# ----------------------------------------------------------------------------- outcomes


def permuted(bank) -> Labels:
    """Outcomes of other candidates of the same start."""
    labels = real(bank)
    assert labels.cost is not None
    return replace(labels, success=labels.success.flip(1), cost=labels.cost.flip(1))


real = Labels.from_bank


@every
def test_no_outcome_gets_into_a_choice(
    name: str, again: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = again(name)
    before, paid = tiny.chosen(), [r.cost for of in tiny.rows().values() for r in of]
    for file in (tiny.out / "rows").iterdir():
        file.unlink()
    monkeypatch.setattr(Labels, "from_bank", permuted)
    assert tiny.run(until="decide") == ["decide"]
    after = tiny.chosen()
    assert list(after) == list(before)
    moved = {
        method for (case, method, start), of in after.items() if of != before[case, method, start]
    }
    assert moved == {"oracle"}
    assert [r.cost for of in tiny.rows().values() for r in of] != paid  # they were permuted


@every
def test_chance_does_not_look_at_the_pool(name: str, finished: Finished) -> None:
    """Draws come from the bank alone: the same for cases that share one, and for no others."""
    tiny, drawn = finished(name), dict[tuple[int, str], list[int]]()
    for case in tiny.study.cases("confirmation"):
        bank = tiny.study.bank("confirmation", case)
        chosen = [row.chosen for row in tiny.rows()[case.name] if row.method == "random"]
        ids = bank.decisions.candidate_ids.tolist()
        places = [row.index(one) for row, one in zip(ids, chosen, strict=True)]
        assert drawn.setdefault((bank.candidates, bank.hash), places) == places
    banks = {"reacher": 2, "granular": 1, "shapes": 6, "appearance": 1}[name]
    assert len(drawn) == banks
    for size in {K for K, _ in drawn}:
        alike = [tuple(places) for (K, _), places in drawn.items() if size == K]
        assert len(set(alike)) > 1 or len(alike) == 1


# ----------------------------------------------------------------------------- again


@every
def test_a_second_run_does_nothing(name: str, finished: Finished) -> None:
    tiny = finished(name)
    before = tiny.files()
    assert tiny.run() == []
    assert tiny.files() == before


@every
def test_a_lost_page_is_made_again_and_nothing_else(name: str, again: Finished) -> None:
    tiny = again(name)
    before = tiny.files()
    (tiny.out / "report.html").unlink()
    assert tiny.run() == ["page"]
    after = tiny.files()
    assert after["report.html"][1] == before["report.html"][1]
    assert {n: of for n, of in after.items() if n != "report.html"} == {
        n: of for n, of in before.items() if n != "report.html"
    }


@every
def test_the_same_rows_come_out_in_another_folder(
    name: str, finished: Finished, tmp_path: Path
) -> None:
    first = finished(name)
    second = Tiny(first.design, tmp_path / "elsewhere")
    assert second.run(until="decide") == ["collect", "predict", "fit", "decide"]
    files = [f"rows/{case}.csv.gz" for case in CASES[name]]
    for file in ("study.json", "banks/collected.json", *files):
        assert (second.out / file).read_bytes() == (first.out / file).read_bytes(), file


@every
def test_the_folder_of_another_study_is_refused(name: str, again: Finished) -> None:
    tiny = again(name)
    before, place = tiny.files(), tiny.study.place
    more = replace(tiny.design, sizes={**tiny.design.sizes, "more": (9, 9, 9)})
    with pytest.raises(DjepaError, match=r"another preset, sizes\. Choose another --out"):
        new_case_study(more, place, "more")
    with pytest.raises(DjepaError, match="another seed"):
        new_case_study(tiny.design, replace(place, seed=1), "tiny")
    with pytest.raises(DjepaError, match="another study"):
        new_case_study(replace(tiny.design, name="other"), place, "tiny")
    with pytest.raises(DjepaError, match="another sizes"):
        new_case_study(replace(tiny.design, sizes={"tiny": (4, 4, 4)}), place, "tiny")
    with pytest.raises(DjepaError, match="another weights"):
        new_case_study(replace(tiny.design, weights=("lewm",)), place, "tiny")
    assert tiny.files() == before


def test_an_unknown_preset_claims_no_folder(tmp_path: Path) -> None:
    for name in ("granular", "shapes", "appearance"):
        place = Place(tmp_path / name, LocalEngine(1))
        with pytest.raises(DjepaError, match=r"Unknown preset 'papr'\. Did you mean 'paper'\?"):
            new_case_study(DESIGNS[name](), place, "papr")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", DESIGNS)
def test_presets_have_starts_for_every_case(name: str, tmp_path: Path) -> None:
    """Each role of each preset, and no two roles of one split; names fit those of the tables."""
    if name == "reacher":
        pytest.importorskip("mujoco")
    design = DESIGNS[name]()
    assert {"quick", "paper", "large"} <= set(design.sizes)
    for preset in design.sizes:
        study = CaseStudy(design, Place(tmp_path, LocalEngine(1)), preset)
        splits = [{case.bank.split for case in study.cases(role)} for role in ROLES]
        assert len(set.union(*splits)) == sum(map(len, splits))
        assert [case.name for case in study.cases("confirmation")] == list(CASES[name])
    assert {case for case, _ in design.paper} <= set(CASES[name])
    assert {method for _, method in design.paper} <= set(design.methods)
    assert {*design.against, design.ours} <= set(design.methods)


@every
def test_cases_that_are_counted_together_say_whether_they_share_starts(
    name: str, finished: Finished
) -> None:
    """Or intervals over several cases would count a start several times."""
    tiny = finished(name)
    assert [case for of in tiny.design.units().values() for case in of] == list(CASES[name])
    for cases in tiny.design.units().values():
        names = [start for case in cases for start in {row.identity for row in tiny.rows()[case]}]
        assert (len(set(names)) < len(names)) == (tiny.design.clustered and len(cases) > 1)


# ----------------------------------------------------------------------------- index, commands


def test_the_index_says_what_finished_studies_found(finished: Finished, tmp_path: Path) -> None:
    for name in ("granular", "appearance"):
        shutil.copytree(finished(name).out, tmp_path / name, ignore=shutil.ignore_patterns("banks"))
    (tmp_path / "shapes").mkdir()  # begun, not finished
    shutil.copy(finished("shapes").out / "study.json", tmp_path / "shapes")
    path = write_index(tmp_path)
    assert path == tmp_path / "index.html"
    page = path.read_text()
    for name in ("granular", "appearance"):
        design = DESIGNS[name]()
        assert f"{name}: {design.title}" in page
        lines = verdict(design, finished(name).rows())
        assert len(lines) == 2 * len(design.units())
        for line in lines:
            assert inline(line) in page
        assert f"{name}/report.html" in page
        assert (tmp_path / f"{name}/report.html").exists()
    assert page.index("granular: ") < page.index("appearance: ")
    assert "tiny" in page
    for absent in ("pusht", "reacher", "shapes"):
        assert f"{absent}/report.html" not in page
    before = path.read_bytes()
    assert write_index(tmp_path).read_bytes() == before


def test_what_methods_reach_across_studies(finished: Finished) -> None:
    """One line for every unit, with the share of all its starts that a method solves."""
    names = ("granular", "appearance")
    table = across_studies({name: finished(name).out for name in names})
    head = ("study", "case", "starts")
    assert table.columns == (*head, "native", "fusion", "consensus + fusion", "relational",
                             "D-JEPA", "oracle")  # fmt: skip
    called = {
        "granular": ("native", "multi-view fusion", "consensus + fusion"),
        "appearance": ("native", "fusion", "consensus + fusion"),
    }
    lines = iter(table.rows)
    for name in names:
        for unit, cases in DESIGNS[name]().units().items():
            rows = [row for case in cases for row in finished(name).rows()[case]]
            shares = []
            for method in (*called[name], "relational", "D-JEPA", "oracle"):
                won = [row.success for row in rows if row.method == method]
                shares.append(f"{100 * sum(won) / len(won):.1f}")
            assert next(lines) == (name, unit, str(len(won)), *shares)
    assert next(lines, None) is None
    assert [row[1] for row in table.rows] == ["main", "strict", "all"]


def djepa(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "djepa", "study", *arguments], capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("study", "complaint"),
    [("nope", "Unknown study 'nope'. Known: "), ("reecher", "Did you mean 'reacher'? Known: ")],
)
def test_mistakes_name_the_nearest(study: str, complaint: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = djepa(study, "--out", str(out))
    assert done.returncode == 1
    said = " ".join(done.stderr.split())
    assert complaint in said
    assert "Traceback" not in said
    assert all(name in said.split("Known: ")[1] for name in (*DESIGNS, "pusht", "all"))
    assert not out.exists()
