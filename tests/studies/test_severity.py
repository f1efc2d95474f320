"""The rule by which the severities of `looks.v2` were chosen, and the study that compares them."""

from pathlib import Path

import pytest
import torch
from study_kit import SIZES, Tiny, tiny_design
from tools.severity import HALVINGS, PAPER, Severe, choose

from djepa.rollout.engine import LocalEngine
from djepa.studies.design import Place, Sizes
from djepa.studies.findings import make_tables
from djepa.studies.names import STUDIES, get_design
from djepa.studies.shifts import CONDITIONS, MILDER
from djepa.tasks.task import Scene
from djepa.worlds.looks import LOOK_SETS

STATE = torch.tensor([[[150.0, 330, 190, 160, 0.6, 0, 0, 0, 0, 0]]], dtype=torch.float64)


def test_a_condition_that_always_reaches_the_aim_stays_severe() -> None:
    assert choose(lambda severity: 66.0, 66.0) == 1 - 0.5**HALVINGS


@pytest.mark.parametrize("aim", [20.0, 50.0, 90.0])
def test_success_that_falls_with_severity_ends_next_to_the_aim(aim: float) -> None:
    found = choose(lambda severity: 100 * (1 - severity), aim)
    assert abs(100 * (1 - found) - aim) <= 100 / 2**HALVINGS


def test_of_two_severities_equally_near_the_larger_is_taken() -> None:
    assert choose(lambda severity: 40.0 if severity > 0.3 else 60.0, 50.0) == 0.5
    assert choose(lambda severity: 30.0 if severity > 0.6 else 45.0 - severity, 50.0) == 0.0625


def test_a_severe_scene_of_one_is_the_look_itself() -> None:
    frames, felt = Severe("push", "T", "dark", 1.0).observe(STATE, 32)
    look = Scene("push", "T", "dark").observe(STATE, 32)
    assert frames.equal(look[0])
    assert felt.equal(look[1])
    milder = Severe("push", "T", "dark", 0.5).observe(STATE, 32)[0]
    assert (milder.int() >= frames.int()).all()
    assert milder.float().mean() > frames.float().mean()


def test_the_study_still_compares_the_looks_of_its_stored_rows() -> None:
    assert LOOK_SETS["looks.v1"] == CONDITIONS
    assert PAPER["dark"] == 72.0


def test_the_second_study_sees_the_same_starts_in_the_milder_looks() -> None:
    first, second = get_design("appearance"), get_design("appearance-v2")
    assert "appearance-v2" not in STUDIES  # so that `all` does not run it
    assert (first.sizes, first.recipe, first.comparisons) == (
        second.sizes,
        second.recipe,
        second.comparisons,
    )
    place = Place(Path(), LocalEngine(1))
    for role in ("fit", "calibration", "confirmation"):
        before, after = (design.cases(role, Sizes(3, 2, 1), place) for design in (first, second))
        assert [case.look for case in before] == list(CONDITIONS)
        assert [case.look for case in after] == list(MILDER)
        assert {case.bank for case in before} == {case.bank for case in after}
    printed = {look: case for look, (_, case) in second.paper.items()}
    assert printed == dict(zip((*MILDER, "all"), (*CONDITIONS, "mean"), strict=True))


def test_the_second_study_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setitem(SIZES, "appearance-v2", SIZES["appearance"])
    tiny = Tiny(tiny_design("appearance-v2", monkeypatch), tmp_path / "appearance-v2")
    tiny.run()
    assert list(tiny.rows()) == list(MILDER)
    (success,) = [table for table in make_tables(tiny.results) if table.name == "success"]
    assert {"dark.v2, paper", "all, paper"} <= set(success.columns)
    assert (tiny.out / "figures" / "looks.svg").exists()
