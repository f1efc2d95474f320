"""Training end to end at the smallest size: real physics, real frames, real steps."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from djepa.audit.quality import quality
from djepa.bank.read import Bank
from djepa.cli.train import Train
from djepa.errors import DjepaError
from djepa.models import episodes, jepawm, predictions
from djepa.models.cache import Cache
from djepa.models.kinds import build
from djepa.models.lewm import LeWM
from djepa.models.objectives import draw, lewm_loss, one_step, open_loop, sigreg, temporal_distance
from djepa.models.predict import encode_states, predict
from djepa.models.predictions import predict_bank, read_predictions
from djepa.models.recipes import (
    TrainConfig,
    recipe_for,
    take_encoder,
)
from djepa.models.selection import collect_each, select
from djepa.models.step import Step
from djepa.models.tdjepa import TDJEPA, PlanningCost
from djepa.models.train import Trainer
from djepa.models.weights import (
    card,
    load_geometry,
    read_card,
    save_geometry,
    weights_hash,
)
from djepa.tasks.task import PLAIN, Scene, get_task
from djepa.worlds.push import PushWorld
from tiny import TINY, TINY_PATCHES, simulate


@pytest.fixture(scope="module")
def model() -> LeWM:
    torch.manual_seed(0)
    net = LeWM(TINY).eval()
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return net.requires_grad_(False)


def test_episodes_are_what_the_world_does(tiny: Path) -> None:
    arrays = load_file(tiny / "episodes/episodes-00000.safetensors")
    world, states, controls = PushWorld(), arrays["states"], arrays["controls"]
    assert states.shape == (16, 81, 10)
    assert not np.array_equal(states[0, 0], states[1, 0])
    assert (np.abs(controls) <= 1).all()
    moved = np.abs(np.diff(states[..., 2:4], axis=1)).max(axis=(1, 2)) > 1
    assert moved.mean() > 0.5
    # States are kept in float32, so a replay from them starts a rounding away.
    again = world.execute(states[1, 0].astype(np.float64), controls[1:2])
    assert np.allclose(again[0, :8, :2], states[1, :8, :2], atol=1e-2)


@pytest.mark.parametrize("geometry", ["lewm", "tdjepa", "jepawm", "dinowm"])
def test_both_phases_run_and_the_result_is_a_geometry(geometry: str, tiny: Path) -> None:
    config = TrainConfig(geometry, steps=8, episodes=32, shrink=64, development=8)
    trainer = Trainer(config, tiny / "out", tiny / "episodes")
    trained = trainer.run()
    assert trained.name == geometry
    log = [json.loads(line) for line in (tiny / "out/log.jsonl").read_text().splitlines()]
    first = "joint" if geometry in ("lewm", "tdjepa") else "distil"
    assert {entry["phase"] for entry in log} == {first, "predictor"}
    assert all(np.isfinite(entry["loss"]) for entry in log if "loss" in entry)
    frozen = trainer.model.encoder.embed.weight
    assert not frozen.requires_grad
    assert torch.equal(frozen, trained.encoder.embed.weight)


@pytest.mark.parametrize(
    ("world", "geometry", "shapes"),
    [
        ("push", "jepawm", ("T", "+")),
        ("granular", "dinowm", ()),
        ("reacher", "tdjepa", ()),
        ("cube", "lewm", ()),
    ],
)
def test_every_world_is_trained_in_the_same_way(
    world: str,
    geometry: str,
    shapes: tuple[str, ...],
    tiny: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two shapes by turns, pushes of four numbers, the learned distance as planning cost."""
    monkeypatch.setattr(episodes, "SHARD", 2)  # grains are slow
    for engine in ("mujoco", "ogbench"):
        if engine in get_task(world).engines:
            pytest.importorskip(engine)
    look = "clean" if world == "push" else "plain"
    config = TrainConfig(
        geometry,
        world=world,
        shapes=shapes,
        look=look,
        blend=0.0,
        terminal=0.3,
        steps=8,
        episodes=6,
        shrink=64,
        development=2,
    )
    where = tiny / "others"
    simulate(episodes.plan_shards(where, 6, 0, config.shapes, world))
    trainer = Trainer(config, tiny / "out", where)
    trained = trainer.run()
    task = get_task(world)
    assert (trained.config.actions, trained.stride) == (task.actions, task.stride)
    assert len(trainer.development) == len(config.shapes)
    if isinstance(trained, TDJEPA):
        assert trained.planning == PlanningCost(0.0, 0.3)
    bank = trainer.development[0]
    p = predict(trained, bank.scene(look), bank.decisions)
    assert p.cost.shape == (len(bank), 63)
    assert p.futures.shape[2] == task.horizon // task.stride


