"""The table of trainings: `djepa train` takes every recipe, and runs keep their order."""

import sys
import tarfile
import time
from pathlib import Path

import pytest
import tyro
from tools import train_weights
from tools.train_weights import EPISODES, FEW, JUDGED, WEIGHTS, Lanes, Run, main, played

from djepa.cli.train import Train
from djepa.errors import DjepaError

# Stands for `djepa train`: notes when it begins, writes what a finished training leaves.
TRAINING = """
import sys, time
from pathlib import Path
if sys.argv[1] == "simulate":
    sys.exit()
out = Path(sys.argv[sys.argv.index("--out") + 1])
(out / "best").mkdir(parents=True)
(out / "best/manifest.json").write_text("best")
with (out.parent / "order").open("a") as order:
    order.write(out.name + "\\n")
if "broken" in out.name or (out / "best/wait").exists():
    sys.exit(3)
if "slow" in out.name:
    time.sleep(60)
(out / "manifest.json").write_text("done")
"""


@pytest.mark.parametrize("name", WEIGHTS)
def test_every_recipe_is_one_of_djepa_train(name: str, tmp_path: Path) -> None:
    given = Run(name, tmp_path, "cpu").command[4:]
    data, encoder = name.split("-")[0], name.endswith("encoder")
    assert " ".join(given).startswith(played(data))
    config = tyro.cli(Train, args=given)._config()
    assert config.world == ("push" if data == "shapes" else data)
    assert config.episodes == EPISODES[data]
    assert config.geometry in name or encoder
    assert (FEW if encoder else JUDGED[data]).split()[1] == str(config.development)
    if data == "shapes":
        assert config.shapes == ("T", "L", "Z", "+")


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    script = tmp_path / "training.py"
    script.write_text(TRAINING)
    names = ("w-lewm", "w-encoder", "w-tdjepa", "w-slow", "b-broken", "b-encoder", "b-tdjepa")
    monkeypatch.setattr(train_weights, "WEIGHTS", dict.fromkeys(names, ""))
    monkeypatch.setattr(train_weights, "EPISODES", {"w": 1, "b": 1})
    monkeypatch.setattr(train_weights, "JUDGED", {"w": "", "b": ""})
    monkeypatch.setattr(train_weights, "djepa", lambda: [sys.executable, str(script)])
    return tmp_path / "out"


def test_a_run_waits_for_its_encoder_and_is_kept(table: Path) -> None:
    keep = table / "keep"
    given = ["w-tdjepa", "w-lewm", "--out", str(table), "--keep", str(keep), "--lanes", "3"]
    assert main(given) == 0
    order = (table / "order").read_text().split()
    assert sorted(order) == ["w-encoder", "w-lewm", "w-tdjepa"]
    assert order.index("w-encoder") < order.index("w-tdjepa")
    with tarfile.open(keep / "w-tdjepa.tar") as archive:
        assert archive.getnames() == ["w-tdjepa/manifest.json"]
    assert main(given) == 0  # nothing is left to do
    assert (table / "order").read_text().split() == order


def test_what_fails_is_named_and_nothing_waits_for_it(
    table: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Run, "needs", property(lambda r: "b-broken" if "td" in r.name else ""))
    assert main(["b-tdjepa", "--out", str(table)]) == 1
    said = capsys.readouterr().out
    assert "b-broken: failed with 3: see" in said
    assert "b-tdjepa: not begun: b-broken failed" in said


def test_out_of_time_keeps_the_best_so_far(table: Path) -> None:
    lanes = Lanes([Run("w-slow", table, "cpu")], 1, table / "keep", time.monotonic() + 3)
    assert not lanes.go(pause=0.1)
    with tarfile.open(table / "keep/w-slow-best.tar") as archive:
        assert archive.getnames() == ["w-slow/manifest.json"]


def test_bad_names_and_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DjepaError, match="weights"):
        main(["nothing", "--out", str(tmp_path)])
    with pytest.raises(DjepaError, match="lanes must be"):
        main(["cube-lewm", "--lanes", "0", "--out", str(tmp_path)])
