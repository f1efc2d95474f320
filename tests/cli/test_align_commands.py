"""fit, decide and export as a user runs them: real banks, real models, a fresh process."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from commands import djepa
from djepa.align import shift
from djepa.align.plastic import Patch, base_hash, plastic_names, save_patch
from djepa.cli.decide import Decide
from djepa.cli.fit import FitAlignment
from djepa.cli.workers import Workers
from djepa.errors import DjepaError
from djepa.models.weights import load_geometry
from environments import environment

PLAN = """
import json, sys
from pathlib import Path
import torch
from djepa.models import weights

for extra in ("matplotlib", "ray", "mujoco", "dm_control", "gymnasium", "pyarrow", "rich", "tyro"):
    sys.modules[extra] = None  # cannot be imported: neither extras nor the command line are needed
weights.places = lambda: []  # no weights by name
from djepa.bank.read import Bank
from djepa.evidence.ranks import order
from djepa.lift.ordinal import native_distance
from djepa.lift.planner import load_planner

planner, bank = load_planner(Path(sys.argv[1])), Bank(sys.argv[2])
d = bank.decisions
states = torch.cat([torch.tensor(d.context), torch.tensor(d.goal)[:, None]], dim=1)
frames, proprio = bank.scene().observe(states, 112)
given = torch.tensor(d.history).float(), torch.tensor(d.actions).float()
ids = torch.tensor(d.candidate_ids)
plan = planner.plan(frames[:, :3], given[0], frames[:, 3], given[1], ids, proprio)
read_back = ids.gather(1, order(native_distance(plan.futures, plan.goal), ids))
assert torch.equal(read_back, plan.order)
print(json.dumps({"choice": plan.choice.tolist(), "order": plan.order.tolist()}))
"""


@pytest.fixture(scope="module")
def banks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three small banks with predictions of the two vector geometries."""
    root = tmp_path_factory.mktemp("align")
    for name, starts in (("fit", 5), ("calibration", 3), ("test", 3)):
        bank = str(root / name)
        made = djepa("collect", "--out", bank, "--starts", starts, "--split", name, "--workers", 1)
        assert made.returncode == 0, made.stderr
        assert djepa("predict", bank, "--geometry", "lewm", "tdjepa").returncode == 0
    return root


@pytest.fixture(scope="module")
def alignment(banks: Path) -> Path:
    out = banks / "alignment"
    done = djepa(
        *("fit", banks / "fit", "--calibration", banks / "calibration", "--preset", "published"),
        *("--out", out, "--updates", "20", "--guarantee", banks / "test"),
    )
    assert done.returncode == 0, done.stderr
    assert "No valid threshold for harm at most 2.0% with 95% confidence on 3" in done.stdout
    assert "base score:" in done.stdout
    assert "Fitting: 1/20 updates" in done.stdout
    assert "Fitting: 20/20 updates" in done.stdout
    return out


def test_several_presets_are_fitted_side_by_side(
    banks: Path, alignment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each as if it were alone; what is there already is kept."""
    given = FitAlignment(
        bank=banks / "fit",
        calibration=banks / "calibration",
        out=tmp_path,
        preset=("published", "tdjepa"),
        guarantee=banks / "test",
        updates=20,
        execution=Workers(workers=1),
    )
    assert given.run() == 0
    assert {path.name for path in tmp_path.iterdir()} == {"published", "tdjepa"}
    for file in alignment.iterdir():
        assert (tmp_path / "published" / file.name).read_bytes() == file.read_bytes()
    shutil.rmtree(tmp_path / "tdjepa")
    capsys.readouterr()
    assert given.run() == 0
    said = capsys.readouterr().out
    assert "published is there already" in said.replace("\n", "")
    assert "tdjepa: fitting on 5 starts" in said
    assert (tmp_path / "tdjepa" / "manifest.json").exists()


def test_deciding_is_the_same_in_every_process_and_never_opens_an_outcome(
    banks: Path, alignment: Path, tmp_path: Path
) -> None:
    decide = ["decide", str(alignment), str(banks / "test"), "--out"]
    assert djepa(*decide, tmp_path / "one").returncode == 0
    command = [sys.executable, "-m", "djepa", *decide, str(tmp_path / "two")]
    subprocess.run(command, check=True, capture_output=True)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    spoilt = shutil.copytree(banks / "test", tmp_path / "spoilt")
    for shard in (spoilt / "outcome").iterdir():
        shard.write_bytes(bytes(shard.stat().st_size))  # a bank knows how long its files are
    done = djepa("decide", alignment, spoilt, "--out", tmp_path / "three")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "one").read_bytes() == (tmp_path / "three").read_bytes()


def test_a_gate_admits_no_change_where_the_evidence_differs(
    banks: Path,
    alignment: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(shift, "LEAST", 3)
    monkeypatch.setattr(shift, "LEVEL", 2.0)  # whatever p is, a difference is noticed
    out, calibration = tmp_path / "decisions", banks / "calibration"
    assert Decide(alignment, banks / "test", out, calibration, admit=True).run() == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "The gate stayed shut: every start has the base choice." in said
    assert "pass on 0" in said
    assert not any(one["gate"]["opened"] for one in json.loads(out.read_text())["decisions"])
    with pytest.raises(DjepaError, match="give its bank as --calibration"):
        Decide(alignment, banks / "test", admit=True).run()


@pytest.fixture(scope="module")
def patch(banks: Path) -> Path:
    """An end of TD-JEPA's predictor that predicts something else."""
    model = load_geometry("tdjepa")
    ends = {n: 1.05 * model.get_parameter(n).detach() for n in plastic_names(model)}
    save_patch(Patch("tdjepa", base_hash(model), ends, {}), banks / "patch")
    return banks / "patch"


def in_a_fresh_process(
    planner: Path, bank: Path, python: str | Path = sys.executable, *flags: str
) -> dict[str, Any]:
    """What a planner chooses from frames, and the packages that it needed."""
    command = [str(python), *flags, "-c", PLAN, str(planner), str(bank)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=planner.parent)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("composed", [False, True])
def test_one_file_decides_alike_in_a_fresh_process(
    composed: bool, banks: Path, alignment: Path, patch: Path, tmp_path: Path
) -> None:
    """Of the base installation nothing but the file is read: weights by name are not there."""
    file = tmp_path / "alone" / "planner.safetensors"
    more = ("--patch", patch, "--threshold=-10.0") if composed else ()
    made = djepa("export", alignment, "--out", file, *more)
    assert made.returncode == 0, made.stderr
    assert [found.name for found in file.parent.iterdir()] == [file.name]
    if composed:
        done = djepa("decide", file, banks / "test")
        assert "has no evidence of 'tdjepa-plastic'" in done.stderr
        assert djepa("predict", banks / "test", "--geometry", file).returncode == 0
    done = djepa("decide", file, banks / "test", "--out", tmp_path / "d")
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "d").read_text())["decisions"]
    plan = in_a_fresh_process(file, banks / "test")
    assert plan["choice"] == [row["choice"] for row in rows]
    assert plan["order"] == [row["order"] for row in rows]
    assert djepa("decide", alignment, banks / "test", "--out", tmp_path / "e").returncode == 0
    alone = json.loads((tmp_path / "e").read_text())["decisions"]
    assert (rows == alone) != composed
    gates = [row["gate"] for row in rows]
    assert all(g["opened"] == (g["advantage"] > g["threshold"]) for g in gates)
    if composed:  # what it would keep is the relational choice
        assert all(g["opened"] and g["threshold"] == -10 for g in gates)
        assert [g["base_choice"] for g in gates] == [row["choice"] for row in alone]


