"""The main table: cells are counted from rows, missing ones are named; its studies run."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from study_kit import Tiny

from djepa.align.controls.varjepa import VarConfig
from djepa.align.plastic import load_patch
from djepa.align.plastic_fit import PlasticConfig
from djepa.align.suite import Recipe
from djepa.cli.study import RunStudy
from djepa.errors import DjepaError
from djepa.evaluate.rows import Row, successes, write_rows
from djepa.rollout.engine import LocalEngine
from djepa.studies import adapting
from djepa.studies import main as main_studies
from djepa.studies.adapting import ADAPTED
from djepa.studies.design import Place, Sizes
from djepa.studies.measures import deployment
from djepa.studies.names import MAIN, get_design
from djepa.studies.study import new_study
from djepa.studies.table import COLUMNS, METHODS, MainTable, find_results

pytest.importorskip("matplotlib")


def stored(
    folder: Path, study: str, case: str, hits: dict[str, list[int]], rule: str = "reacher.v1"
) -> None:
    """A folder of a study with rows of one case; cost 0.5 where solved, else 2."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.json").write_text(json.dumps({"study": study, "preset": "paper", "seed": 0}))
    (folder / "rows").mkdir(exist_ok=True)
    rows = [
        Row(study, case, method, i, f"{i:016x}", True, 7, bool(hit), 0.5 if hit else 2.0, False,
            rule, "b" * 12, "")
        for method, of in hits.items()
        for i, hit in enumerate(of)
    ]  # fmt: skip
    write_rows(folder / "rows" / f"{case}.csv.gz", rows)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Reacher in the study of the table and in the older one; granular in the older one alone."""
    root = tmp_path / "runs"
    new = {"native lewm": [1, 1, 1, 0], "CVaR": [0, 0, 1, 0], "D-JEPA": [1, 1, 1, 1]}
    stored(root / "new", "main-reacher", "reference", new)
    old = {"native lewm": [0] * 6, "native tdjepa": [1, 1, 1, 0, 0, 0]}
    stored(root / "deep" / "old", "reacher", "reference", old)
    grains = {"native": [1, 0], "D-JEPA": [1, 1]}
    stored(root / "grains", "granular", "main", grains, "granular.v1")
    return root


def cell(table: MainTable, title: str, method: str) -> tuple[str, str]:
    """Ours and the paper's, as the table shows them."""
    found = table.main()
    at = found.columns.index(title)
    line = found.rows[METHODS.index(method)]
    return line[at], line[at + 1]


def test_a_cell_is_counted_from_the_first_study_that_has_its_method(runs: Path) -> None:
    table = MainTable(find_results([runs]))
    assert cell(table, "Reacher", "native lewm") == ("75.0 % (30.1-95.4) ¹", "86.72")
    assert cell(table, "Reacher", "CVaR") == ("25.0 % (4.6-69.9) ¹", "75.78")
    assert cell(table, "Reacher", "native tdjepa") == ("50.0 % (18.8-81.2) ²", "68.75")
    marks = [line[:5] for line in table.sources().rows]
    assert marks[:2] == [
        ("¹", "main-reacher", "paper", "reference", "4"),
        ("²", "reacher", "paper", "reference", "6"),
    ]


def test_the_one_model_of_an_older_study_is_found_under_its_own_name(runs: Path) -> None:
    table = MainTable(find_results([runs]))
    assert cell(table, "granular, main", "native dinowm")[0].startswith("50.0 %")
    chamfer, theirs = cell(table, "granular, Chamfer", "native dinowm")
    assert (chamfer[:5], theirs) == (f"{0.18 * 1.25:.3f}", "0.341")


