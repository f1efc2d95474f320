"""Bars of many cases, and the recorded pair."""

import csv
from pathlib import Path

import numpy as np
import pytest

from djepa.errors import DjepaError
from djepa.report.cases import case_bars
from djepa.studies.measures.inverted import first_pair

pytest.importorskip("matplotlib")


def test_bars_write_their_numbers(tmp_path: Path) -> None:
    cases = {"I": {"fusion": (3, 10), "D-JEPA": (6, 10)}, "square": {"D-JEPA": (0, 5)}}
    files = case_bars(tmp_path / "cases", cases, {("I", "fusion"): 37.0})
    assert {file.suffix for file in files} == {".png", ".svg", ".csv"}
    rows = list(csv.reader((tmp_path / "cases.csv").read_text().splitlines()))[1:]
    assert [(r[0], r[1], r[2], r[3], r[-1]) for r in rows] == [
        ("I", "fusion", "3", "10", "37.0"),
        ("I", "D-JEPA", "6", "10", ""),
        ("square", "D-JEPA", "0", "5", ""),
    ]
    first = (tmp_path / "cases.svg").read_bytes()
    case_bars(tmp_path / "cases", cases, {("I", "fusion"): 37.0})
    assert (tmp_path / "cases.svg").read_bytes() == first
    with pytest.raises(DjepaError):
        case_bars(tmp_path / "none", {})


def test_the_recorded_pair_is_of_the_first_start_that_prefers_a_failure() -> None:
    distances = np.array([[0.1, 0.2, 0.3], [0.4, 0.2, 0.2], [0.3, 0.1, 0.2]])
    success = np.array([[1, 0, 0], [1, 0, 0], [0, 0, 1]], bool)
    ids = np.array([[1, 2, 3], [7, 9, 8], [1, 2, 3]])
    found = first_pair(distances, ids, success)
    assert found["start"] == 1
    assert found["pair"] == {  # of two equal failures the smaller ID
        "fails": {"candidate": 8, "distance": 0.2},
        "succeeds": {"candidate": 7, "distance": 0.4},
    }
    assert first_pair(distances[:1], ids[:1], success[:1]) == {}
