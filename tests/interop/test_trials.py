"""Rows of episodes that another library ran, and a planner among the chunks of a policy."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from interop_kit import Kit
from tools.trials import Trial

from djepa.errors import DjepaError
from djepa.interop.chunks import Chooser, choosing
from djepa.interop.planner_score import FELT, GOAL, NOW, PlannerScore

METHODS = ("theirs", "ours")
N, K, T = 2, 6, 10


def test_a_trial_is_kept_row_by_row_and_continued(tmp_path: Path) -> None:
    file, about = tmp_path / "t.json", {"methods": METHODS, "seed": 0}
    trial = Trial.open(file, about)
    for episode, method in list(trial.missing(5, METHODS))[:-1]:
        trial.add(episode, method, method == "ours" and episode < 3, 7)
    again = Trial.open(file, about)
    assert again.episodes == [0, 1, 2, 3]  # the last one lacks a method
    assert list(again.missing(5, METHODS)) == [(4, "ours")]
    pair = again.pair("ours", "theirs")
    assert (pair.gains, pair.losses, pair.starts, pair.p) == (3, 0, 4, 0.25)
    assert again.verdicts() == []  # of undeclared methods
    assert "| ours | 3 of 4 | 75.0 (30.1-95.4) | +75.0" in again.table("theirs")
    with pytest.raises(DjepaError, match="other settings"):
        Trial.open(file, {**about, "seed": 1})


def test_declared_comparisons_are_judged_together(tmp_path: Path) -> None:
    solved = {"first chunk": 0, "model's cost": 4, "D-JEPA": 6}
    trial = Trial.open(tmp_path / "t.json", {"methods": tuple(solved)})
    for episode, method in list(trial.missing(8, tuple(solved))):
        trial.add(episode, method, episode < solved[method], 7)
    found = {v.theirs: v for v in trial.verdicts()}
    assert set(found) == {"first chunk", "model's cost"}
    # McNemar's p: 2 / 2**6 and 2 / 2**2; Holm doubles the smaller one.
    assert [v.adjusted for v in found.values()] == [0.0625, 0.5]
    assert {v.word for v in found.values()} == {"no significant difference"}
    shown = trial.table("first chunk")
    assert "| model's own cost, chunks | 4 of 8 |" in shown


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{}", "missing field `about`"),
        ('{"about": {}, "rows": [{"episode": 0}]}', "missing field `method`"),
        ('{"about": {}, "rows": [], "more": 1}', "unknown field `more`"),
        ('{"about": {}, "rows": [{"episode": 0, "method": "a", "success": 1}]}', "Expected `bool`"),
        ('{"about": {"seed": NaN}, "rows": []}', "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("", "is not JSON"),
    ],
)
def test_a_file_that_is_no_trial_is_refused_by_name(
    text: str, complaint: str, tmp_path: Path
) -> None:
    (file := tmp_path / "t.json").write_text(text)
    with pytest.raises(DjepaError, match=complaint) as error:
        Trial.open(file)
    assert str(file) in str(error.value)


def test_an_episode_stands_once_for_a_method(tmp_path: Path) -> None:
    row = '{"episode": 0, "method": "a", "success": true}'
    (file := tmp_path / "t.json").write_text(f'{{"about": {{}}, "rows": [{row}, {row}]}}')
    with pytest.raises(DjepaError, match="stands twice"):
        Trial.open(file)


class Policy:
    """Chunks of T controls drawn at random, executed one by one."""

    def __init__(self, normalised: str = "IDENTITY") -> None:
        self.config = SimpleNamespace(normalization_mapping={"ACTION": mode(normalised)})
        self.queue: list[torch.Tensor] = []

    def reset(self) -> None:
        self.queue = []

    def predict_action_chunk(self, batch: Any) -> torch.Tensor:
        return torch.rand(N, T, 2) * 2 - 1

    def select_action(self, batch: Any) -> torch.Tensor:
        if not self.queue:
            self.queue = list(self.predict_action_chunk(batch).transpose(0, 1))
        return self.queue.pop(0)


def mode(name: str) -> Any:
    return SimpleNamespace(value=name)


def batch_of(kit: Kit, frame: int = -1) -> dict[str, Any]:
    """As LeRobot shows what is there: cameras from 0 to 1, channels first."""
    g = kit.given
    cameras = {NOW: g.frames[:N, frame], GOAL: g.goal[:N]}
    seen: dict[str, Any] = {n: x.permute(0, 3, 1, 2).float() / 255 for n, x in cameras.items()}
    return {**seen, FELT: {"now": g.proprio[:N, frame], "goal": g.proprio[:N, -1]}}


def test_a_planner_chooses_as_it_would_alone(kit: Kit) -> None:
    scorer = PlannerScore(kit.planner)
    chooser = Chooser("planner", K, planner=scorer)
    policy, drawn = Policy(), list[torch.Tensor]()
    inner = policy.predict_action_chunk
    policy.predict_action_chunk = lambda batch: (drawn.append(inner(batch)), drawn[-1])[1]  # type: ignore[method-assign]
    choosing(policy, chooser)
    policy.reset()
    actions = [policy.select_action(batch_of(kit, 0)) for _ in range(5)]
    actions += [policy.select_action(batch_of(kit, 1)) for _ in range(5)]
    policy.select_action(batch_of(kit, 2))  # the second chunk: three frames, ten controls
    chunks = torch.stack(drawn[K:], 1)
    g, ids = kit.given, torch.arange(K).expand(N, -1).contiguous()
    proprio = torch.cat([g.proprio[:N, :3], g.proprio[:N, -1:]], 1).float()
    history = torch.stack(actions, 1)
    own = kit.planner.plan(g.frames[:N], history, g.goal[:N], chunks, ids, proprio, lift=False)
    last = chooser.records[-N:]
    assert [one.choice for one in last] == own.choice.tolist()
    assert [list(one.order) for one in last] == own.order.tolist()
    assert {s.name for s in last[0].scorers} == {"lewm", "tdjepa", "base", "aligned"}
    cost = scorer.native(batch_of(kit, 2), chunks)[kit.planner.lifted]
    assert cost.shape == (N, K)
    policy.reset()
    assert not scorer._frames


def test_what_a_planner_cannot_take_is_named(kit: Kit) -> None:
    scorer = PlannerScore(kit.planner)
    with pytest.raises(DjepaError, match="needs planner=PlannerScore"):
        Chooser("planner", K)
    with pytest.raises(DjepaError, match="ACTION = IDENTITY"):
        choosing(Policy("MIN_MAX"), Chooser("planner", K, planner=scorer))
    with pytest.raises(DjepaError, match="seen no frame"):
        scorer.native(batch_of(kit), torch.zeros(N, K, T, 2))
    with pytest.raises(DjepaError, match="needs the camera"):
        scorer.see({})
    with pytest.raises(DjepaError, match="was normalised"):
        scorer.see({**batch_of(kit), NOW: batch_of(kit)[NOW] - 3})
    scorer.see(batch_of(kit))
    with pytest.raises(DjepaError, match="chunks of 5 controls, not 4"):
        scorer.native(batch_of(kit), torch.zeros(N, K, 4, 2))
    net: Any = kit.planner.geometries["lewm"]
    net.proprio_weight = 0.1
    try:
        with pytest.raises(DjepaError, match="lewm needs what is felt"):
            scorer.see({name: x for name, x in batch_of(kit).items() if name != FELT})
    finally:
        del net.proprio_weight
