"""A geometry by the place that a user names; V-JEPA 2-AC by the path of its file."""

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from cameras import needs_camera
from commands import djepa
from djepa.artefacts.records import sha256
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.models.planner_pool import CEMProposer
from djepa.models.source import open_geometry, source_hash, source_name, source_place
from djepa.models.vjepa2 import VJEPA2AC
from djepa.models.weights import load_geometry, weights_hash
from vjepa2_clone import stand_in

SEARCH = ("--samples", 12, "--keep", 8, "--iterations", 3, "--elites", 4, "--momentum", 0.15)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return stand_in(tmp_path / "clone")


def test_a_published_file_and_weights_of_ours_are_opened_alike(file: Path) -> None:
    model = open_geometry(file, world="arm")
    assert isinstance(model, VJEPA2AC)
    assert (source_name(file), source_place(file)) == ("vjepa2-ac", str(file))
    assert source_hash(file) == sha256(file.read_bytes())
    stand_in(file.parent, seed=1)  # another file in its place
    assert source_hash(file) == sha256(file.read_bytes())
    ours = open_geometry("lewm")
    assert torch.equal(ours.action_std, load_geometry("lewm").action_std)
    assert (source_name("lewm"), source_place("lewm")) == ("lewm", "lewm")
    assert source_hash("lewm") == weights_hash("lewm")


def test_another_process_loads_the_same_model(file: Path, tmp_path: Path) -> None:
    model = open_geometry(file)
    (tmp_path / "model").write_bytes(pickle.dumps(model))
    code = (
        "import pickle, sys; m = pickle.load(open(sys.argv[1], 'rb')); print(m.predictor.mix.bias)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "model"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(model.predictor.mix.bias)
    assert torch.equal(copy.deepcopy(model).predictor.mix.bias, model.predictor.mix.bias)
    stand_in(file.parent, seed=1)
    with pytest.raises(DjepaError, match="not the file that the driver has"):
        pickle.loads((tmp_path / "model").read_bytes())


def test_what_is_not_there_is_named(file: Path, tmp_path: Path) -> None:
    for where, word in (
        (tmp_path / "clone" / "other.pt", "no file of weights"),
        (file.rename(tmp_path / "alone.pt"), "no clone of the repository"),
    ):
        for use in (open_geometry, source_hash, source_place, CEMProposer):
            with pytest.raises(DjepaError, match=word):
                use(where)  # type: ignore[operator]
    with pytest.raises(DjepaError, match=r"Unknown weights 'clone/alone\.pt'"):
        load_geometry("clone/alone.pt")  # where weights of ours are needed


def test_other_worlds_have_no_poses_for_it(file: Path) -> None:
    frames = torch.zeros(1, 256, 256, 3, dtype=torch.uint8)
    with pytest.raises(DjepaError, match="poses of 7 numbers, as the world 'arm' gives"):
        open_geometry(file).encode(frames, torch.zeros(1, 4))


def test_commands_search_predict_and_check_with_it(file: Path, tmp_path: Path) -> None:
    needs_camera()
    bank, of = tmp_path / "bank", ("--geometry", file)
    given = ("--shape", "push", "--starts", 2, "--block", 1, "--workers", 1, "--axes", 1, 1, 0, 0)
    made = djepa("collect", "arm", "--profile", "planner", *of, *SEARCH, *given, "--out", bank)
    assert made.returncode == 0, made.stderr
    d = Bank(bank).decisions
    assert d.actions.shape == (2, 8, 5, 4)
    assert np.abs(d.actions[..., 2:]).max() < 0.1 < np.abs(d.actions[..., :2]).max()
    assert djepa("predict", bank, *of, "--workers", 1).returncode == 0
    checked = djepa("check", bank, *of, "--sample", 2)
    assert checked.returncode == 0, checked.stderr
    assert "made again from it, every byte the same" in checked.stdout
    assert "predictions of vjepa2-ac" in checked.stdout
