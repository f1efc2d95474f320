"""The bimanual study, small: bank, resumed collection, decisions without outcomes."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("mujoco")

from djepa.bank.bimanual import collect_bimanual
from djepa.errors import DjepaError
from djepa.evaluate.rows import Row, write_rows
from djepa.files import to_json
from djepa.models.bimanual import SENTENCES, load_policy, words_of
from djepa.models.bimanual_predict import Propose, relation, within
from djepa.rollout.bimanual import BimanualConfig, outcomes, start_of, world_of
from djepa.rollout.engine import LocalEngine
from djepa.studies.bimanual import BIMANUAL, _evidence
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
    assert evidence.names == ("native", "visual", "scene", "proprioceptive", "temporal")
    other = replace(config, split="other")
    assert not np.array_equal(start_of(other, 1), known.state[1])


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
