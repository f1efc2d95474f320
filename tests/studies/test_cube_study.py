"""The cube study from end to end, with two tiny models of random weights."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from study_kit import UPDATES

pytest.importorskip("ogbench", reason="the extra 'cube' is not installed")
pytest.importorskip("matplotlib")

from djepa.align.suite import Recipe
from djepa.evaluate.rows import successes
from djepa.models.lewm import LeWM
from djepa.models.tdjepa import TDJEPA
from djepa.models.weights import save_geometry
from djepa.rollout.engine import LocalEngine
from djepa.studies.cube import STAMPS
from djepa.studies.design import Place, Sizes
from djepa.studies.names import get_design
from djepa.studies.pair import NATIVES
from djepa.studies.results import Results
from djepa.studies.stages import run_stages
from djepa.studies.study import Study, new_study
from tiny import TINY


def models(root: Path) -> None:
    for seed, (name, kind) in enumerate({"cube-lewm": LeWM, "cube-tdjepa": TDJEPA}.items()):
        torch.manual_seed(seed)
        model = kind(replace(TINY, actions=5)).eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
        save_geometry(model, root / name, {"recipe": {"world": "cube"}})


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory):
    root = tmp_path_factory.mktemp("cube-study")
    models(root / "models")
    design = get_design("cube")
    few = {
        label: replace(config, updates=min(config.updates, UPDATES), epochs=0, every=2)
        for label, config in design.recipe.alignments.items()
    }
    design = replace(
        design,
        sizes={"tiny": Sizes(2, 1, 2, updates=UPDATES)},
        recipe=Recipe(design.recipe.mixtures, few),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DJEPA_WEIGHTS", str(root / "models"))
        made = new_study(design, Place(root / "out", LocalEngine(1)), "tiny", ("reference",))
        run_stages(made.stages(), lambda line: None, "")
        yield made


def test_rows_are_what_was_executed(study: Study):
    (case,) = study.cases("confirmation")
    bank, rows = study.bank(case), Results(study.out, study.design).rows["reference"]
    assert {row.rule for row in rows} == {"cube.v1"}
    won = successes(rows)
    assert {*NATIVES, "fusion", "relational", "D-JEPA", "random", "oracle"} <= set(won)
    assert won["oracle"].all()  # a reference pool holds a solution
    for row in rows:
        if row.method in NATIVES:
            position = bank.decisions.candidate_ids[row.start].tolist().index(row.chosen)
            assert row.success == bank.outcomes.success[row.start, position]


def test_the_figure_has_eight_shared_times(study: Study, monkeypatch: pytest.MonkeyPatch):
    """Both models are made to succeed by different candidates; then both are executed again."""
    (case,) = study.cases("confirmation")
    bank = study.bank(case)
    good = np.flatnonzero(bank.outcomes.success[1])[:2]
    ids = bank.decisions.candidate_ids[1, good].tolist()
    rows = [
        replace(row, chosen=ids[i], success=True)
        for i, method in enumerate(NATIVES)
        for row in study.rows(case.name)
        if row.method == method and row.start == 1
    ]
    monkeypatch.setattr(Study, "rows", lambda self, name: rows)
    (measure,) = (m for m in study.design.measures if m.name == "stamps")
    about = measure.run(study, case, print)
    assert (about["starts"], about["both"], about["different"], about["start"]) == (1, 1, 1, 1)
    assert about["times"] == [0, 4, 7, 11, 14, 18, 21, 25]
    study.measured("stamps", case.name).write_text(json.dumps(about))
    results = Results(study.out, study.design)
    frames = results.arrays("stamps")["reference"]["frames"]
    side = frames.shape[2]
    assert frames.shape == (2, STAMPS, side, side, 3)
    assert side < 448  # all show the part where hand and cube are
    assert np.array_equal(frames[0, 0], frames[1, 0])  # the same start
    assert (frames[0, -1] != frames[1, -1]).any()
    ((name, caption),) = measure.figures(results, study.out / "figures")
    assert (study.out / "figures" / f"{name}.svg").exists()
    assert "both succeed on 1 of 1 starts" in caption
