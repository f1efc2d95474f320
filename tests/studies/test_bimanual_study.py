"""The bimanual study, small: bank, resumed collection, decisions without outcomes."""

from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

pytest.importorskip("mujoco")

from djepa.artefacts.folder import encode
from djepa.bank.bimanual import BimanualBank, collect_bimanual
from djepa.errors import DjepaError
from djepa.evaluate.rows import Row, write_rows
from djepa.files import to_json
from djepa.models.bimanual import SENTENCES, load_policy, words_of
from djepa.models.bimanual_predict import Propose, relation, within
from djepa.rollout.bimanual import BimanualConfig, outcomes, start_of, world_of
from djepa.rollout.engine import LocalEngine
from djepa.studies.bimanual import (
    BIMANUAL,
    COLUMNS,
    DENSE,
    PREDICTIVE,
    _evidence,
    simple_evidence,
)
from djepa.studies.measures.bimanual import FILM, PICTURES, VIEWS
from djepa.studies.measures.bimanual_views import crop, executed, film, moments, png_bytes
from djepa.studies.results import load_results, success_tables
from djepa.worlds.bimanual.ik import to_joints, tool_poses
from djepa.worlds.bimanual.scene import TASKS


@pytest.fixture(scope="module")
def config() -> BimanualConfig:
    world = world_of("handover block")
    try:
        world.view(world.snapshot())
    except DjepaError as error:
        pytest.skip(str(error))
    return BimanualConfig("test", "handover block", 2, block=1, policy=load_policy().hash)


def test_a_bank_is_the_same_whoever_makes_it_and_holds_what_execution_shows(
    tmp_path: Path, config: BimanualConfig
) -> None:
    propose = Propose("bimanual")
    bank = collect_bimanual(tmp_path / "one", config, LocalEngine(1), propose)
    again = collect_bimanual(tmp_path / "one", config, LocalEngine(1), propose)
    assert again.hash == bank.hash
    known = bank.known
    assert known.commands.shape == (2, 17, 40, 14)
    assert np.array_equal(known.state[1], start_of(config, 1))
    fresh = outcomes(world_of(config.task), known.state[1], known.commands[1])
    assert all(np.array_equal(fresh[name], bank.outcome[name][1]) for name in fresh)
    assert ((bank.outcome["cost"] < 1) == bank.outcome["success"]).all()
    assert ((bank.outcome["first"] > 0) == bank.outcome["success"]).all()
    assert (known.apart[:, 0] == 0).all()  # ID 0 is the native chunk
    evidence = _evidence(bank, "plain")
    assert (evidence.cost("native").argmin(1) == 0).all()
    assert evidence.names == (*COLUMNS, PREDICTIVE)
    assert (evidence.cost(PREDICTIVE) > 0).all()
    assert evidence.directed == DENSE
    (tmp_path / "one-predicted.safetensors").write_bytes(b"damaged")
    assert torch.equal(_evidence(bank, "plain").costs, evidence.costs)
    assert simple_evidence(bank, "plain").names == tuple(COLUMNS)
    assert not bank.outcome["error"].any()
    assert known.missed[:, 0].tolist() == [0, 0]
    assert (known.missed[:, 1:] > 0).all()
    other = replace(config, split="other")
    assert not np.array_equal(start_of(other, 1), known.state[1])


