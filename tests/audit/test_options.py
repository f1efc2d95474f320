"""`djepa audit` refuses before the work what it could not take or write after it."""

from pathlib import Path

import numpy as np
import pytest

from commands import djepa
from djepa.audit import report
from djepa.errors import MissingExtraError


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    random, shape = np.random.default_rng(0), (6, 5)
    won, costs = random.random(shape) < 0.5, random.random(shape)
    np.savez(tmp_path / "mine.npz", ids=np.tile(np.arange(5), (6, 1)), success=won, costs=costs)
    return tmp_path / "mine.npz"


@pytest.mark.parametrize("name", ["a.xyz", "a", "a.pdf"])
def test_a_figure_of_another_kind_is_named_before_the_work(name: str, tmp_path: Path) -> None:
    done = djepa("audit", tmp_path / "nowhere.npz", "--figure", tmp_path / name)
    assert done.returncode == 1
    assert f"ending in .png or .svg, got {tmp_path / name}" in done.stderr.replace("\n", " ")


def test_figures_are_written_where_there_is_no_folder_yet(mine: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "new" / "a.svg"
    done = djepa("audit", mine, "--figure", out, "--json", out.with_suffix(".json"))
    assert done.returncode == 0, done.stderr
    assert "<svg" in out.read_text()
    assert out.with_suffix(".json").is_file()


def test_a_figure_without_its_extra_is_named_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"djepa\[report\]"):
        report.check_figure(tmp_path / "a.png")


def test_a_folder_is_no_file(mine: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    done = djepa("audit", mine.with_name("nowhere.npz"), "--json", tmp_path / "out")
    assert "it is a folder" in done.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("x.npz", "--geometry", "lewm"), "arrays takes no --geometry"),
        (("x.npz", "--no-realised"), "arrays takes no --realised"),
        (("x.json", "--json", "y.json"), "a decision record takes no --json"),
        (("bank", "--decisions", "d.json", "--geometry", "lewm"), "its bank takes no --geometry"),
    ],
)
def test_options_without_effect_are_refused(words: tuple[str, ...], complaint: str) -> None:
    assert complaint in djepa("audit", *words).stderr.replace("\n", " ")


def test_every_geometry_has_predictions_before_the_first_is_encoded(
    bank_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from djepa.audit import bank
    from djepa.models import predictions

    known, worked = ["lewm"], []
    real = predictions.Stored.__init__

    def stored(self: predictions.Stored, of: object, name: str) -> None:
        if name not in known:
            real(self, of, name)  # type: ignore[arg-type]

    monkeypatch.setattr(predictions.Stored, "__init__", stored)
    monkeypatch.setattr(bank, "realised_costs", lambda *given: worked.append(given))
    done = djepa("audit", bank_copy, "--geometry", "lewm", "tdjepa")
    assert "has no evidence of 'tdjepa'" in done.stderr.replace("\n", " ")
    assert not worked
