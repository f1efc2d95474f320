"""The page on one's own world, followed as a reader follows it: one file, then the commands."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from djepa.models.weights import load_geometry, read_card
from djepa.testing import PROMISES

PAGE = (Path(__file__).parents[2] / "docs/own-world.md").read_text()
WORLD = "my_world:TASK"
# Below the page's own code, for processes that train: shards and a geometry that take seconds.
SMALLER = """
import sys

if "djepa.models.episodes" in sys.modules:
    from dataclasses import replace
    from djepa.models import episodes, lewm

    episodes.SHARD = 64
    lewm.SIZES["small"] = replace(
        lewm.SMALL, image=28, width=24, depth=1, hidden=48, latent=16, projector=32,
        predictor_depth=1, predictor_heads=2, predictor_head=8, predictor_hidden=32,
    )
"""
FEWER = {
    "--starts": {"128": "20", "64": "8"},
    "--episodes": {"2048": "128"},
    "--steps": {"600": "8"},
    "--development": {"64": "4"},
    "--held-out": {"64": "4"},
}
MORE = {
    "collect": ["--workers", "2", "--block", "4"],
    "simulate": ["--workers", "1"],  # here, where shards are smaller
    "fit": ["--updates", "20"],
}
Done = subprocess.CompletedProcess[str]
ALL = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
import djepa.models.episodes
from djepa.cli.main import main
done = []
for command in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["djepa", *command]
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code
    done.append([command, code, out.getvalue(), err.getvalue()])
    if code:
        break
print(json.dumps(done))
"""  # in one process: starting each command in its own takes longer than all the work


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return [text for kind, text in found if kind == language]


def commands() -> list[list[str]]:
    """What the page's blocks of commands say, with smaller numbers."""
    lines = "".join(blocks("")).replace("\\\n", " ").splitlines()
    assert lines[0] == "export PYTHONPATH=$PWD"
    found = []
    for line in lines[1:]:
        program, name, *words = shlex.split(line)
        assert program == "djepa"
        for flag, fewer in FEWER.items():
            if flag in words:
                at = words.index(flag) + 1
                words[at] = fewer[words[at]]
        found.append([name, *words, *MORE.get(name, [])])
    return found


class Reader:
    """Somebody in a folder of their own, whose path it is on, or not."""

    def __init__(self, folder: Path, on_path: bool = True) -> None:
        self.folder, self.said = folder, dict[str, Done]()
        paths = [str(folder)] * on_path + [os.environ.get("PYTHONPATH", "")]
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))

    def python(self, *arguments: str) -> Done:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
        )


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """One who has done everything on the page, in its order."""
    reader = Reader(tmp_path_factory.mktemp("own"))
    (reader.folder / "my_world.py").write_text("\n".join([*blocks("python"), SMALLER]))
    done = reader.python("-c", ALL, json.dumps(commands()))
    assert done.returncode == 0, done.stderr
    for command, code, out, err in json.loads(done.stdout):
        assert code == 0, (command, err)
        reader.said[" ".join(command[:2])] = Done(command, code, out, err)
    return reader


def manifest(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "manifest.json").read_text())["about"]
    return found


def test_the_world_keeps_every_promise(reader: Reader) -> None:
    done = reader.python("my_world.py")
    assert done.stdout.splitlines() == list(PROMISES), done.stderr


def test_the_banks_are_whole_exact_and_apart(reader: Reader) -> None:
    for name, starts in (("fit", 20), ("calibration", 8), ("test", 8)):
        bank = manifest(reader.folder / "runs/mine" / name)
        wanted = {"world": WORLD, "shape": "felt", "rule": "puck.v1", "split": name, "horizon": 10}
        assert wanted.items() <= bank["config"].items()  # type: ignore[attr-defined]
        assert bank["config"]["starts"] == starts  # type: ignore[index]
        assert bank["versions"]["world"] == "puck.1"  # type: ignore[index]
    (checked,) = (done for name, done in reader.said.items() if name.startswith("check"))
    assert checked.stdout.count("ok ") == 3 * 7 + 3
    pictures = {file.suffix for file in (reader.folder / "runs/mine/fit-pictures").iterdir()}
    assert pictures == {".png", ".gif"}


def test_training_ends_and_leaves_weights(reader: Reader) -> None:
    folder = reader.folder / "runs/mine/lewm"
    model, card = load_geometry(folder), read_card(folder)
    assert (model.name, model.stride, model.config.actions) == ("lewm", 2, 2)
    assert card["recipe"]["world"] == WORLD
    assert card["metrics"]["starts"] == 4
    assert len(list((reader.folder / "runs/mine/episodes").iterdir())) == 2
    assert not (folder / "episodes").exists()  # those of `djepa simulate` were taken


def test_the_prediction_is_evidence(reader: Reader) -> None:
    for name, starts in (("fit", 20), ("calibration", 8), ("test", 8)):
        shards = sorted((reader.folder / "runs/mine" / name / "evidence/lewm").glob("block-*"))
        parts = [load_file(shard) for shard in shards]
        cost, futures = (np.concatenate([p[what] for p in parts]) for what in ("cost", "futures"))
        assert cost.shape == (starts, 63)
        assert futures.shape == (starts, 63, 10 // 2, 16)
        assert np.isfinite(cost).all()
        assert (np.ptp(cost, axis=1) > 0).all()  # the candidates are told apart


def test_an_alignment_is_fitted_and_decides(reader: Reader) -> None:
    assert "base score: 1 lewm" in reader.said["fit runs/mine/fit"].stdout
    decisions = json.loads((reader.folder / "runs/mine/decisions.json").read_text())["decisions"]
    assert len(decisions) == 8
    for decision in decisions:
        assert decision["choice"] == decision["order"][0]
        assert len(set(decision["order"])) == 63


def test_a_decoy_bank_in_another_shape(reader: Reader) -> None:
    """What the page's record offers beside what its commands use."""
    made = reader.python(
        *("-m", "djepa", "collect", WORLD, "--profile", "decoy", "--shape", "ice"),
        *("--starts", "2", "--out", "runs/ice", "--workers", "1"),
    )
    assert made.returncode == 0, made.stderr
    assert "2 starts x 64 candidates" in made.stdout
    checked = reader.python("-m", "djepa", "check", "runs/ice")
    assert checked.stdout.count("ok ") == 7, checked.stderr


def test_a_folder_that_is_not_on_the_path_is_named(tmp_path: Path) -> None:
    done = Reader(tmp_path, on_path=False).python("-m", "djepa", "collect", WORLD)
    assert done.returncode == 1
    assert "There is no module 'my_world'" in done.stderr
    assert "Traceback" not in done.stderr
