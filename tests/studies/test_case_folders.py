"""Studies of cases run again, in other folders, refused, and summed up in one page."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from case_kit import CASES, Finished, Tiny, every

from djepa.align.suite import Recipe
from djepa.errors import DjepaError
from djepa.report.page import inline
from djepa.rollout.engine import LocalEngine
from djepa.studies.case_pages import verdict
from djepa.studies.cases import ROLES, Case, CaseStudy, new_case_study
from djepa.studies.index import DESIGNS, across_studies, write_index
from djepa.studies.populations import Place

pytest.importorskip("matplotlib")

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
    assert {case for case, _ in design.paper} <= {*CASES[name], *design.units()}
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
                             "D-JEPA", "oracle", "over fusion",
                             "over consensus + fusion")  # fmt: skip
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
            line = next(lines)
            assert line[:-2] == (name, unit, str(len(won)), *shares)
            ours = float(shares[4])
            for theirs, said in zip(shares[1:3], line[-2:], strict=True):
                found = re.fullmatch(r"([+-]\d+\.\d) \(([+-]\d+\.\d) to ([+-]\d+\.\d)\)", said)
                assert found
                assert float(found[1]) == pytest.approx(ours - float(theirs), abs=0.11)
                assert float(found[2]) <= float(found[1]) <= float(found[3])
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


# ------------------------------------------------------------------------ what a folder belongs to


def test_a_folder_of_another_recipe_or_of_other_starts_is_refused(
    finished: Finished, tmp_path: Path
) -> None:
    """Whatever changes the rows changes what the folder is: nothing old is passed off as new."""
    tiny = finished("appearance")
    place = Place(tmp_path, LocalEngine(1))
    new_case_study(tiny.design, place, "tiny")
    new_case_study(tiny.design, place, "tiny")  # again is no other study
    few = {
        name: replace(config, seed=config.seed + 1)
        for name, config in tiny.design.recipe.alignments.items()
    }
    other = replace(tiny.design, recipe=Recipe(tiny.design.recipe.mixtures, few))
    with pytest.raises(DjepaError, match="another recipe"):
        new_case_study(other, place, "tiny")

    def cases(role: str, starts: int, seed: int) -> list[Case]:
        found = tiny.design.cases(role, starts, seed)
        return [replace(c, bank=replace(c.bank, split=f"{c.bank.split}-new")) for c in found]

    with pytest.raises(DjepaError, match="another splits"):
        new_case_study(replace(tiny.design, cases=cases), place, "tiny")


def test_fits_name_their_banks_and_geometries(finished: Finished) -> None:
    tiny = finished("appearance")
    card = json.loads((tiny.out / "fits/all/suite.json").read_text())["card"]
    roles = {name.split("/")[0] for name in card["banks"]}
    assert roles == {"fit", "calibration"}
    bank = tiny.study.bank("fit", tiny.study.cases("fit")[0])
    assert bank.hash[:12] in card["banks"].values()
    assert set(card["weights"]) == set(tiny.design.weights)


def test_the_page_shows_single_decisions_of_every_case(finished: Finished) -> None:
    for name in ("granular", "appearance"):
        tiny = finished(name)
        judged = {case.name for case in tiny.study.cases("confirmation") if not case.rule}
        held = {path.stem for path in (tiny.out / "inspector").iterdir()}
        assert held == judged
        page = (tiny.out / "report.html").read_text()
        assert 'id="inspector-data"' in page
        for case in judged:
            assert f'"label":"{case}"' in page
