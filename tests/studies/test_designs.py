"""Real studies, tiny: every stage runs, rows are what banks say, no outcome gets into a choice."""

import json
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from study_kit import BOUNDS, CASES, LOOKS, SIZES, UNSEEN, Finished, every

from djepa.align.methods import Population
from djepa.align.outcomes import Outcomes
from djepa.align.registry import METHODS
from djepa.artefacts.records import sha256
from djepa.errors import DjepaError
from djepa.evaluate.rows import successes
from djepa.report.page import inline
from djepa.studies.design import ROLES, share_out
from djepa.studies.findings import findings
from djepa.studies.measures.budget import SEEDS
from djepa.studies.names import STUDIES, get_design

pytest.importorskip("matplotlib")

# ----------------------------------------------------------------------------- what a run leaves

OWN_TABLES = {
    "pusht": {
        *("ablation-published", "budget-published", "deployment-published", "lifting"),
        *("success-eligible", "budget-eligible-published", "mechanism-published"),
        "paired-composition",
        *(f"audit-{part}-published" for part in ("gap", "inversions", "correlations")),
    },
    "reacher": {"transport"},
    "granular": {"sparsity"},
    "controls": {"calibrated-reference", "preservation-reference"},
}
DRAWN = {
    "pusht": {"success",
              *(f"{what}-published" for what in ("audit-gap", "audit-inversions", "budget",
                                                 "audit-correlations", "learning", "lift-ranks",
                                                 "lift-geometry"))},
    "reacher": {"success", "costs-reference-d-jepa", "costs-decoy-d-jepa", "transport-reference",
                "transport-decoy"},
    "granular": {"success", "thresholds", "costs-main-d-jepa", "costs-main-relational"},
    "shapes": {"cases-published", "cases-decoy"},  # so many panels would not fit
    "appearance": {"looks", "cases-all"},
    "controls": {"success"},
}  # fmt: skip


@every
def test_every_stage_leaves_what_it_says(name: str, finished: Finished) -> None:
    tiny = finished(name)
    for stage in tiny.study.stages():
        assert stage.makes.exists(), stage.name
        assert stage.done()
    assert not list(tiny.out.rglob("*.part"))
    about = json.loads((tiny.out / "study.json").read_text())
    assert (about["study"], about["preset"], about["seed"]) == (name, "tiny", 0)
    assert about["sizes"]["fit"] == SIZES[name].fit
    assert set(about["weights"]) == set(tiny.design.weights)
    tables = {path.stem for path in (tiny.out / "tables").glob("*.csv")}
    common = {"verdicts", "success", "cost", "paired-d-jepa", "paired-relational"}
    wanted = common | OWN_TABLES.get(name, set())
    assert tables - {"inverted-published"} == wanted  # only where an audit start has such a pair
    listed = (tiny.out / "tables" / "README.md").read_text()
    assert {line.split("](")[1] for line in listed.splitlines()} == {f"{t}.md)" for t in tables}


@every
def test_figures_and_page(name: str, finished: Finished) -> None:
    tiny = finished(name)
    drawn = {path.stem for path in (tiny.out / "figures").glob("*.svg")}
    known = {stem for stem in drawn if not stem.startswith("films-")}
    rare = {"audit-gap-published", "inverted-published"}  # need an audit start with both outcomes
    assert known - rare == {*DRAWN[name], "gains-d-jepa", "gains-relational"} - rare
    listed = re.findall(r"!\[(.+?)\]", (tiny.out / "figures" / "README.md").read_text())
    assert sorted(listed) == sorted(drawn)
    page = (tiny.out / "report.html").read_text()
    assert page.count("data:image/svg+xml") == len(drawn)
    for text in (*tiny.design.question, *findings(tiny.results)):
        assert inline(text) in page
    assert f"djepa study {name} --preset tiny --seed 0." in page
    for of in tiny.rows().values():
        assert f"{of[0].pools} {of[0].bank}" in page
    shown = {path.stem for path in (tiny.out / "measures" / "inspector").iterdir()}
    assert shown == {case.name for case in tiny.study.cases("confirmation") if not case.rule}
    for case in shown:
        assert f'"label":"{case}"' in page


