import json
import sys

import numpy as np
import pytest
from PIL import Image

from djepa.errors import DjepaError, MissingExtraError
from djepa.report.loss import _entries, _series, loss_plot

ENTRIES = [
    {"seconds": 1.0, "phase": "joint", "recorded": True, "episodes": 64},
    {"seconds": 1.1, "phase": "joint", "step": 0, "loss": 13.8, "episodes": 64},
    {"seconds": 9.0, "phase": "joint", "step": 500, "loss": 0.76, "episodes": 64},
    {"seconds": 9.9, "phase": "joint", "steps": 620, "loss": 0.5, "selection": 0.29},
    {"seconds": 11.0, "phase": "predictor", "step": 0, "loss": 0.12},
    {"seconds": 20.0, "phase": "predictor", "step": 900, "selection": 0.44},
    {"seconds": 21.0, "phase": "predictor", "step": 1000, "loss": 0.08},
    {"phase": "predictor", "step": 1200, "validation": 0.09, "selection": 0.53},
]


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in ENTRIES))
    return path


def test_every_number_is_in_its_phase(log):
    entries = _entries(log)
    assert _series(entries, "joint", "loss") == ([0, 500, 620], [13.8, 0.76, 0.5])
    assert _series(entries, "joint", "selection") == ([620], [0.29])
    assert _series(entries, "predictor", "loss") == ([0, 1000], [0.12, 0.08])
    assert _series(entries, "predictor", "validation") == ([1200], [0.09])
    assert _series(entries, "predictor", "selection") == ([900, 1200], [0.44, 0.53])


def test_the_plot_lies_beside_the_log(log):
    pytest.importorskip("matplotlib")
    path = loss_plot(log)
    assert path == log.with_name("loss.png")
    with Image.open(path) as picture:
        assert picture.size == (1260, 750)
        colours = {tuple(c) for c in np.asarray(picture.convert("RGB")).reshape(-1, 3).tolist()}
    assert {(0, 114, 178), (213, 94, 0)} <= colours  # a loss and a selection were drawn
    before = path.read_bytes()
    assert loss_plot(log).read_bytes() == before


def test_a_run_that_went_on_is_one_run(log):
    with log.open("a") as file:
        file.write('{"seconds": 0.5, "phase": "predictor", "step": 1500, "loss": 0.07}\n')
    assert _series(_entries(log), "predictor", "loss")[0] == [0, 1000, 1500]


def test_a_loss_that_went_astray_leaves_a_gap(log):
    pytest.importorskip("matplotlib")
    with log.open("a") as file:
        file.write('{"seconds": 30, "phase": "predictor", "step": 2000, "loss": NaN}\n')
    assert loss_plot(log).stat().st_size > 10_000


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"seconds": 1.0, "phase": "jo', "line 9, is not a line of a training log"),
        ('{"step": 3, "loss": 0.1}', "line 9"),
        ('{"phase": "joint", "step": 3, "loss": "low"}', "line 9"),
        ('{"phase": "joint", "step": null, "loss": 1}', "line 9"),
        ("[]", "line 9"),
        ("7", "line 9"),
        ("", "line 9"),
    ],
)
def test_damaged_logs(log, line, message):
    with log.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(DjepaError, match=message):
        loss_plot(log)
    assert not log.with_name("loss.png").exists()


def test_logs_without_a_loss(log):
    with pytest.raises(DjepaError, match="holds no loss"):
        loss_plot(log.with_name("nowhere.jsonl"))
    for text in ("", '{"seconds": 1, "phase": "joint", "recorded": true}\n'):
        log.write_text(text)
        with pytest.raises(DjepaError, match="holds no loss"):
            loss_plot(log)
    log.write_bytes(bytes(range(256)))
    with pytest.raises(DjepaError, match="line 1"):
        loss_plot(log)


def test_without_matplotlib(log, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match="report"):
        loss_plot(log)
