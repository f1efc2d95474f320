"""One real run of every command, one after the other, as in a first afternoon; sizes are tiny."""

import json
from pathlib import Path

import pytest

from commands import djepa
from djepa.bench import geometry
from djepa.cli.main import NAMES
from djepa.models import dinowm, episodes, jepawm, train
from djepa.models.lewm import SIZES
from djepa.rollout.engine import LocalEngine
from tiny import TINY, TINY_PATCHES

# tests/studies run all methods, which takes minutes; tests/lift convert, which needs a release;
# tests/interop serve, which goes on until it is stopped, and import what others recorded.
ELSEWHERE = {"study", "convert", "serve", "import"}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(episodes, "SHARD", 16)
    # Other processes would not know of the smaller shards.
    monkeypatch.setattr(train, "LocalEngine", lambda: LocalEngine(1))
    monkeypatch.setitem(SIZES, "small", TINY)
    for sizes in (jepawm.SIZES, dinowm.SIZES):
        monkeypatch.setitem(sizes, "small", TINY_PATCHES)
    monkeypatch.setattr(geometry, "in_child", lambda work: work())  # tests/bench starts children
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_runs(small: Path) -> None:
    ran = set()

    def run(*arguments: object) -> str:
        done = djepa(*arguments)
        assert done.returncode == 0, (arguments, done.stderr)
        ran.add(arguments[0])
        return done.stdout

    assert "torch" in run("info")
    for name in ("fit", "calibration", "test"):
        size = ("--starts", 3, "--block", 3, "--workers", 1)
        run("collect", "push", *size, "--split", name, "--out", name)
    assert run("check", "fit", "--sample", 5).count("ok ") == 7
    run("show", "fit", "--start", 0, "--out", "pictures")
    run("pools", "fit")
    folder = small / "episodes"
    assert "2 shards" in run("simulate", "push", "--episodes", 32, "--out", folder, "--workers", 1)
    size = ("--steps", 4, "--episodes", 32, "--shrink", 64, "--device", "cpu", "--data", folder)
    for name in ("lewm", "tdjepa"):
        starts = ("--development", 2, "--held-out", 2)
        run("train", "push", "--geometry", name, *size, *starts, "--out", f"weights/{name}")
    weights = ("weights/lewm", "weights/tdjepa")
    for bank in ("fit", "calibration", "test"):
        run("predict", bank, "--geometry", *weights)
    assert "whole" in run("weights", *weights)
    assert "lewm" in run("audit", "test", "--geometry", *weights)
    given = (
        "--calibration",
        "calibration",
        "--preset",
        "published",
        "--updates",
        2,
        "--out",
        "alignment",
    )
    run("fit", "fit", *given)
    run("decide", "alignment", "test", "--out", "decisions.json")
    assert len(json.loads(Path("decisions.json").read_text())["decisions"]) == 3
    run("export", "alignment", "--geometry", *weights, "--out", "planner.safetensors")
    run("bench", "geometry", "--geometry", *weights, "--starts", 1, "--candidates", 2, "--many", 2)
    search = ("--planner", "native-cem", "--geometry", "weights/tdjepa", "--evaluations", 8)
    few = ("--samples", 4, "--elites", 2, "--episodes", 1, "--budget", 5, "--workers", 1)
    assert "moderate" in run("control", "push", *search, *few, "--out", "closed")
    assert ran == set(NAMES) - ELSEWHERE
