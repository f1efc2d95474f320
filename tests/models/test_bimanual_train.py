"""Training of the bimanual policy: weights follow from the seed, whatever the clock says."""

import numpy as np
import pytest
import torch

from djepa.models import bimanual_train
from djepa.models.bimanual import HEIGHT, SENTENCES, WIDTH_OF_IMAGE
from djepa.models.bimanual_train import Arrays, PolicyTraining, rate_at, train
from djepa.worlds.bimanual.experts import HORIZON
from djepa.worlds.bimanual.world import COMMAND

TINY = PolicyTraining(steps=3, batch=2)


def demonstrated(count: int = 10) -> dict[str, Arrays]:
    rng = np.random.default_rng(0)
    return {
        task: {
            "state": rng.normal(size=(count, 20)),
            "image": rng.integers(0, 256, (count, HEIGHT, WIDTH_OF_IMAGE, 3), np.uint8),
            "commands": rng.normal(size=(count, HORIZON, COMMAND)),
        }
        for task in SENTENCES
    }


def trained(minutes: float = 0.0) -> tuple[dict[str, torch.Tensor], int]:
    policy, updates, error = train(TINY, demonstrated(), "cpu", lambda line: None, minutes)
    assert np.isfinite(error)
    return policy.state_dict(), updates


def test_a_slow_clock_changes_no_weights_and_minutes_are_only_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quick, updates = trained()
    ticks = iter(range(0, 10_000, 45))  # seconds: every look at the clock is that much later
    monkeypatch.setattr(bimanual_train.time, "perf_counter", lambda: next(ticks))
    slow, same = trained(minutes=10)
    assert updates == same == TINY.steps
    assert all(torch.equal(quick[name], slow[name]) for name in quick)
    _, fewer = trained(minutes=1)
    assert fewer == 2


def test_the_rate_rises_for_200_updates_and_falls_to_nothing() -> None:
    config = PolicyTraining(steps=1000)
    rates = [rate_at(step, config) for step in range(1, 1001)]
    assert max(rates) == rates[199] == pytest.approx(config.rate * 0.9045, rel=1e-3)
    assert rates == sorted(rates[:200]) + sorted(rates[200:], reverse=True)
    assert rates[-1] == pytest.approx(0, abs=1e-12)
