"""All benches in one run, one table and one file; everything is tiny here."""

import json
from pathlib import Path

import pytest
import torch

from djepa.bench import growth, together, world
from djepa.bench.measure import Row
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
    monkeypatch.setattr(world, "_memory", lambda: Row("memory", "MB", 1.0))
    torch.manual_seed(0)
    model = LeWM(TINY).eval()
    save_geometry(model, tmp_path / "lewm", card({}, model, "", {}))
    sizes = {"starts": 2, "candidates": 8, "many": 20, "fit": 14, "updates": 1}
    return Bench(
        "all", tmp_path / "new" / "all.json", ("push",), 0.01, (str(tmp_path / "lewm"),), **sizes
    )


def test_one_table_and_one_file(tiny: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert tiny.run() == 0
    assert tiny.json is not None
    numbers = json.loads(tiny.json.read_text())
    assert numbers.keys() == {"device", "threads", "torch", "seconds", "rows"}
    assert list(dict.fromkeys(row["bench"] for row in numbers["rows"])) == BENCHES
    assert sorted(numbers["seconds"]) == sorted(BENCHES)
    for row in numbers["rows"]:
        assert {"what", "unit", "ours", "plain", "ratio", "note"} <= row.keys()
    out = capsys.readouterr().out
    lines = [line for line in out.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(numbers["rows"])
    for beginning in (
        "| world | starts |",
        "| geometry | lewm own size, starts |",
        "| align | decide |",
        "| growth | decide, candidates: 10 |",
    ):
        assert any(line.startswith(beginning) for line in lines), beginning


def test_all_of_it_is_shorter_than_its_parts() -> None:
    parts, short = Bench("world"), Bench("all")
    assert parts._world_bench().seconds > short._world_bench().seconds
    assert parts._geometry_bench().many > short._geometry_bench().many
    assert short._geometry_bench().compiled == ()
    assert parts._align_bench().updates > short._align_bench().updates
    assert Bench("all", updates=7)._align_bench().updates == 7
    more = short._geometry_bench(together.of_other_worlds(["push", "granular"])).geometries
    assert more == ("lewm", "tdjepa", "jepawm", "dinowm", "granular-dinowm")