def test_missing_cells_are_named_with_what_makes_them(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("djepa.studies.table.trained", lambda task: ("lewm", "tdjepa"))
    table = MainTable(find_results([runs]))
    assert cell(table, "Reacher", "PEGrad")[0] == "missing"
    assert cell(table, "Reacher", "composition") == ("", "")  # neither has it: nothing is missing
    listed = {(line[0], line[2]): line for line in table.missing().rows}
    assert "PEGrad" in listed["Reacher", "no rows yet"][1]
    assert "CVaR" not in listed["Reacher", "no rows yet"][1]
    dino = listed["Reacher", "no weights reacher-dinowm"]
    assert dino[1] == "DINO-WM"
    assert dino[3].startswith("djepa train reacher --geometry dinowm --out weights/reacher-dinowm;")
    shown = sum(line.count("missing") for line in table.main().rows)
    assert shown == sum(table.lacks(c, m) for c in COLUMNS for m in METHODS) > 10


def test_the_command_writes_tables_and_a_page(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert RunStudy("table", rows=(runs,)).run() == 0
    out = tmp_path / "runs" / "table"
    assert {f.stem for f in (out / "tables").glob("*.csv")} == {
        *("main", "main-fine", "main-sources", "main-missing"),
    }
    page = (out / "report.html").read_text()
    assert "75.0 % (30.1-95.4) ¹" in page
    assert "Missing cells" in page
    with pytest.raises(DjepaError, match="no rows of a study"):
        RunStudy("table", rows=(tmp_path / "nothing",)).run()


@pytest.mark.parametrize("name", MAIN)
def test_every_task_has_the_methods_that_its_weights_allow(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with the weights that are not trained yet."""
    for there in (("dinowm",), ("lewm", "tdjepa"), ("lewm", "tdjepa", "jepawm", "dinowm"), ()):
        monkeypatch.setattr(main_studies, "trained", lambda task, there=there: there)
        design = main_studies.main_design(name.removeprefix("main-"))
        known = {*design.natives, *design.recipe.mixtures, *design.recipe.alignments}
        assert {f"native {of}" for of in there} <= known
        assert (set(ADAPTED) <= known) == ("tdjepa" in there or not there)
        assert {of for c in design.comparisons for of in c.theirs} <= known
        assert ("fusion, four" in known) == (len(there) in (0, 4))


def test_on_pusht_all_methods_run_with_few_updates_and_planners_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As preset cpu: fewer updates of adapted predictors alone; here of the residuals too."""
    brief = VarConfig(PlasticConfig(updates=1, rates=(1e-3,)))
    for name in ("fit_varjepa", "fit_conflict_safe"):
        fit = getattr(adapting, name)
        monkeypatch.setattr(adapting, name, lambda m, a, b, _, fit=fit: fit(m, a, b, brief))
    monkeypatch.setattr(deployment, "WARM", 0)
    design = get_design("main-pusht")
    few = {n: replace(c, updates=1) for n, c in design.recipe.alignments.items()}
    mixtures = {name: (of[:2], by) for name, (of, by) in design.recipe.mixtures.items()}
    sizes = Sizes(3, 2, 1, plastic=(2, 1), repeats=1, timed=1, adapted=1)
    measures = tuple(m for m in design.measures if m.name in ("deployment", "preservation"))
    tiny = Tiny(
        replace(
            design,
            sizes={"tiny": sizes},
            recipe=Recipe(mixtures, few),
            measures=measures,
        ),
        tmp_path / "main-pusht",
    )
    tiny.run()
    about = json.loads((tiny.out / "study.json").read_text())
    assert about["sizes"]["adapted"] == 1
    for case in ("published", "earlier"):
        solved = successes(tiny.rows()[case])
        assert {*design.natives, "relational", "composition", "D-JEPA"} <= set(solved)
    assert set(ADAPTED) <= set(design.natives)
    for name in ("plasticity", "PEGrad"):
        patch = load_patch(tiny.study.place.own("all", name))
        assert {entry["update"] for entry in patch.card["checkpoints"]} == {0, 1}
    (deployed,) = tiny.results.measured("deployment").values()
    assert set(deployed) == {"relational", "composition", "relational, lifted"}
    assert all(len(of["milliseconds"]) == 1 for of in deployed.values())
    table = MainTable((tiny.results,))
    for method in {*ADAPTED, "composition"} & set(METHODS):
        assert "%" in cell(table, "PushT, earlier", method)[0]


def test_a_folder_of_before_has_no_updates_of_adapted_predictors(tmp_path: Path) -> None:
    """Sizes without them are written as they were, so that its study goes on."""
    design = get_design("main-reacher")
    for preset in ("quick", "cpu"):
        new_study(design, Place(tmp_path / preset, LocalEngine(1)), preset)
        about = json.loads((tmp_path / preset / "study.json").read_text())
        assert ("adapted" in about["sizes"]) == (preset == "cpu")


def test_every_method_of_a_task_decides_on_the_same_starts(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    design = get_design("main-reacher")
    few = {n: replace(c, updates=1) for n, c in design.recipe.alignments.items()}
    recipe = Recipe(design.recipe.mixtures, few)
    tiny = Tiny(
        replace(design, sizes={"tiny": Sizes(2, 1, 1, updates=1)}, recipe=recipe, measures=()),
        tmp_path / "main-reacher",
    )
    tiny.run()
    solved = successes(tiny.rows()["reference"])
    assert {*design.natives, "relational", "D-JEPA", design.fusion} <= set(solved)
    assert {len(hits) for hits in solved.values()} == {1}
    table = MainTable((tiny.results,))
    for method in ("CVaR", "relational", "native tdjepa"):
        share = f"{100 * solved[method].mean():.1f} %"
        assert cell(table, "Reacher", method)[0].startswith(share)
