"""Training is by steps: the same weights however often it is cut off, and what recipes may vary."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

from djepa.cli.train import Train
from djepa.errors import DjepaError
from djepa.models import episodes, jepawm, train
from djepa.models.kinds import build
from djepa.models.lewm import SIZES
from djepa.models.nets import Dropout, draw_from
from djepa.models.objectives import draw
from djepa.models.recipes import OBJECTIVES, RECIPES, Stage, TrainConfig, stages
from djepa.models.step import Step
from djepa.models.train import Trainer
from djepa.models.weights import read_card
from djepa.rollout.engine import LocalEngine
from djepa.worlds.push import PushWorld
from tiny import TINY, TINY_PATCHES, simulate


def train_in_pieces(
    config: TrainConfig, out: Path, data: Path, stop: Callable[[str, int], None]
) -> dict[str, torch.Tensor]:
    """A training whose state is saved after every third step; `stop` may end it after any."""
    write = Trainer._write_state

    class Stoppable(Trainer):
        def _write_state(self, phase: str, step: Step[Any], i: int) -> None:
            if i % 3 == 0:
                write(self, phase, step, i)
            stop(phase, i)

    trainer = Stoppable(config, out, data)
    trained = trainer.run()
    return trained.state_dict()


PIECE = """
import os, signal, sys, torch
from pathlib import Path
sys.path[:0] = {paths}
import test_train_steps
from test_train_steps import *
def stop(phase, i):
    if (phase, i) == {cut}:
        os.kill(os.getpid(), signal.SIGKILL)
test_train_steps.shrink_everything(lambda owner, name, value: setattr(owner, name, value))
torch.set_num_threads(1)
config = TrainConfig("lewm", **test_train_steps.PIECES)
torch.save(train_in_pieces(config, Path("{out}"), Path("{data}"), stop), "{out}/trained.pt")
"""
PIECES: dict[str, Any] = {
    "steps": 20,
    "episodes": 96,
    "shrink": 64,
    "development": 8,
    "last": 2,
    "late": 0.3,
    "noise": 0.1,
    "perturbed": 0.3,
}


def shrink_everything(change: Callable[[Any, str, Any], None]) -> None:
    """Few episodes, taken up and encoded bit by bit; tiny nets."""
    change(episodes, "SHARD", 16)
    change(train, "FIRST_SHARDS", 2)
    change(train, "EXTEND_EVERY", 3)
    change(train, "SAVE_EVERY", 0.0)
    for sizes, tiny_one in ((SIZES, TINY), (jepawm.SIZES, TINY_PATCHES)):
        sizes["small"] = tiny_one


def simulate_all(where: Path) -> Path:
    simulate(episodes.plan_shards(where, 96, 0, ("T",), perturbed=0.3))
    return where


def test_a_killed_training_ends_in_the_same_weights(tiny: Path) -> None:
    """Real processes: one is killed in the first phase, the next in the second, one goes on."""
    data, paths = simulate_all(tiny / "data"), [str(Path(__file__).parents[i]) for i in (0, 1)]

    def start(out: str, cut: tuple[str, int] | None) -> "subprocess.Popen[bytes]":
        code = PIECE.format(paths=paths, cut=cut, out=tiny / out, data=data)
        return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)

    whole = start("whole", None)
    for cut in (("joint", 5), ("predictor", 10)):
        assert start("cut", cut).wait() == -signal.SIGKILL
        assert (tiny / "cut/resume.safetensors").exists()
    assert start("cut", None).wait() == 0
    assert whole.wait() == 0
    one, other = (torch.load(tiny / out / "trained.pt") for out in ("whole", "cut"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


class CutError(Exception):
    """Stands for a lost machine."""


def test_a_patch_geometry_goes_on_too(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink_everything(monkeypatch.setattr)
    data, config = simulate_all(tiny / "data"), TrainConfig("jepawm", **PIECES, curriculum=0.5)

    def never(phase: str, i: int) -> None:
        pass

    def stop_at(cut: tuple[str, int]) -> Callable[[str, int], None]:
        def stop(phase: str, i: int) -> None:
            if (phase, i) == cut:
                raise CutError

        return stop

    whole = train_in_pieces(config, tiny / "whole", data, never)
    for cut in (("distil", 5), ("predictor", 7)):
        with pytest.raises(CutError):
            train_in_pieces(config, tiny / "cut", data, stop_at(cut))
    with pytest.raises(DjepaError, match="unfinished run of other settings"):
        Trainer(TrainConfig("jepawm", steps=99), tiny / "cut", data)
    before = (tiny / "cut/log.jsonl").read_text().count("\n")
    resumed = train_in_pieces(config, tiny / "cut", data, never)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    log = [json.loads(x) for x in (tiny / "cut/log.jsonl").read_text().splitlines()[before:]]
    assert (log[0]["phase"], log[0]["step"]) == ("predictor", 6)
    assert log[0]["episodes"] == 96


def test_other_episodes_come_in_step_by_step(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many a step may draw from follows from the step, however many are there."""
    shrink_everything(monkeypatch.setattr)
    config = TrainConfig("lewm", **PIECES)
    trainer = Trainer(config, tiny / "out", simulate_all(tiny / "data"))
    seen = [trainer._visible(i) for i in range(21)]
    assert seen[0] == 32
    assert seen == sorted(seen)
    assert seen[10] == seen[20] == 96
    trainer.episodes.take(48)
    assert trainer.episodes.ready == 48


