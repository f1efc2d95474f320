"""The adapter for NAVSIM, on a module with the same attributes; on the devkit where it is."""

import os
import re
import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from tools.docs.fill import ROOT
from torch import Tensor, nn

from djepa.align import driving_fit
from djepa.align.driving import DrivingEvidence
from djepa.align.driving_fit import ANCHOR, fit_anchor
from djepa.errors import DjepaError
from djepa.interop.navsim import PARTS, choose, chooser, export, exported, judged

B, K = 2, 32


class Scorer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pred_score = nn.Sequential(nn.Linear(256, 16), nn.ReLU(), nn.Linear(16, 6))


class Model(nn.Module):
    """Attributes and output of Drive-JEPA's, with small layers."""

    def __init__(self) -> None:
        super().__init__()
        self.scorer, self.lift = Scorer(), nn.Linear(3, 256)

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        proposals = features["proposals"]
        logits = self.scorer.pred_score(self.lift(proposals).amax(-2))
        return {
            "proposals": proposals,
            "pred_logit": logits,
            "pdm_score": logits[..., -1].sigmoid(),
        }


class Last:
    """A readout that takes the last proposal."""

    def decide(self, evidence: DrivingEvidence) -> Tensor:
        return torch.full((len(evidence),), K - 1)


def features() -> dict[str, Tensor]:
    return {"proposals": torch.randn(B, K, 8, 3, generator=torch.Generator().manual_seed(0))}


def test_the_hook_exports_what_the_scorer_saw_and_said() -> None:
    model = Model()
    found = export(model, features(), ["a", "b"])
    with torch.no_grad():
        queries = model.lift(features()["proposals"]).amax(-2)
        assert torch.equal(found.queries, queries)
        assert torch.equal(found.logits, model.scorer.pred_score(queries))
    assert torch.equal(found.score, found.logits[..., -1].sigmoid().double())
    assert found.tokens(auxiliary=True).shape == (B, K, 288)
    assert found.tokens(auxiliary=False).shape == (B, K, 282)
    assert not model.scorer.pred_score._forward_hooks


def test_a_model_without_a_scorer_is_refused() -> None:
    with pytest.raises(DjepaError, match="pred_score"), exported(nn.Linear(1, 1)):
        pass
    with exported(Model()) as nothing, pytest.raises(DjepaError, match="not called"):
        nothing.evidence({}, ())


class Builder:
    def compute_features(self, agent_input: int) -> dict[str, Tensor]:
        return {"proposals": features()["proposals"][agent_input]}


class Agent:
    def __init__(self) -> None:
        self.model = Model()

    def get_feature_builders(self) -> list[Builder]:
        return [Builder()]

    def compute_trajectory(self, agent_input: int) -> str:
        return "its own"


def test_an_agent_drives_what_the_readout_chooses() -> None:
    driver = chooser(Agent, lambda poses: poses)()
    assert driver.compute_trajectory(0) == "its own"
    driver.readout = Last()
    np.testing.assert_array_equal(driver.compute_trajectory(1), features()["proposals"][1, -1])
    np.testing.assert_array_equal(
        choose(Model(), features(), Last()), features()["proposals"][:, -1].numpy()
    )


def test_proposals_are_judged_one_at_a_time() -> None:
    seen: list[tuple[int, ...]] = []

    @dataclass
    class Result:
        score: float

        def __getattr__(self, name: str) -> float:
            return 1.0

    def score(poses: Any) -> Result:
        seen.append(poses.shape)
        return Result(float(poses[0, 0]))

    poses = features()["proposals"][0].numpy()
    found = judged(poses, score)
    assert seen == [(8, 3)] * K
    np.testing.assert_allclose(found["pdms"], poses[:, 0, 0])
    assert set(found) == set(PARTS)


def test_the_lines_of_the_page_run(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs/driving.md").read_text()
    found = re.search(r"^## NAVSIM\n.*?```python\n(.*?)```", page, re.DOTALL | re.MULTILINE)
    assert found

    @dataclass
    class Result:
        score: float

        def __getattr__(self, name: str) -> float:
            return 1.0

    few = replace(ANCHOR, epochs=8)
    monkeypatch.setattr(driving_fit, "fit_anchor", partial(fit_anchor, recipe=few))
    given = {
        "model": Model(),
        "features": {"proposals": torch.randn(6, K, 8, 3)},
        "logs": list("aabbcc"),
        "scores": [lambda poses: Result(float(poses[0, 0] > 0))] * 6,
        "Agent": Agent,
        "Trajectory": lambda poses: poses,
        "agent_input": 0,
    }
    exec(found[1], given)
    assert np.shape(given["trajectory"]) == (8, 3)
    assert len(given["evidence"]) == 6


@pytest.mark.skipif(
    "NAVSIM_DEVKIT_ROOT" not in os.environ, reason="NAVSIM_DEVKIT_ROOT names no devkit"
)
def test_the_devkit_has_what_the_adapter_needs() -> None:
    sys.path.insert(0, os.environ["NAVSIM_DEVKIT_ROOT"])
    from dataclasses import fields

    from navsim.agents.abstract_agent import AbstractAgent
    from navsim.common.dataclasses import PDMResults, Trajectory
    from navsim.evaluate.pdm_score import pdm_score

    assert {field.name for field in fields(PDMResults)} >= set(PARTS.values())
    assert callable(pdm_score)
    assert issubclass(chooser(AbstractAgent, Trajectory), AbstractAgent)
    assert Trajectory(np.zeros((8, 3), np.float32)).poses.shape == (8, 3)