INSTALLED = """
import importlib.metadata, json
from pathlib import Path
import djepa
names = sorted(dist.metadata["Name"].lower() for dist in importlib.metadata.distributions())
print(json.dumps({"names": names, "djepa": str(Path(djepa.__file__).resolve())}))
"""
BASE = (".", "-c", "constraints.txt")  # what docs/own-model.md has the user type


def test_a_composition_decides_alike_in_a_new_environment(
    alignment: Path, patch: Path, tmp_path: Path
) -> None:
    """The file goes where nothing but the base installation is, not even this source."""
    python = environment("base", BASE, alone=True, new=True)
    said = subprocess.run([python, "-I", "-c", INSTALLED], capture_output=True, check=True)
    there = json.loads(said.stdout)
    assert Path(there["djepa"]).is_relative_to(python.parent.parent.resolve())
    extras = {"matplotlib", "mujoco", "ray", "pyarrow", "gymnasium", "pytest"}
    assert not extras & set(there["names"])
    bank, file = tmp_path / "bank", tmp_path / "planner.safetensors"
    made = djepa("collect", "--out", bank, "--starts", 32, "--split", "elsewhere", "--workers", 1)
    assert made.returncode == 0, made.stderr
    composed = ("--patch", patch, "--threshold=0.0065")
    assert djepa("export", alignment, "--out", file, *composed).returncode == 0
    assert djepa("predict", bank, "--geometry", file).returncode == 0
    assert djepa("decide", file, bank, "--out", tmp_path / "d").returncode == 0
    rows = json.loads((tmp_path / "d").read_text())["decisions"]
    plan = in_a_fresh_process(file, bank, python, "-I")
    assert plan["choice"] == [row["choice"] for row in rows]
    assert plan["order"] == [row["order"] for row in rows]
    assert 0 < sum(row["gate"]["opened"] for row in rows) < 32  # it does both


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            [
                "fit",
                "{b}/fit",
                "--calibration",
                "{b}/fit",
                "--out",
                "{t}/a",
                "--preset",
                "published",
            ],
            "must not share starts",
        ),
        (["fit", "{b}/fit", "--calibration", "{b}/test", "--preset", "bets"], "Did you mean"),
        (["fit", "{b}/fit", "--calibration", "{b}/test", "--preset", "best"], "has no evidence"),
        (["fit", "{b}/fit", "--calibration", "{b}/test", "--out", "{b}/alignment"], "finished"),
        (["decide", "{t}", "{b}/test"], "holds no finished alignment"),
        (["export", "{t}", "--out", "{t}/p.safetensors"], "holds no finished alignment"),
        (["export", "{b}/alignment", "--out", "{t}/p"], "ends in .safetensors"),
        (["export", "{b}/alignment", "--patch", "{b}/patch"], "both --patch and --threshold"),
        (["decide", "{b}/test/manifest.json", "{b}/test"], "is not a complete safetensors file"),
        (["study", "pushed"], "Did you mean 'pusht'"),
        (["study", "pusht", "--preset", "huge"], "Unknown preset 'huge'"),
    ],
)
def test_bad_calls_are_named(
    banks: Path, alignment: Path, tmp_path: Path, arguments: list[str], complaint: str
) -> None:
    given = [argument.format(b=banks, t=tmp_path) for argument in arguments]
    done = djepa(*given)
    assert done.returncode != 0
    assert complaint in " ".join(done.stderr.split()), done.stderr