@every
def test_films_show_a_start_that_ours_alone_solves(name: str, finished: Finished) -> None:
    tiny, wanted = finished(name), set()
    natives = ("native lewm", "native tdjepa")[: 1 + (name == "pusht")]
    natives = natives if name in ("pusht", "reacher") else ("native",)
    natives = ("native tdjepa",) if name == "controls" else natives
    allowed = UNSEEN if name == "shapes" else CASES[name]
    for case in allowed:
        won = successes(tiny.rows()[case])
        if (won["D-JEPA"] & ~np.any([won[of] for of in natives], axis=0)).any():
            wanted.add(f"films-{case}")
    assert {path.stem for path in (tiny.out / "figures").glob("films-*.svg")} == wanted


@every
def test_rows_hold_the_same_methods_in_every_case(name: str, finished: Finished) -> None:
    tiny, starts = finished(name), SIZES[name].confirmation
    starts = 1 if name == "shapes" else starts
    assert list(tiny.rows()) == list(CASES[name])
    recipe = tiny.design.recipe
    wanted = {*tiny.design.natives, *recipe.mixtures, *recipe.alignments, "random", "oracle"}
    for case, of in tiny.rows().items():
        counted = Counter(row.method for row in of)
        assert set(counted.values()) == {starts}
        assert wanted <= set(counted)
        about = {(row.study, row.pools, row.rule) for row in of}
        assert about == {(name, case, CASES[name][case])}
    if name == "pusht":
        assert {"composition", "realised lewm", "consensus lewm"} <= set(counted)
    assert ("endpoint" in counted) == (name not in ("reacher", "granular"))


@every
def test_rows_are_what_the_bank_says_of_the_choices(name: str, finished: Finished) -> None:
    """Successes, costs, identities; under a stricter rule, costs in its own unit."""
    tiny = finished(name)
    for case in tiny.study.cases("confirmation"):
        bank, rows = tiny.study.bank(case), tiny.rows()[case.name]
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
            assert row.eligible == both or (name == "pusht" and both)
            assert row.identity == bytes(d.identities[row.start]).hex()[:16]
            assert row.bank == bank.hash[:12]
        best = {row.start: row.cost for row in rows if row.method == "oracle"}
        assert list(best.values()) == pytest.approx(cost.min(1), abs=1e-6)
        assert all(best[row.start] <= row.cost + 1e-9 for row in rows)


@every
def test_every_fitted_method_says_from_which_file(name: str, finished: Finished) -> None:
    tiny = finished(name)
    plain = {*tiny.design.natives, *(f"consensus {of}" for of in tiny.design.density)}
    patched = {"plasticity", "fine-tuned", "PEGrad", "Var-JEPA", "conflict-safe"}
    plain = (plain | BOUNDS | {tiny.design.first, "endpoint"}) - patched
    for of in tiny.rows().values():
        assert {row.method for row in of if not row.checkpoint} == plain & {r.method for r in of}
        fitted = {row.method: row.checkpoint for row in of if row.checkpoint}
        alignments = set(fitted) - set(tiny.design.recipe.mixtures)
        assert len({fitted[method] for method in alignments}) == len(alignments)
        assert {row.method for row in of if row.opened} <= alignments


@every
def test_groups_are_fitted_apart(name: str, finished: Finished) -> None:
    """Cases of a group share all that was fitted, cases of two groups nothing."""
    tiny, marks = finished(name), dict[str, set[str]]()
    for case in tiny.study.cases("confirmation"):
        used = {row.checkpoint for row in tiny.rows()[case.name]} - {""}
        assert used == marks.setdefault(case.group, used)
    groups = {"pusht": ["published"], "reacher": ["reference", "decoy"],
              "shapes": ["published", "decoy"]}  # fmt: skip
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


# ----------------------------------------------------------------------------- measures


