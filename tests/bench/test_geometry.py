"""The geometry bench measures what it says; no time is asserted."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from commands import djepa
from djepa.artefacts.claim import JSON_OF
from djepa.bench.geometry import bench_geometry, drift, format_rows, start_by_start
from djepa.bench.measure import Options
from djepa.bench.subject import RANDOM, STORED, Subject, decisions, load_subject, scene_of
from djepa.errors import DjepaError
from djepa.models import lewm, weights
from djepa.models.fast import Fast
from djepa.models.lewm import LeWM
from djepa.models.tdjepa import TDJEPA
from djepa.models.weights import card, save_geometry
from djepa.tasks.task import Scene
from tiny import TINY

KEYS = {"what", "unit", "ours", "plain", "ratio", "note", "details"}


def save_tiny(kind: type[LeWM], folder: Path) -> None:
    torch.manual_seed(0)
    model = kind(TINY).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    save_geometry(model, folder, card({}, model, "", {}))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Stored weights of two tiny geometries."""
    root = tmp_path_factory.mktemp("tiny")
    for kind in (LeWM, TDJEPA):
        save_tiny(kind, root / kind.name)
    return [str(root / "lewm"), str(root / "tdjepa")]


def test_the_command_writes_every_row(folders: list[str], tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    sizes = ["--starts", "2", "--candidates", "3", "--many", "70", "--out", str(out)]
    done = djepa("bench", "geometry", "--geometry", *folders, *sizes)
    assert done.returncode == 0, done.stderr
    assert "| lewm own size, starts |" in done.stdout
    assert JSON_OF["bench"](out)  # or the next could not replace it
    numbers = json.loads(out.read_text())
    assert {"device", "threads", "torch", "options", "rows"} == numbers.keys()
    assert numbers["options"]["starts"] == 2
    assert [row["what"] for row in numbers["rows"]] == [
        f"{name} own size, {what}"
        for name in ("lewm", "tdjepa")
        for what in ("starts", "products", "70 candidates", "memory of 70 candidates")
    ]
    for row in numbers["rows"]:
        assert row.keys() == {"bench", *KEYS}
        assert row["bench"] == "geometry"
        assert row["note"].endswith(STORED)
    starts, products, rate, memory = numbers["rows"][:4]
    assert 0 <= products["details"]["choices_changed"] <= 1
    assert {"ms_per_start", "encode_ms_per_start", "rollout_ms_per_start"} < starts[
        "details"
    ].keys()
    assert starts["ratio"] > 0
    assert (rate["details"]["chunk"], rate["details"]["plain_chunk"]) == (17, 70)
    assert memory["unit"] == "MB"


def test_names_without_weights_are_measured_with_random_ones(
    monkeypatch: pytest.MonkeyPatch, folders: list[str]
) -> None:
    monkeypatch.setitem(lewm.SIZES, "small", TINY)
    monkeypatch.setattr(weights, "SHIPPED", Path(folders[0]).parent / "none")
    subject = load_subject("lewm", "small", "cpu")
    assert (subject.size, subject.weights) == ("small", RANDOM)
    costs = Fast(subject.model).predict(decisions(28, 2, 4, "cpu")).cost
    assert (costs.std(1) > 1e-6).all()  # actions get through
    again = load_subject("lewm", "small", "cpu")
    assert torch.equal(Fast(again.model).predict(decisions(28, 2, 4, "cpu")).cost, costs)


def test_shipped_weights_stand_in_for_their_own_size_alone(
    monkeypatch: pytest.MonkeyPatch, folders: list[str]
) -> None:
    monkeypatch.setitem(lewm.SIZES, "small", TINY)
    monkeypatch.setattr(weights, "SHIPPED", Path(folders[0]).parent)
    assert load_subject("lewm", "small", "cpu").weights == STORED
    monkeypatch.setitem(lewm.SIZES, "paper", lewm.SMALL)
    assert load_subject("lewm", "paper", "cpu").weights == RANDOM


def test_the_loop_and_the_batch_do_the_same_work(folders: list[str]) -> None:
    fast = Fast(load_subject(folders[1], "small", "cpu").model)
    given = decisions(28, 3, 5, "cpu")
    costs = fast.predict(given).cost
    assert costs.shape == (3, 5)
    assert torch.allclose(costs, start_by_start(fast, given), atol=1e-5)


def test_more_candidates_than_a_pool_holds_all_differ() -> None:
    candidates = decisions(28, 1, 150, "cpu").candidates[0]
    assert candidates.shape == (150, 25, 2)
    assert candidates.abs().max() <= 1
    assert len(candidates.flatten(1).unique(dim=0)) == 150
    assert torch.equal(candidates[:63], decisions(28, 1, 63, "cpu").candidates[0])


@pytest.mark.parametrize(
    ("where", "scene", "taken"),
    [
        ("reacher-lewm", Scene("reacher", "arm"), (25, 2)),
        ("reacher-tdjepa", Scene("reacher", "arm"), (25, 2)),
        ("granular-dinowm", Scene("granular", "grains-100"), (5, 4)),
        ("shapes-jepawm", Scene("push", "T", "clean"), (25, 2)),
    ],
)
def test_weights_decide_in_the_world_they_belong_to(
    where: str, scene: Scene, taken: tuple[int, int]
) -> None:
    if scene.world == "reacher":
        pytest.importorskip("mujoco")
    subject = load_subject(where, "small", "cpu")
    assert (subject.scene, subject.weights) == (scene, STORED)
    assert subject.title == f"{where} small"  # not that of the push world's geometry
    given = subject.decisions(1, 2, "cpu")
    assert given.candidates.shape == (1, 2, *taken)
    costs = Fast(subject.model).predict(given).cost
    assert costs.shape == (1, 2)
    assert costs.isfinite().all()
    row = subject.row("x", "MB", 1.0, None, "")
    assert row.what == f"{where} small, x"


def test_cards_that_name_no_world_are_of_the_push_world(folders: list[str]) -> None:
    assert scene_of("lewm") == scene_of(folders[0]) == Scene("push", "T")


def test_a_decision_looks_as_its_scene() -> None:
    plain, clean = (
        decisions(28, 1, 2, "cpu", Scene("push", "T", look)) for look in ("plain", "clean")
    )
    assert torch.equal(plain.candidates, clean.candidates)
    assert not torch.equal(plain.frames, clean.frames)


def test_candidates_may_go_beyond_one_where_the_world_does() -> None:
    candidates = decisions(28, 1, 70, "cpu", Scene("granular", "grains-100")).candidates[0]
    assert len(candidates.flatten(1).unique(dim=0)) == 70
    assert 1 < candidates.abs().max() <= 4


def test_changed_ranks_and_choices_by_hand() -> None:
    exact = torch.tensor([[1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]])
    other = torch.tensor([[1.0, 3.0, 2.0, 4.0], [2.0, 1.0, 3.0, 4.0]])
    assert drift(other, exact) == (0.5, 0.5)
    assert drift(exact + 1, exact) == (0.0, 0.0)


def test_every_number_format_has_a_row(folders: list[str]) -> None:
    subject = load_subject(folders[0], "small", "cpu")
    rows = list(format_rows(subject, decisions(28, 2, 6, "cpu"), (), "cpu", lambda line: None))
    formats = ["float32", "tf32", "bf16", *(f"{p} + recorded" for p in ("float32", "tf32", "bf16"))]
    assert [row.what for row in rows] == [f"lewm own size, {name}" for name in formats]
    assert rows[0].plain is None
    assert all(row.plain == rows[0].ours for row in rows[1:])
    assert rows[1].details["ranks_changed"] == 0  # TF32 is float32 here


def test_a_compiler_that_fails_costs_its_row_alone(
    monkeypatch: pytest.MonkeyPatch, folders: list[str]
) -> None:
    def broken(function: object, dynamic: bool) -> None:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(torch, "compile", broken)
    said: list[str] = []
    subject = load_subject(folders[0], "small", "cpu")
    rows = list(format_rows(subject, decisions(28, 1, 2), ("bf16",), "cpu", said.append))
    assert len(rows) == 6
    assert said[-1] == "bf16 + compiled + recorded does not work here: no compiler"


def test_rows_name_their_subject() -> None:
    row = Subject("lewm", LeWM(TINY), "small", RANDOM).row("x", "MB", 2.0, 4.0, "why", chunk=3)
    assert (row.what, row.ratio, row.note) == ("lewm small, x", 0.5, "why; random weights")
    assert row.as_dict().keys() == KEYS


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"geometry": ("lewn",)}, "Did you mean 'lewm'"),
        ({"size": "smal"}, "Did you mean 'small'"),
    ],
)
def test_bad_requests_are_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(DjepaError, match=message):
        list(bench_geometry(Options(**changes), lambda line: None))  # type: ignore[arg-type]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu_number_formats_are_measured(folders: list[str]) -> None:
    config = Options(
        geometry=tuple(folders), device="cuda", starts=2, candidates=3, many=40, compiled=()
    )
    what = [row.what for row in bench_geometry(config, lambda line: None)]
    assert "lewm own size, bf16 + recorded" in what
