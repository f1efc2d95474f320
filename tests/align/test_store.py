"""Alignments and planners on disk, and the commands that make and use them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from commands import djepa
from djepa.align.fit import AlignConfig, Alignment
from djepa.align.outcomes import Outcomes
from djepa.align.store import load_alignment, save_alignment
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence
from djepa.evidence.ranks import order
from djepa.lift.file import write_planner
from djepa.lift.ordinal import native_distance
from djepa.lift.planner import load_planner
from djepa.models.lewm import LeWM
from djepa.models.predictions import predict_bank
from djepa.models.tdjepa import TDJEPA
from djepa.models.weights import load_geometry, save_geometry, weights_hash
from tiny import TINY

QUICK = AlignConfig(updates=20, every=10, batch=4)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tiny geometries with lively weights."""
    root = tmp_path_factory.mktemp("weights")
    for seed, kind in enumerate((LeWM, TDJEPA)):
        torch.manual_seed(seed)
        net = kind(TINY).eval()
        for parameter in net.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
        save_geometry(net, root / kind.name, {})
    return root


@pytest.fixture
def bank(bank_copy: Path, weights: Path) -> Bank:
    """Ten starts with evidence of both."""
    found = Bank(bank_copy)
    for name in ("lewm", "tdjepa"):
        where = weights / name
        predict_bank(found, load_geometry(where), weights_hash(where))
    return found


def fitted(bank: Bank, config: AlignConfig = QUICK) -> Alignment:
    evidence = Evidence.from_bank(bank, ("lewm", "tdjepa"), config.dense)
    outcomes = Outcomes.from_bank(bank)
    first, last = torch.arange(6), torch.arange(6, 10)
    alignment = Alignment(config).fit(evidence.rows(first), outcomes.rows(first))
    return alignment.calibrate(evidence.rows(last), outcomes.rows(last))


@pytest.mark.parametrize("changes", [{}, {"extras": ("log", "agreement")}])
def test_an_alignment_comes_back_as_it_was(
    changes: dict[str, object], bank: Bank, tmp_path: Path
) -> None:
    alignment = fitted(bank, replace(QUICK, **changes))  # type: ignore[arg-type]
    evidence = Evidence.from_bank(bank, ("lewm", "tdjepa"), ("lewm", "tdjepa"))
    save_alignment(alignment, tmp_path / "a", {"note": "x"})
    again = load_alignment(tmp_path / "a")
    assert (again.config, again.gate, again.report) == (
        alignment.config,
        alignment.gate,
        alignment.report,
    )
    before, after = alignment.decide(evidence), again.decide(evidence)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_damage_is_named(bank: Bank, tmp_path: Path) -> None:
    with pytest.raises(DjepaError, match="Fit and calibrate"):
        save_alignment(Alignment(), tmp_path / "early", {})
    save_alignment(fitted(bank), tmp_path / "a", {})
    path = tmp_path / "a/calibration.json"
    path.write_text(path.read_text().replace("mode", "mood"))
    with pytest.raises(DjepaError, match=r"calibration\.json is damaged"):
        load_alignment(tmp_path / "a")
    path.unlink()
    with pytest.raises(DjepaError, match=r"calibration\.json is missing"):
        load_alignment(tmp_path / "a")
    with pytest.raises(DjepaError, match="There is no alignment"):
        load_alignment(tmp_path / "nowhere")


def test_a_planner_decides_as_the_alignment_does(bank: Bank, weights: Path, tmp_path: Path) -> None:
    """From frames, out of one file: the same choices, readable by native distance."""
    alignment = fitted(bank)
    where = [str(weights / name) for name in ("lewm", "tdjepa")]
    file = tmp_path / "p.safetensors"
    write_planner(file, alignment, where, "tdjepa", {})
    planner, decisions = load_planner(file), bank.decisions
    scene = bank.scene()
    frames, _ = scene.observe(torch.from_numpy(decisions.context.copy()), 28)
    goal, _ = scene.observe(torch.from_numpy(decisions.goal.copy()), 28)
    ids = torch.from_numpy(decisions.candidate_ids.copy())
    history = torch.from_numpy(decisions.history.copy()).float()
    actions = torch.from_numpy(decisions.actions.copy()).float()
    plan = planner.plan(frames, history, goal, actions, ids)
    evidence = Evidence.from_bank(bank, ("lewm", "tdjepa"), ("lewm", "tdjepa"))
    expected = alignment.decide(evidence)
    assert torch.equal(plan.choice, expected.choice)
    assert torch.equal(plan.order, expected.order)
    read_back = ids.gather(1, order(native_distance(plan.futures, plan.goal), ids))
    assert torch.equal(read_back, plan.order)
    native = planner.search_cost(frames, history, goal, actions)
    stored = evidence.costs[..., 1]
    assert torch.equal(order(native, ids), order(stored, ids))
    assert plan.futures.shape == (10, 63, 5, 16)
    assert native_distance(plan.futures, plan.goal).max() < 1
    planner.geometries["lewm"].proprio_weight = 0.1  # as those have it that read proprioception
    with pytest.raises(DjepaError, match="lewm of this planner read proprioception: give proprio"):
        planner.plan(frames, history, goal, actions, ids)
    planner.plan(frames, history, goal, actions, ids, torch.zeros(len(ids), 4, 4))
    planner.search_cost(frames, history, goal, actions)  # tdjepa alone, which reads none
    with pytest.raises(DjepaError, match="needs the geometries tdjepa"):
        type(planner)({"lewm": planner.geometries["lewm"]}, alignment, "lewm")
    with pytest.raises(DjepaError, match="There is no planner"):
        load_planner(tmp_path / "nowhere")


def test_the_commands_as_a_user_runs_them(bank: Bank, weights: Path, tmp_path: Path) -> None:
    save_alignment(fitted(bank), tmp_path / "a", {})
    out = tmp_path / "decisions.json"
    done = djepa("decide", str(tmp_path / "a"), str(bank.path), "--out", str(out))
    assert done.returncode == 0, done.stderr
    rows = json.loads(out.read_text())["decisions"]
    assert len(rows) == 10
    assert all(row["choice"] == row["order"][0] for row in rows)
    places = [str(weights / name) for name in ("lewm", "tdjepa")]
    file = str(tmp_path / "p.safetensors")
    done = djepa("export", str(tmp_path / "a"), "--out", file, "--geometry", *places)
    assert done.returncode == 0, done.stderr
    again = djepa("export", str(tmp_path / "a"), "--out", file)
    assert again.returncode == 1
    assert "holds a file already" in again.stderr
    same = djepa(
        *("fit", str(bank.path), "--calibration", str(bank.path), "--out", str(tmp_path / "b")),
        *("--preset", "published"),
    )
    assert same.returncode == 1
    assert "must not share starts" in " ".join(same.stderr.split())
