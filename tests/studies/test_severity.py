"""The rule by which the severities of `looks.v2` were chosen."""

import pytest
import torch
from tools.severity import HALVINGS, PAPER, Severe, choose

from djepa.studies.shifts import CONDITIONS
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
