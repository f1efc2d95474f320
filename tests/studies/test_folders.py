"""Studies run again, in other folders, refused, and summed up in one page."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from study_kit import CASES, SIZES, Finished, Tiny, every

from commands import djepa
from djepa.align.suite import Recipe
from djepa.errors import DjepaError
from djepa.evaluate.rows import read_rows, write_rows
from djepa.report.page import inline
from djepa.rollout.engine import LocalEngine
from djepa.studies.design import ROLES, Case, Place, Sizes
from djepa.studies.findings import findings, make_tables
from djepa.studies.index import across_studies, write_index
from djepa.studies.names import STUDIES, get_design
from djepa.studies.results import load_results
from djepa.studies.study import Study, new_study

pytest.importorskip("matplotlib")

# ----------------------------------------------------------------------------- again


@every
def test_a_second_run_does_nothing(name: str, finished: Finished) -> None:
    tiny = finished(name)
    before = tiny.files()
    assert tiny.run() == []
    assert tiny.files() == before


def test_lost_files_come_back_the_same(again: Finished) -> None:
    """Rows, a measure and the page; banks and fits stay as they are."""
    tiny = again("pusht")
    before = tiny.files()
    lost = ("rows/published.csv.gz", "measures/budget/published.json", "report.html")
    for file in lost:
        (tiny.out / file).unlink()
    ran = ["decide published", "budget published", "tables", "figures", "page"]
    assert tiny.run() == ran
    after = tiny.files()
    for name in before:
        assert after[name][1] == before[name][1], name
    kept = [name for name in before if name.startswith(("banks/", "fits/"))]
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}


@pytest.mark.parametrize("name", ["granular"])
def test_the_same_rows_come_out_in_another_folder(
    name: str, finished: Finished, tmp_path: Path
) -> None:
    first = finished(name)
    second = Tiny(first.design, tmp_path / "elsewhere")
    second.run(until=f"decide {list(CASES[name])[-1]}")
    files = [f"rows/{case}.csv.gz" for case in CASES[name]]
    for file in ("study.json", "banks/collected-all.json", *files):
        assert (second.out / file).read_bytes() == (first.out / file).read_bytes(), file


def test_rows_of_further_pools_get_into_tables_figures_and_page(again: Finished) -> None:
    """Kinds of pools may be run one by one in the same folder."""
    tiny = again("pusht")
    rows = read_rows(tiny.out / "rows" / "published.csv.gz")
    write_rows(tiny.out / "rows" / "decoy.csv.gz", [replace(row, pools="decoy") for row in rows])
    assert tiny.run() == ["tables", "figures", "page"]
    assert "decoy, 2 starts" in (tiny.out / "tables" / "success.csv").read_text()
    assert "\ndecoy," in (tiny.out / "figures" / "success.csv").read_text()
    assert "<strong>decoy</strong>" in (tiny.out / "report.html").read_text()
    assert tiny.run() == []


@pytest.mark.parametrize("name", ["pusht", "granular"])
def test_tables_are_made_from_rows_and_measures_alone(
    name: str, finished: Finished, tmp_path: Path
) -> None:
    out = finished(name).out
    for part in ("rows", "measures"):
        shutil.copytree(out / part, tmp_path / part)
    shutil.copy(out / "study.json", tmp_path)
    stored = load_results(tmp_path)
    assert make_tables(stored) == make_tables(finished(name).results)
    assert findings(stored) == findings(finished(name).results)


# ------------------------------------------------------------------------ what a folder belongs to


def test_the_folder_of_another_study_is_refused(again: Finished) -> None:
    """Whatever changes the rows changes what the folder is: nothing old is passed off as new."""
    tiny = again("appearance")
    before, place, design = tiny.files(), tiny.study.place, tiny.design

    def cases(role: str, sizes: Sizes, place: Place) -> list[Case]:
        found = design.cases(role, sizes, place)
        return [replace(c, bank=replace(c.bank, split=f"{c.bank.split}-new")) for c in found]

    few = {n: replace(c, seed=c.seed + 1) for n, c in design.recipe.alignments.items()}
    others = {
        "another study": replace(design, name="other"),
        "another sizes": replace(design, sizes={"tiny": replace(SIZES["appearance"], fit=4)}),
        "another weights": replace(design, weights=("lewm",)),
        "another recipe": replace(design, recipe=Recipe(design.recipe.mixtures, few)),
        "another splits": replace(design, cases=cases),
    }
    for complaint, other in others.items():
        with pytest.raises(DjepaError, match=complaint):
            new_study(other, place, "tiny")
    more = replace(design, sizes={**design.sizes, "more": Sizes(9, 9, 9)})
    with pytest.raises(DjepaError, match=r"another preset, .*\. Choose another --out"):
        new_study(more, place, "more")
    with pytest.raises(DjepaError, match="another seed"):
        new_study(design, replace(place, seed=1), "tiny")
    new_study(design, place, "tiny")  # again is no other study
    assert tiny.files() == before


def test_what_cannot_be_is_refused_before_it_is_begun(tmp_path: Path) -> None:
    design, place = get_design("pusht"), Place(tmp_path / "out", LocalEngine(1))
    with pytest.raises(DjepaError, match=r"Unknown preset 'papr'\. Did you mean 'paper'\?"):
        new_study(design, place, "papr")
    with pytest.raises(DjepaError, match=r"Unknown pools 'decoys'\. Did you mean 'decoy'"):
        new_study(design, place, "paper", ("decoys",))
    nothing = replace(design, shipped=tmp_path / "nothing")
    with pytest.raises(DjepaError, match=r"ships nothing fitted on decoy pools.*--preset paper"):
        new_study(nothing, place, "quick", ("decoy",))
    with pytest.raises(DjepaError, match="ships nothing fitted on reference pools"):
        new_study(nothing, place, "quick")
    with pytest.raises(DjepaError, match=r"ships nothing fitted on published pools.*--preset pap"):
        new_study(design, place, "quick", ("published",))
    assert not place.out.exists()
    assert new_study(design, place, "paper", ("decoy",)).only == ("decoy",)
    new_study(design, place, "paper")  # another kind of pools is the same study
    with pytest.raises(DjepaError, match=r"no study\.json"):
        load_results(tmp_path)


@pytest.mark.parametrize("name", STUDIES)
def test_presets_have_starts_for_every_case(name: str, tmp_path: Path) -> None:
    """Each role of each preset; roles of one split take different starts of its bank."""
    if name == "reacher":
        pytest.importorskip("mujoco")
    design = get_design(name)
    assert {"quick", "paper", "large"} <= set(design.sizes)
    for preset, sizes in design.sizes.items():
        study = Study(design, Place(tmp_path, LocalEngine(1), recorded=Path()), preset)
        taken: dict[str, list[int]] = {}
        for role in ROLES:
            for case in study.cases(role):
                first, last = case.part or (0, case.bank.starts)
                assert last <= case.bank.starts
                places = taken.setdefault(f"{case.folder}@{case.look}{case.rule}", [])
                places += range(first, last)
        assert all(len(set(places)) == len(places) for places in taken.values())
        assert [case.name for case in study.cases("confirmation")] == design.names
        assert max(sizes.curve, default=0) <= sizes.fit
    views = {*design.names, *design.units(), *(f"{name}, eligible" for name in design.names)}
    assert set(design.paper) <= views
    assert {case for m in design.measures for case in m.only} <= set(design.names)


@every
def test_cases_that_are_counted_together_say_whether_they_share_starts(
    name: str, finished: Finished
) -> None:
    """Or intervals over several cases would count a start several times."""
    tiny = finished(name)
    for cases in tiny.design.units().values():
        known = [case for case in cases if case in tiny.rows()]
        names = [start for case in known for start in {row.identity for row in tiny.rows()[case]}]
        assert (len(set(names)) < len(names)) == (tiny.design.clustered and len(cases) > 1)


def test_fits_name_their_banks_and_geometries(finished: Finished) -> None:
    tiny = finished("appearance")
    card = json.loads((tiny.out / "fits/all/suite.json").read_text())["card"]
    assert {name.split("/")[0] for name in card["banks"]} == {
        "appearance-fit",
        "appearance-calibration",
    }
    bank = tiny.study.bank(tiny.study.cases("fit")[0])
    assert bank.hash[:12] in card["banks"].values()
    assert set(card["weights"]) == set(tiny.design.weights)


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
        assert f"{name}: {get_design(name).title}" in page
        lines = findings(finished(name).results)
        assert len(lines) == len(get_design(name).units())
        for line in lines:
            assert inline(line) in page
        assert f"{name}/report.html" in page
    assert page.index("granular: ") < page.index("appearance: ")
    assert "tiny" in page
    for absent in ("pusht", "reacher", "shapes"):
        assert f"{absent}/report.html" not in page
    before = path.read_bytes()
    assert write_index(tmp_path).read_bytes() == before


def test_what_methods_reach_across_studies(finished: Finished) -> None:
    """One line for every unit, with the share of all its starts that a method solves."""
    names = ("granular", "appearance")
    table = across_studies({name: finished(name).results for name in names})
    lines = iter(table.rows)
    for name in names:
        design = get_design(name)
        for unit, cases in design.units().items():
            rows = [row for case in cases for row in finished(name).rows()[case]]
            shares = []
            for method in (*design.primary, "relational", "D-JEPA", "oracle"):
                won = [row.success for row in rows if row.method == method]
                shares.append(f"{100 * sum(won) / len(won):.1f}")
            line = next(lines)
            assert line[:-2] == (name, unit, str(len(won)), *shares)
            ours = float(shares[4])
            for theirs, gain in zip(shares[1:3], line[-2:], strict=True):
                found = re.fullmatch(r"([+-]\d+\.\d) \(([+-]\d+\.\d) to ([+-]\d+\.\d)\)", gain)
                assert found
                assert float(found[1]) == pytest.approx(ours - float(theirs), abs=0.11)
                assert float(found[2]) <= float(found[1]) <= float(found[3])
    assert next(lines, None) is None
    assert [row[1] for row in table.rows] == ["main", "strict", "all"]


@pytest.mark.parametrize(
    ("study", "complaint"),
    [("nope", "Unknown study 'nope'. Known: "), ("reecher", "Did you mean 'reacher'? Known: ")],
)
def test_mistakes_name_the_nearest(study: str, complaint: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = djepa("study", study, "--out", out)
    assert done.returncode == 1
    printed = " ".join(done.stderr.split())
    assert complaint in printed
    assert all(name in printed.split("Known: ")[1] for name in (*STUDIES, "all"))
    assert not out.exists()