def test_a_batch_of_several_shapes_is_drawn_shape_by_shape(tiny: Path) -> None:
    """Episode e is of shape e modulo their number; a batch holds them in that order."""
    config = TrainConfig(
        "jepawm", shapes=("T", "+"), steps=8, episodes=32, shrink=64, development=2
    )
    where = tiny / "two"
    simulate(episodes.plan_shards(where, 32, 0, config.shapes))
    trainer = Trainer(config, tiny / "out", where)
    trainer.episodes.take(32)
    chosen = trainer.batches.training()[:, 0]
    half = len(chosen) // 2
    assert (chosen[:half] % 2 == 0).all()
    assert (chosen[half:] % 2 == 1).all()
    states = trainer.episodes.states[chosen, 5]
    drawn = trainer.batches.frames(states, 28)
    for i, shape in ((0, "T"), (half, "+")):
        alone, _ = Scene("push", shape).observe(states[i : i + 1], 28)
        assert torch.equal(drawn[i], alone[0])
    with pytest.raises(DjepaError, match="do not share 16 episodes evenly"):
        episodes.plan_shards(where, 32, 0, ("T", "L", "Z"))


def test_a_trained_encoder_can_be_taken_over(tiny: Path) -> None:
    torch.manual_seed(1)
    source = LeWM(TINY).eval()
    save_geometry(source, tiny / "source", card({}, source, "", {}))
    config = TrainConfig(
        "tdjepa",
        steps=8,
        episodes=32,
        shrink=64,
        development=8,
        encoder=str(tiny / "source"),
    )
    trained = Trainer(config, tiny / "out", tiny / "episodes").run()
    halved = source.encoder.embed.weight.half().float()
    assert torch.equal(trained.encoder.embed.weight, halved)
    assert "joint" not in (tiny / "out/log.jsonl").read_text()


def test_a_restored_step_goes_on_as_if_nothing_had_happened() -> None:
    def fresh() -> Step[LeWM]:
        torch.manual_seed(0)
        net = LeWM(TINY)
        draws = draw(8, 4, 16, torch.Generator().manual_seed(0), sigreg=True)
        return Step(lambda z, b: lewm_loss(net, z, b, draws, True), net, 1e-3, 0.1, keep=0.9)

    random = torch.Generator().manual_seed(1)
    batches = [(torch.empty(8, 4, 16).normal_(generator=random), torch.zeros(8, 3, 10))] * 6
    for part in ("whole", "halves"):
        step = fresh()
        for i, batch in enumerate(batches):
            if part == "halves" and i == 3:
                held = step.state()
                step = fresh()
                step.restore(held)
            step(batch, 0.3)
        if part == "whole":
            expected = step.state()
    resumed = step.state()
    assert all(torch.equal(resumed[name], tensor) for name, tensor in expected.items())


