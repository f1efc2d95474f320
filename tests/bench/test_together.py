"""All benches in one run, a table each and one file; everything is tiny here."""

import json
from pathlib import Path

import pytest
import torch

from djepa.bench import growth
from djepa.cli.bench import Bench
from djepa.models.lewm import LeWM
from djepa.models.weights import card, save_geometry
from tiny import TINY

BENCHES = ["world", "geometry", "align", "growth"]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    """The command, with whatever would take seconds made smaller."""
    for name, sizes in {"STARTS": (2, 4), "CANDIDATES": (5, 10), "COLLECTED": (1, 2)}.items():
        monkeypatch.setattr(growth, name, sizes)
    monkeypatch.setattr(growth, "usable_cores", lambda: 1)
    torch.manual_seed(0)
    model = LeWM(TINY).eval()
    save_geometry(model, tmp_path / "lewm", card({}, model, "", {}))
    sizes = {"starts": 2, "candidates": 8, "many": 20, "fit": 14, "updates": 1}
    where = {"json": tmp_path / "new" / "all.json", "geometry": (str(tmp_path / "lewm"),)}
    return Bench(what="all", world=("push",), seconds=0.01, **where, **sizes)  # type: ignore[arg-type]


def test_a_table_each_and_one_file(tiny: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert tiny.run() == 0
    assert tiny.json is not None
    numbers = json.loads(tiny.json.read_text())
    assert numbers.keys() == {"device", "threads", "torch", "options", "rows"}
    assert list(dict.fromkeys(row["bench"] for row in numbers["rows"])) == BENCHES
    for row in numbers["rows"]:
        assert {"what", "unit", "ours", "plain", "ratio", "note"} <= row.keys()
    out = capsys.readouterr().out
    lines = [line for line in out.splitlines() if line.startswith("|")]
    assert len(lines) == 2 * len(BENCHES) + len(numbers["rows"])
    for beginning in (
        "| starts |",
        "| lewm own size, starts |",
        "| decide |",
        "| decide, candidates: 10 |",
    ):
        assert any(line.startswith(beginning) for line in lines), beginning
