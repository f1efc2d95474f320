"""`djepa show --geometry` as a user runs it."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from commands import Done, djepa
from djepa.bank.read import Bank
from djepa.models.lewm import LeWM
from djepa.models.weights import card, save_geometry
from tiny import TINY


def show(bank: Path, *arguments: str) -> Done:
    return djepa("show", bank, *arguments)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    folder, model = tmp_path_factory.mktemp("weights") / "tiny", LeWM(TINY).eval()
    save_geometry(model, folder, card({}, model, "", {}))
    return folder


def test_futures_are_drawn(small_bank: Bank, weights: Path, tmp_path: Path) -> None:
    out = tmp_path / "pictures"
    done = show(small_bank.path, "--start", "3", "--geometry", str(weights), "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert done.stdout.replace("\n", "") == str(out / "start-3-futures.png")
    assert [path.name for path in out.iterdir()] == ["start-3-futures.png"]
    with Image.open(out / "start-3-futures.png") as picture:
        one = picture.size
    twice = [str(weights), str(weights)]
    candidates = ["--candidates", "4", "7"]
    done = show(small_bank.path, "--geometry", *twice, "--out", str(out), *candidates)
    assert done.returncode == 0, done.stderr
    with Image.open(out / "start-0-futures.png") as picture:
        assert one == (840, 1866)
        assert picture.size == (1648, 1162)  # two panels, two candidates


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--geometry", "lewn"], "weights"),
        (["--start", "10", "--geometry", "WEIGHTS"], "has no start 10; it has 0 to 9"),
        (["--candidates", "99", "--geometry", "WEIGHTS"], "has no candidate 99"),
    ],
)
def test_mistakes_are_explained(
    small_bank: Bank, weights: Path, tmp_path: Path, arguments: list[str], complaint: str
) -> None:
    given = [str(weights) if word == "WEIGHTS" else word for word in arguments]
    done = show(small_bank.path, "--out", str(tmp_path / "out"), *given)
    assert done.returncode == 1
    assert complaint in done.stderr.replace("\n", " ")
    assert not (tmp_path / "out").exists()


def test_a_bank_whose_outcomes_are_gone(bank_copy: Path, weights: Path) -> None:
    for shard in (bank_copy / "outcome").iterdir():
        shard.unlink()
    done = show(bank_copy, "--geometry", str(weights))
    assert done.returncode == 1
    assert "is missing, though it was finished" in done.stderr.replace("\n", " ")