def test_ties_are_no_choice(tiny: Path) -> None:
    """A fresh predictor ignores actions; the smallest ID would often succeed by itself."""
    config = TrainConfig("lewm", steps=8, episodes=32, shrink=64, development=8)
    trainer = Trainer(config, tiny / "out", tiny / "episodes")
    assert trainer.development[0].outcomes.success[:, 0].any()
    chosen = trainer.select(trainer.model)
    assert chosen.selection == 0.0
    assert math.isnan(chosen.spearman)  # four equal costs have no order


def test_the_correlation_is_that_of_the_audit(tiny: Path) -> None:
    """Among the nearest four of every start, against costs of what execution showed."""
    (bank,) = collect_each(TrainConfig("lewm"), tiny / "judged", 6)
    model = load_geometry("lewm")
    chosen, of = select(model, [bank], PLAIN, torch.device("cpu")), quality(model, bank)
    assert chosen.selection == of.native
    assert chosen.spearman == pytest.approx(of.spearman[4], abs=1e-6)


def test_an_encoder_that_does_not_fit_is_named(tiny: Path) -> None:
    source = LeWM(TINY).eval()
    save_geometry(source, tiny / "source", card({}, source, "", {}))
    jepa = jepawm.JEPAWM(TINY_PATCHES)
    save_geometry(jepa, tiny / "patches", card({}, jepa, "", {}))
    weights = Path(__file__).parents[1] / "goldens/dinov2.safetensors"
    for geometry, where, message in [
        ("dinowm", str(tiny / "source"), "has another size"),
        ("lewm", str(tiny / "patches"), "no encoder that fits: it is a jepawm"),
        ("jepawm", str(tiny / "nowhere"), "no weights at|Unknown weights"),
        ("jepawm", str(weights), "dinov2"),
    ]:
        with pytest.raises(DjepaError, match=message):
            take_encoder(build(geometry, torch.Generator()), where, torch.device("cpu"))


def test_windows_and_cached_windows_agree(tiny: Path) -> None:
    """The cache holds the latents of the frames that the joint phase would draw."""
    config = TrainConfig("lewm", steps=8, episodes=32, shrink=64, development=8)
    trainer = Trainer(config, tiny / "out", tiny / "episodes")
    trainer.episodes.take(32)
    trainer.model.eval()
    cache = Cache(trainer.model, trainer.scenes, trainer.episodes)
    cache.extend(32)
    latents, blocks, _ = cache.windows(64, 4, trainer.random.manual_seed(0))
    held, _, _ = cache.windows(64, 4, trainer.random.manual_seed(0), validation=True)
    first = set(map(tuple, cache._latents[:16].float().flatten(0, 1).tolist()))  # first shard
    assert all(tuple(row) in first for row in held.flatten(0, 1).tolist())
    assert not any(tuple(row) in first for row in latents.flatten(0, 1).tolist())
    assert latents.shape == (64, 4, 16)
    assert blocks.shape == (64, 3, 10)
    row, phase = 7, 7 % 5
    states = trainer.episodes.states[row, phase : phase + 80 : 5]
    direct = encode_states(trainer.model, trainer.scenes[0], states)
    assert torch.allclose(direct, cache._latents[row].float(), atol=2e-3)
    controls = trainer.episodes.controls[row, phase : phase + 75]
    assert torch.allclose(trainer.model.blocks(controls), cache._blocks[row])


def test_bad_training_requests() -> None:
    with pytest.raises(DjepaError, match="Did you mean 'lewm'"):
        TrainConfig("lewn")
    with pytest.raises(DjepaError, match="Did you mean 'small'"):
        TrainConfig(size="smal")
    with pytest.raises(DjepaError, match="steps must be at least 2"):
        TrainConfig(steps=1)
    with pytest.raises(DjepaError, match="late and curriculum are shares"):
        TrainConfig(late=0.6, curriculum=0.6)
    with pytest.raises(DjepaError, match="ema and perturbed"):
        TrainConfig(perturbed=1.0)
    with pytest.raises(DjepaError, match="noise, last and windows"):
        TrainConfig(noise=-1.0)
    with pytest.raises(DjepaError, match="Did you mean 'blocks'"):
        TrainConfig(compiled="block")
    with pytest.raises(DjepaError, match="Did you mean 'long'"):
        recipe_for("lonk", "lewm")
    if not torch.cuda.is_available():
        with pytest.raises(DjepaError, match="No CUDA device"):
            TrainConfig(device="cuda")


