"""Training of the bimanual policy: weights follow from the seed, whatever the clock says."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from djepa.errors import DjepaError
from djepa.models import bimanual_train
from djepa.models.bimanual import HEIGHT, SENTENCES, WIDTH_OF_IMAGE
from djepa.models.bimanual_train import Arrays, PolicyTraining, rate_at, train
from djepa.models.train import OutOfTimeError
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


def trained(kept: Path, minutes: float = math.inf) -> dict[str, torch.Tensor]:
    policy, error = train(TINY, demonstrated(), "cpu", lambda line: None, kept, minutes)
    return {**policy.state_dict(), "error": torch.tensor(error)}


@pytest.fixture
def slow_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(0, 100_000, 45))  # seconds: every look at the clock is that much later
    monkeypatch.setattr(bimanual_train.time, "perf_counter", lambda: next(ticks))


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def test_a_slow_clock_changes_no_weights(tmp_path: Path, slow_clock: None) -> None:
    assert equal(trained(tmp_path / "a"), trained(tmp_path / "b", minutes=10))


def test_minutes_only_interrupt_a_training(tmp_path: Path, slow_clock: None) -> None:
    whole, kept, stops = trained(tmp_path / "whole"), tmp_path / "state", list[str]()
    while True:
        try:
            found = trained(kept, minutes=0.5)  # one update each time
            break
        except OutOfTimeError as stopped:
            stops.append(str(stopped))
    assert stops == ["update 1 of 3", "update 2 of 3"]
    assert equal(whole, found)


def test_a_state_of_other_settings_or_of_something_else_is_left_alone(
    tmp_path: Path, slow_clock: None
) -> None:
    kept = tmp_path / "state"
    with pytest.raises(OutOfTimeError):
        trained(kept, minutes=0.5)
    before = kept.read_bytes()
    other = replace(TINY, seed=1)
    with pytest.raises(DjepaError, match="training of other settings"):
        train(other, demonstrated(), "cpu", lambda line: None, kept)
    assert kept.read_bytes() == before
    kept.write_bytes(b"mine")
    with pytest.raises(DjepaError, match="is damaged"):
        trained(kept)
    assert kept.read_bytes() == b"mine"


def test_the_rate_rises_for_200_updates_and_falls_to_nothing() -> None:
    config = PolicyTraining(steps=1000)
    rates = [rate_at(step, config) for step in range(1, 1001)]
    assert max(rates) == rates[199] == pytest.approx(config.rate * 0.9045, rel=1e-3)
    assert rates == sorted(rates[:200]) + sorted(rates[200:], reverse=True)
    assert rates[-1] == pytest.approx(0, abs=1e-12)
