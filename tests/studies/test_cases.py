"""Real studies of cases, tiny: every stage runs, what is there stays, the same rows come out again,
and no outcome gets into a choice.
"""

import json
import re
from collections import Counter
from dataclasses import replace

import pytest
from case_kit import BLIND, CASES, LOOKS, SIZES, UNSEEN, Finished, Tiny, every

from djepa.align.methods import Population
from djepa.align.outcomes import Outcomes
from djepa.errors import DjepaError
from djepa.evaluate.intervals import rate_of
from djepa.evaluate.rows import successes
from djepa.report.page import inline
from djepa.studies.case_pages import verdict
from djepa.studies.cases import ROLES, share_out

pytest.importorskip("matplotlib")

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
    plain = {*tiny.design.natives, *(f"consensus {of}" for of in tiny.design.density)}
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
        outcomes = study.population(role, study.cases(role)[0]).outcomes
        assert outcomes.observed.sum(1).tolist() == [known] * len(outcomes.identities)


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