def test_a_step_learns_and_averages() -> None:
    torch.manual_seed(0)
    net = LeWM(TINY)
    for part in (net.encoder, net.projector):
        part.eval().requires_grad_(False)
    random = torch.Generator().manual_seed(0)
    latents, blocks = torch.randn(64, 4, 16), torch.randn(64, 3, 10)
    draws = draw(64, 4, 16, random)
    step = Step(lambda z, b: lewm_loss(net, z, b, draws, False), net, 3e-3, 0.0, keep=0.5)
    before = one_step(net, latents, blocks, draws, detach=True).item()
    for i in range(60):
        step((latents, blocks), 0.1 + i / 100)
    assert one_step(net, latents, blocks, draws, detach=True).item() < 0.7 * before
    averaged = dict(step.average().named_parameters())
    moved = dict(net.named_parameters())
    assert torch.equal(averaged["encoder.token"], moved["encoder.token"])
    assert not torch.equal(averaged["pred_proj.up.weight"], moved["pred_proj.up.weight"])


def test_sigreg_is_least_for_a_standard_normal() -> None:
    random = torch.Generator().manual_seed(0)
    normal = torch.empty(512, 1, 8).normal_(generator=random)
    directions = draw(4, 2, 8, random, sigreg=True).directions
    values = [
        sigreg(normal * scale + shift, directions)
        for scale, shift in [(1, 0), (2, 0), (0.5, 0), (1, 1), (0, 0)]
    ]
    assert min(values) == values[0]
    assert values[0] < 2


def test_losses_by_hand() -> None:
    """With a predictor that answers zero, errors are mean squares of the targets."""
    net = TDJEPA(TINY).eval()
    net.predict = lambda latents, blocks: torch.zeros_like(latents)  # type: ignore[method-assign]
    latents, blocks = torch.arange(2 * 8 * 16.0).view(2, 8, 16) / 100, torch.zeros(2, 7, 10)
    draws = draw(2, 8, 16, torch.Generator())
    ahead = one_step(net, latents, blocks, draws, detach=True)
    assert torch.isclose(ahead, latents[:, 1:4].square().mean())
    assert torch.isclose(open_loop(net, latents, blocks, draws), latents[:, 3:].square().mean())
    pairs = torch.tensor([[0, 6], [3, 5], [1, 1]])  # from 0 to 3; from 6, beyond the end, to 7
    d = net.distance
    fit = torch.nn.functional.smooth_l1_loss(
        torch.stack([d(latents[0, 0], latents[0, 3]), d(latents[1, 6], latents[1, 7])]),
        torch.tensor([3.0, 1.0]),
    )
    far = [7 - d(latents[0, 0], latents[1, 1]), 7 - d(latents[1, 6], latents[0, 1])]
    expected = fit + torch.stack(far).relu().mean()
    assert torch.isclose(temporal_distance(net, latents, pairs), expected)