def test_episodes_are_simulated_as_they_are_asked_for(tiny: Path) -> None:
    where, cpu = tiny / "new", torch.device("cpu")
    shards = episodes.plan_shards(where, 48, 0, ("T",))
    coming = episodes.Episodes(shards, cpu, simulation=episodes.simulating(shards, LocalEngine(1)))
    assert not where.exists()
    coming.take(16)
    assert [shard.path.exists() for shard in shards] == [True, False, False]
    coming.take(48)
    there = episodes.Episodes(shards, cpu, patience=0.0)
    there.take(48)
    assert coming.states.equal(there.states)
    for name in ("episodes-00000.safetensors", "episodes-00001.safetensors"):
        assert (where / name).read_bytes() == (tiny / "episodes" / name).read_bytes()
    shards[2].path.unlink()
    for simulation in ((), episodes.simulating(shards[:2], LocalEngine(1))):
        lost = episodes.Episodes(shards, cpu, 0.0, simulation)
        with pytest.raises(DjepaError, match="Who simulates"):
            lost.take(48)


def test_the_cap_on_minutes_stops_and_the_same_command_goes_on(
    tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {
        "steps": 8,
        "episodes": 32,
        "shrink": 64,
        "device": "cpu",
        "development": 8,
        "held_out": 8,
        "out": tiny / "out",
        "data": tiny / "episodes",
    }
    assert Train(minutes=1e-9, **given).run() == 0
    assert "Stopped at step 1 of 3 of the joint phase." in capsys.readouterr().out
    assert not (tiny / "out/manifest.json").exists()
    read = Trainer._read_state

    def an_hour_later(self: Trainer) -> dict[str, Any] | None:
        state = read(self)
        assert state is not None
        return state | {"seconds": state["seconds"] + 3600}

    monkeypatch.setattr(Trainer, "_read_state", an_hour_later)
    Train(**given).run()
    recipe = read_card(tiny / "out")["recipe"]
    assert recipe["steps"] == 8
    assert 60 <= recipe["minutes"] < 70  # both runs count
    assert not (tiny / "out/best").exists()
    with pytest.raises(DjepaError, match="minutes must be above 0"):
        Train(minutes=0.0, out=tiny / "another").run()


@pytest.mark.parametrize("geometry", ["lewm", "tdjepa", "jepawm", "dinowm"])
def test_long_recipes_give_every_geometry_an_encoder_of_its_own(geometry: str) -> None:
    long = {
        name: Train(geometry=name, recipe="long", device="cpu")._config()
        for name in RECIPES["long"]
    }
    assert len({config.seed for config in long.values()}) == 4
    assert not any(config.encoder for config in long.values())
    assert Train(geometry=geometry, recipe="long", steps=7, device="cpu")._config().steps == 7
    assert Train(geometry=geometry, device="cpu")._config() == TrainConfig(geometry)


def test_stages_of_the_predictor_phase() -> None:
    plain = TrainConfig("tdjepa")
    assert stages(plain, 100) == [Stage(0, 8)]
    config = replace(plain, curriculum=0.4, late=0.2)
    assert [(part.begin, part.frames) for part in stages(config, 100)] == [
        (0, 4), (10, 5), (20, 6), (30, 7), (40, 8), (80, 8),
    ]  # fmt: skip
    late = stages(TrainConfig("lewm", late=0.25), 100)
    assert late == [Stage(0, 4), Stage(75, 8, open_loop=True)]


def test_perturbed_episodes_are_executed_again(tiny: Path) -> None:
    shards = episodes.plan_shards(tiny / "perturbed", 64, 0, ("T",), perturbed=0.25)
    assert [shard.perturbed for shard in shards] == [False, False, False, True]
    explored = replace(shards[3], folder=tiny / "episodes", perturbed=False)
    simulate([shards[3], explored])
    one, other = (load_file(shard.path) for shard in (shards[3], explored))
    assert np.array_equal(one["states"][:, 0], other["states"][:, 0])
    assert not np.array_equal(one["controls"], other["controls"])
    assert (np.abs(one["controls"]) <= 1).all()
    again = PushWorld().execute(one["states"][2, 0].astype(np.float64), one["controls"][2:3])
    assert np.allclose(again[0], one["states"][2], atol=1e-3)
    with pytest.raises(DjepaError, match=r"holds .*'perturbed': True"):
        replace(shards[3], perturbed=False).read()


def test_noise_reaches_what_the_predictor_reads_and_not_its_targets() -> None:
    random = torch.Generator().manual_seed(0)
    for net in (build("tdjepa", random), build("jepawm", random), build("dinowm", random)):
        latents = torch.randn(2, 6, net.latent, generator=random)
        blocks = torch.randn(2, 5, 10, generator=random)
        quiet, loud = (draw(2, 6, net.latent, random, noise=noise) for noise in (0.0, 0.5))
        assert torch.equal(quiet.disturb(latents), latents)
        loss = OBJECTIVES[net.name].loss
        assert loss(net, latents, blocks, quiet, False) != loss(net, latents, blocks, loud, False)
        exact = net.unroll(latents[:, :3], blocks)
        noisy = net.unroll(latents[:, :3], blocks, loud.noise[:, 3:])
        assert torch.equal(noisy[:, 0], exact[:, 0])  # only what is fed back is disturbed
        assert not torch.equal(noisy[:, 1], exact[:, 1])


def test_the_mean_of_snapshots_is_their_mean() -> None:
    def fresh() -> tuple[nn.Linear, Step[nn.Linear]]:
        net = nn.Linear(2, 1, bias=False)
        return net, Step(lambda x: net(x).square().mean(), net, 0.1, 0.0)

    net, step = fresh()
    assert step.mean() is None
    seen = []
    for i in range(3):
        step((torch.ones(1, 2),), 0.5)
        step.snapshot()
        seen.append(net.weight.detach().clone())
        if i == 1:  # a resumed step has the same mean
            stored = step.state()
            net, step = fresh()
            step.restore(stored)
    mean = step.mean()
    assert mean is not None
    assert torch.allclose(mean.weight, torch.stack(seen).mean(0))


def test_dropout_draws_from_its_generator() -> None:
    drop = Dropout(0.5)
    assert torch.equal(Dropout(0.0)(torch.ones(3)), torch.ones(3))
    with pytest.raises(DjepaError, match="needs a generator"):
        drop(torch.ones(3))
    seen = []
    for seed in (1, 1, 2):
        assert draw_from(drop, torch.Generator().manual_seed(seed))
        seen.append(drop(torch.ones(1000)))
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], seen[2])
    assert set(seen[0].tolist()) == {0.0, 2.0}
    assert torch.equal(drop.eval()(torch.ones(3)), torch.ones(3))


def test_fresh_weights_follow_from_the_generator() -> None:
    def weights(seed: int) -> dict[str, torch.Tensor]:
        torch.rand(1)  # whatever the global stream is at
        return build("lewm", torch.Generator().manual_seed(seed)).state_dict()

    one, same, other = weights(0), weights(0), weights(1)
    assert all(torch.equal(one[name], same[name]) for name in one)
    drawn = [name for name in one if one[name].ndim > 1 and one[name].any()]
    assert not any(torch.equal(one[name], other[name]) for name in drawn)
    assert len(drawn) > 20