def test_measures_of_the_same_choices_agree(finished: Finished) -> None:
    """Budgets, lifting, learning curve and deployment of PushT, against its rows."""
    results = finished("pusht").results
    solved = successes(results.rows["published"])
    (budget,) = results.measured("budget").values()
    for method, by_size in budget.items():
        assert {int(k): len(shares) for k, shares in by_size.items()} == {
            **dict.fromkeys((8, 16, 32), len(SEEDS)),
            63: 1,
        }
        assert by_size["63"] == [solved[method].mean()]
    (lifted,) = results.measured("lifting").values()
    assert set(lifted) == {"relational", "D-JEPA"}
    for of in lifted.values():
        assert (of["starts"], of["ranks"]) == (2, 2 * 63)
        assert (of["choices_recovered"], of["ranks_recovered"]) == (2, 2 * 63)
    # The learning curve ends where the suite was fitted: on the same starts, to the same methods.
    (learned,) = results.measured("learning").values()
    assert [row["fit"] for row in learned] == [3] * 4 + [4] * 4
    for row in learned[4:]:
        assert row["hits"] / row["of"] == solved[row["method"]].mean()
    (deployed,) = results.measured("deployment").values()
    plain, lifted_too = {"relational", "composition"}, {"relational", "composition", "D-JEPA"}
    assert deployed.keys() == plain | {f"{name}, lifted" for name in lifted_too}
    for name, entry in deployed.items():
        assert len(entry["milliseconds"]) == 1
        assert (entry["files"], entry["starts"], entry["choices_as_decided"]) == (1, 2, 2)
        read = (entry.get("ranks_recovered"), entry.get("choices_recovered"))
        assert read == ((2 * 63, 2) if name.endswith("lifted") else (None, None))
        assert "torch" in entry["installed"]
        assert "matplotlib" not in entry["installed"]
    files = sorted(f.name for f in (finished("pusht").out / "planners").rglob("*.*"))
    assert files == ["composition.safetensors", "d-jepa.safetensors", "relational.safetensors"]
    (audits,) = results.measured("audit").values()
    assert [audit["name"] for audit in audits] == list(results.design.weights)


def test_what_few_executed_candidates_cost_agrees_with_the_rows(finished: Finished) -> None:
    """The same fits on the same starts are counted in the table of sparsity and in the rows."""
    tiny = finished("granular")
    recipe = tiny.design.recipe
    for case, of in tiny.results.measured("sparsity").items():
        assert set(of["solved"]) == {*recipe.alignments, *recipe.mixtures}
        for method, (few, _) in of["solved"].items():
            assert few == successes(tiny.rows()[case])[method].sum()
    dense, sparse = (tiny.out / "fits" / of / "d-jepa" / "manifest.json" for of in ("dense", "all"))
    assert dense.read_bytes() != sparse.read_bytes()


def test_transport_stays_within_its_bound(finished: Finished) -> None:
    stored = finished("reacher").results.measured("transport")
    assert list(stored) == list(CASES["reacher"])
    for of in stored.values():
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
        fit, calibration, confirmation, *_ = (tiny.identities(role, group) for role in ROLES)
        used = json.loads((tiny.study.place.fits(group) / "suite.json").read_text())["starts"]
        assert {start.split("@")[0] for start in used} == {s[:16] for s in fit | calibration}
        assert not set(used) & {start[:16] for start in confirmation}


@pytest.mark.parametrize("name", ["pusht", "appearance"])
def test_a_fit_on_starts_that_are_tested_is_refused(name: str, again: Finished) -> None:
    tiny = again(name)
    case = tiny.study.cases("confirmation")[-1]
    path = tiny.study.place.fits(case.group) / "suite.json"
    suite = json.loads(path.read_text())
    suite["starts"][0] = tiny.rows()[case.name][0].identity
    path.write_text(json.dumps(suite))
    sealed = json.loads((path.parent / "manifest.json").read_text())  # as if it was made so
    sealed["files"]["suite.json"] = sha256(path.read_bytes())
    sealed["sizes"]["suite.json"] = path.stat().st_size
    (path.parent / "manifest.json").write_text(json.dumps(sealed))
    (tiny.out / "rows" / f"{case.name}.csv.gz").unlink()
    with pytest.raises(DjepaError, match="confirmation starts must be new ones"):
        tiny.run(until=f"decide {case.name}")
    assert not (tiny.out / "rows" / f"{case.name}.csv.gz").exists()


def test_only_sixteen_grain_candidates_of_a_fitting_start_are_known(finished: Finished) -> None:
    study = finished("granular").study
    for role, known in (("fit", 16), ("calibration", 16), ("confirmation", 63)):
        outcomes = study.population(role, study.cases(role)[0]).outcomes
        assert outcomes.observed.sum(1).tolist() == [known] * len(outcomes.identities)