def test_weights_round_trip_and_damage_is_named(model: LeWM, tmp_path: Path) -> None:
    folder = tmp_path / "weights"
    save_geometry(model, folder, card({"seed": 1}, model, "djepa train", {"native": 0.5}))
    loaded = load_geometry(folder)
    assert not loaded.training
    for name, tensor in model.state_dict().items():
        assert torch.allclose(loaded.state_dict()[name].float(), tensor.float(), atol=1e-3)
    assert read_card(folder)["metrics"] == {"native": 0.5}
    before = weights_hash(folder)
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "model.safetensors").write_bytes(data)
    with pytest.raises(DjepaError, match=r"model\.safetensors is damaged"):
        load_geometry(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(DjepaError, match=r"model\.safetensors is missing"):
        load_geometry(folder)
    assert weights_hash(folder) == before
    with pytest.raises(DjepaError, match=r"no weights at|Unknown weights"):
        load_geometry(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DjepaError, match="no finished weights"):
        load_geometry(tmp_path / "empty")


def test_evidence_is_bound_to_bank_and_weights(model: LeWM, bank_copy: Path) -> None:
    bank = Bank(bank_copy)
    folder = predict_bank(bank, model, "abc")
    held = read_predictions(bank, "lewm")
    direct = predict(model, bank.scene(), bank.decisions)
    assert np.allclose(held.cost, direct.cost.numpy(), rtol=1e-5)
    assert held.futures is not None
    assert held.futures.shape == (10, 63, 5, 16)
    assert Bank(bank_copy).hash == bank.hash  # evidence lies beside the bank, not in it
    with pytest.raises(DjepaError, match="weights: abc there, xyz asked"):
        predict_bank(bank, model, "xyz")
    with pytest.raises(DjepaError, match="futures: true there, false asked"):
        predict_bank(bank, model, "abc", futures=False)
    with pytest.raises(DjepaError, match="djepa predict"):
        read_predictions(bank, "tdjepa")
    shard = folder / "block-000001.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    with pytest.raises(DjepaError, match="damaged"):
        read_predictions(bank, "lewm")


def test_wide_futures_are_stored_on_demand(
    model: LeWM, bank_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predictions, "WIDE", 15)  # one less than the model's
    predict_bank(Bank(bank_copy), model, "abc")
    held = read_predictions(Bank(bank_copy), "lewm")
    assert held.futures is None
    assert held.cost.shape == (10, 63)
    shutil.rmtree(bank_copy / "evidence")
    predict_bank(Bank(bank_copy), model, "abc", futures=True)
    futures = read_predictions(Bank(bank_copy), "lewm").futures
    assert futures is not None
    assert futures.shape == (10, 63, 5, 16)


def test_quality_counts_what_it_says(model: LeWM, small_bank: Bank) -> None:
    result = quality(model, small_bank, batch=4)
    assert result.oracle == 1.0
    assert result.random == pytest.approx(small_bank.outcomes.success.mean())
    assert len(result.picks) == 10
    assert result.native == pytest.approx(np.mean(result.picks))


def test_the_command_trains_evaluates_and_writes(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tiny)
    monkeypatch.setattr("sys.argv", ["djepa", "train", "push", "--geometry", "dinowm"])
    given = {
        "steps": 8,
        "episodes": 32,
        "shrink": 64,
        "device": "cpu",
        "development": 8,
        "held_out": 8,
        "data": Path("episodes"),
    }
    Train(geometry="dinowm", out=Path("weights"), **given).run()  # type: ignore[arg-type]
    made = read_card("weights")
    assert made["command"] == "djepa train push --geometry dinowm"
    assert made["metrics"]["starts"] == 8
    assert made["recipe"]["development"] == 8
    assert {path.name for path in Path("weights").iterdir()} >= {"loss.png", "log.jsonl"}
    assert not list(Path("weights").glob("resume*"))
    with pytest.raises(DjepaError, match="holds finished weights"):
        Train(out=Path("weights"), **given).run()  # type: ignore[arg-type]
    Train(geometry="jepawm", out=Path("other"), encoder="weights", **given).run()  # type: ignore[arg-type]
    assert read_card("other")["recipe"]["encoder_card"]["command"] == made["command"]
    capsys.readouterr()
    bank = Bank(Path("weights/test"))
    measured = [quality(load_geometry(Path(name)), bank) for name in ("weights", "other")]
    assert [len(one.picks) for one in measured] == [8, 8]
    with pytest.raises(DjepaError, match="Did you mean 'push'"):
        Train(world="pusj").run()