class Breaking:
    """A world in which whatever begins with a negative command comes apart."""

    def goal(self, state: np.ndarray) -> np.ndarray:
        return np.array([3.0])

    def execute(self, state: np.ndarray, commands: np.ndarray) -> np.ndarray:
        if (commands[:, 0] < 0).any():
            raise DjepaError("The scene came apart.")
        return np.concatenate([np.tile(state, (len(commands), 1, 1)), commands[..., :1]], 1)

    def judge(self, goal: np.ndarray, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        cost = np.abs(states - goal)[..., 0]
        return cost < 1, cost


def test_a_candidate_that_cannot_be_executed_has_failed_and_ends_no_other() -> None:
    commands = np.zeros((3, 4, 14), np.float32)
    commands[:, :, 0] = [[0, 1, 2, 3], [-1, 3, 3, 3], [0, 0, 0, 0]]
    found = outcomes(Breaking(), np.zeros(1), commands)  # type: ignore[arg-type]
    assert found["error"].tolist() == [False, True, False]
    assert found["success"].tolist() == [True, False, False]
    assert found["cost"].tolist() == [0, 3, 3]  # that of the start
    assert found["first"].tolist() == [4, 0, 0]
    assert found["length"].tolist() == [4, 4, 4]


def test_a_bank_of_the_first_version_is_refused_by_name(
    tmp_path: Path, config: BimanualConfig
) -> None:
    bank = collect_bimanual(
        tmp_path / "old", replace(config, starts=1), LocalEngine(1), Propose("bimanual")
    )
    manifest = bank.path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"version": 2', '"version": 1'))
    with pytest.raises(DjepaError, match="djepa-bimanual 1; this version reads djepa-bimanual 2"):
        BimanualBank(bank.path)


def test_the_policy_speaks_in_joints_and_in_poses(config: BimanualConfig) -> None:
    world, state = world_of(config.task), start_of(config, 0)
    known = config.task, world.view(state, "head", 60, 80), state[-14:]
    policy = load_policy()
    chunk, poses = within(policy.act(*known)[0]), policy.poses(world, *known)
    assert poses.shape == (40, 16)
    reached = tool_poses(world, to_joints(world, state[-14:], poses)[0])
    apart = (reached - tool_poses(world, chunk)).reshape(40, 2, 8)[..., [0, 1, 2, 7]]
    assert np.median(np.abs(apart)) < 1e-3  # m, and openings
    ends = [world.judge(world.goal(state), world.execute(state, x[None])) for x in (chunk, poses)]
    assert np.array_equal(ends[0][0].any(1), ends[1][0].any(1))


def test_the_moment_of_grasping_is_the_nearest_with_both_grippers_closed() -> None:
    poses = np.zeros((2, 10, 2, 8))
    poses[..., 0] = np.abs(np.arange(10) - 3)[:, None]  # nearest at step 3
    poses[0, :, :, 7] = 1.0
    poses[0, 6:, :, 7] = 0.0  # the first path closes at step 6, the second is always closed
    q, far = relation(poses.reshape(2, 10, 16), np.zeros(12))
    assert q.tolist() == [0.6, 0.3]
    assert far.tolist() == [3.0, 0.0]
    poses[0, :, :, 7] = 1.0
    assert relation(poses.reshape(2, 10, 16), np.zeros(12))[0][0] == 0.3


def test_the_paper_s_method_stands_beside_ours_that_preserves_native_chunks(tmp_path: Path) -> None:
    """Its D-JEPA has preservation; our published operator has none, so no figure is its own."""
    methods = ("native policy", "without preservation", "relational", "D-JEPA", "oracle")
    for task in TASKS:
        rest = (0, "0" * 16, True, 1, True, 0.5, False, "bimanual.v1", "0" * 12, "")
        rows = [Row("bimanual", task, method, *rest) for method in methods]
        (tmp_path / "rows").mkdir(exist_ok=True)
        write_rows(tmp_path / "rows" / f"{task}.csv.gz", rows)
    (tmp_path / "study.json").write_text(to_json({"study": "bimanual", "preset": "paper"}))
    found = success_tables(load_results(tmp_path))[0]
    at = found.columns.index("all, paper")
    assert {line[0]: line[at] for line in found.rows} == {
        "native policy": "61.72",
        "D-JEPA, without preservation": "71.48",
        "D-JEPA, as published": "",
        "D-JEPA": "76.76",
        "best candidate": "83.40",
    }


def test_unknown_words_are_named_and_every_task_has_sentences() -> None:
    with pytest.raises(DjepaError, match="juggle"):
        words_of("juggle the block")
    assert set(SENTENCES) == {case.name for case in BIMANUAL._confirmation()}


def test_pictures_say_whose_they_are_and_stop_where_the_sequence_does(
    tmp_path: Path, config: BimanualConfig
) -> None:
    bank = collect_bimanual(tmp_path / "bank", config, LocalEngine(1), Propose("bimanual"))
    choices = executed(bank, 1, {"native policy": 0, "D-JEPA": 3})
    for one in choices:
        stop = int(bank.outcome["length"][1, one.candidate])
        assert one.stop == stop == moments(one.stop)[-1] == one.until(40)
        assert one.said.startswith("success" if bank.outcome["success"][1, one.candidate] else "st")
    sizes = [draw(bank, choices).size for draw in PICTURES.values()]
    assert sizes[0] == sizes[2]
    assert sizes[1][0] > sizes[1][1]
    with Image.open(BytesIO(film(bank, choices))) as shown:
        assert shown.n_frames > 1
    assert moments(3) == [0, 1, 2, 3]
    stored = {"start": 1, "chosen": {"D-JEPA": 3}, "ended": {"D-JEPA": "success, 7.2 s"}}
    measured = tmp_path / "measures/views/some.safetensors"
    measured.parent.mkdir(parents=True)
    drawn = {name: png_bytes(draw(bank, choices[:1])) for name, draw in PICTURES.items()}
    drawn[FILM] = film(bank, choices[:1])
    measured.write_bytes(encode({n: np.frombuffer(data, np.uint8) for n, data in drawn.items()}))
    results = SimpleNamespace(folder=tmp_path, measured=lambda name: {"some": stored})
    stems = [stem for stem, _ in VIEWS.figures(results, tmp_path)]
    assert stems == ["grasp-some", "sequence-some", "overhead-some", "film-some"]
    assert (tmp_path / "film-some.gif").read_bytes() == drawn[FILM]
    assert (tmp_path / "grasp-some.png").read_bytes() == drawn["grasp"]
    assert "image/png" in (tmp_path / "sequence-some.svg").read_text()
    assert (tmp_path / "overhead-some.csv").read_text().endswith('D-JEPA,3,"success, 7.2 s"\n')


def test_a_crop_holds_all_colours_of_the_task_and_stays_inside() -> None:
    pictures = np.full((2, 480, 640, 3), 180, np.uint8)
    assert crop("handover block", pictures) == (0, 0, 640, 480)
    pictures[0, 100:110, 600:640] = 220, 20, 20  # the block, at the edge
    pictures[1, 160:170, 560:600] = 220, 20, 20
    left, top, right, bottom = crop("handover block", pictures)
    assert (right, top) == (640, 34)
    assert bottom - top == 200
    assert left == 640 - 266


@pytest.mark.parametrize("harmed", [0, 60])
def test_few_successes_of_the_native_chunk_may_be_lost(
    harmed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 200 starts ours solves all but `harmed`; it names the last candidate everywhere."""
    from djepa.align.methods import Choice, Population
    from djepa.align.outcomes import Outcomes
    from djepa.evidence.evidence import Evidence
    from djepa.studies import bimanual_fits

    ids = np.tile([5, 2, 9], (200, 1))  # the native chunk has the smallest ID
    success = np.tile([False, True, True], (200, 1))
    success[:harmed, 2] = False
    evidence = Evidence.from_arrays(
        start_ids=[f"{i:064x}" for i in range(200)],
        costs={"native": np.ones((200, 3))},
        candidate_ids=ids,
    )
    score = torch.tensor([0.3, 0.2, 0.0], dtype=torch.float64).expand(200, 3)
    known = Population(evidence, Outcomes.of(evidence, success))
    study = SimpleNamespace(
        suite=lambda group: SimpleNamespace(alignments={"without preservation": None}),
        cases=lambda role, group: [role],
        population=lambda role, case: known,
    )
    ours = Choice(torch.full((200,), 2), score)
    monkeypatch.setattr(bimanual_fits, "aligned", lambda alignment: lambda e: ours)
    found = bimanual_fits._certify(study, "all")
    kept, refined = bimanual_fits._kept_and_ours(study, "all", evidence)
    chosen = found.gate.choose(kept, refined, evidence.ids)
    assert found.changed == (0 if harmed else 200)
    assert (evidence.ids.gather(1, chosen[:, None]) == (2 if harmed else 9)).all()
