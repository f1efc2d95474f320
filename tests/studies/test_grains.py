"""The rule by which the unit of 200 grains was chosen."""

import json
from pathlib import Path

import numpy as np
import pytest
from tools.grains import FINE, choose, native_cells, native_distances, shares

from djepa.worlds import chamfer

STORED = Path(__file__).parents[2] / "docs" / "results" / "grains.json"


def test_the_aim_is_the_papers_four_models() -> None:
    cells = native_cells()
    assert sorted(cells["main"]) == [28.13, 34.38, 35.94, 37.5]
    assert sorted(cells["strict"]) == [7.81, 9.38, 12.5, 14.06]


def test_a_unit_is_found_where_there_is_one() -> None:
    """Of 100 distances 11 are below 0.08 and 34 below 0.12: a unit of 1.5 is the aim itself."""
    distances = np.concatenate([np.full(11, 0.079), np.full(23, 0.1195), np.full(66, 0.5)])
    found = choose(distances)
    assert found.accepted
    assert (found.main, found.strict) == (34.0, 11.0)
    assert shares(distances, found.factor) == {"main": found.main, "strict": found.strict}
    assert found.factor == pytest.approx(1.01)  # the smallest unit in which these shares hold


def test_a_narrow_population_has_no_unit() -> None:
    """Where all starts lie within a factor of 1.5, a third solved leaves none solved strictly."""
    found = choose(np.linspace(0.14, 0.2, 100))
    assert not found.accepted
    assert found.strict == 0


def test_the_rules_have_the_unit_that_was_found() -> None:
    stored = json.loads(STORED.read_text())
    found = choose(native_distances(stored, *FINE))
    assert found.accepted
    assert found.factor == chamfer.FINE