def test_looks_of_a_start_have_names_of_their_own(finished: Finished) -> None:
    study = finished("appearance").study
    parts = [study.population("fit", case) for case in study.cases("fit")]
    whole = Population.join(parts)  # which refuses names that stand twice
    starts = SIZES["appearance"].fit
    assert [name.split("@")[1] for name in whole.evidence.identities[::starts]] == list(LOOKS)
    assert len({name.split("@")[0] for name in whole.evidence.identities}) == starts
    seen = whole.evidence.costs.unflatten(0, (len(LOOKS), starts))
    assert all((seen[0] != other).any() for other in seen[1:])  # every look is another evidence
    bank = study.bank(study.cases("fit")[0])
    stored = {path.name for path in (bank.path / "evidence").iterdir()}
    assert stored == {f"jepawm@{look}" for look in LOOKS}


def test_shapes_are_fitted_on_some_and_confirmed_on_others(finished: Finished) -> None:
    study = finished("shapes").study
    shapes = {role: [case.bank.shape for case in study.cases(role)] for role in ROLES}
    assert shapes["fit"] == shapes["calibration"] == ["T", "L", "Z", "+"] * 2
    assert shapes["confirmation"] == [*UNSEEN] * 2
    for role in ROLES:
        for case in study.cases(role):
            config = study.bank(case).config
            assert config.shape == case.bank.shape
            assert config.profile == {"published": "visual-shape", "decoy": "decoy"}[case.group]


@pytest.mark.parametrize(
    ("starts", "wanted"), [(9, (3, 2, 2, 2)), (8, (2, 2, 2, 2)), (3, (1, 1, 1, 0))]
)
def test_starts_are_shared_out(starts: int, wanted: tuple[int, ...]) -> None:
    assert share_out(starts, "abcd") == dict(zip("abcd", wanted, strict=True))


@pytest.mark.parametrize("name", STUDIES)
def test_comparisons_are_declared(name: str) -> None:
    if name == "reacher":
        pytest.importorskip("mujoco")
    design = get_design(name)
    if design.declared:
        assert design.comparisons == design.declared
        assert set(design.declared[0].theirs) == {*design.natives}
        assert {c.ours for c in design.declared} <= {*METHODS}
        return
    single, fusion, control, published, *adapted = design.comparisons
    assert [c.ours for c in adapted] == [*design.adapted]
    assert {single.ours, fusion.ours, control.ours} == {design.ours}
    assert set(single.theirs) == {name for name in design.natives if name.startswith("native")}
    assert (fusion.theirs, control.theirs) == ((design.fusion,), (design.control,))
    assert published.ours == design.published
    assert {design.fusion, design.control} <= set(design.recipe.mixtures)


# ----------------------------------------------------------------------------- outcomes


def permuted(bank) -> Outcomes:
    """Outcomes of other candidates of the same start."""
    outcomes = real(bank)
    assert outcomes.cost is not None
    return replace(outcomes, success=outcomes.success.flip(1), cost=outcomes.cost.flip(1))


real = Outcomes.from_bank


@every
def test_no_outcome_gets_into_a_choice(
    name: str, again: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = again(name)
    before, paid = tiny.chosen(), [r.cost for of in tiny.rows().values() for r in of]
    for file in (tiny.out / "rows").iterdir():
        file.unlink()
    monkeypatch.setattr(Outcomes, "from_bank", permuted)
    decided = [f"decide {case}" for case in CASES[name]]
    assert tiny.run(until=decided[-1]) == decided
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
        bank = tiny.study.bank(case)
        chosen = [row.chosen for row in tiny.rows()[case.name] if row.method == "random"]
        ids = bank.decisions.candidate_ids.tolist()
        places = [row.index(one) for row, one in zip(ids, chosen, strict=True)]
        assert drawn.setdefault((bank.candidates, bank.hash), places) == places
    counts = {"pusht": 1, "reacher": 2, "granular": 1, "shapes": 6, "appearance": 1, "controls": 1}

    assert len(drawn) == counts[name]
    for size in {K for K, _ in drawn}:
        alike = [tuple(places) for (K, _), places in drawn.items() if size == K]
        assert len(set(alike)) > 1 or len(alike) == 1
