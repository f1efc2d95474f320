"""The native driving model: what it sees, what it exposes, how it is stored."""

import shutil
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from djepa.cli.weights import Weights
from djepa.errors import DjepaError
from djepa.models.traffic import TrafficModel, save_native
from djepa.models.traffic_predict import load_scorer
from djepa.models.traffic_raster import CHANNELS, MIDDLE, mirrored, raster, seen
from djepa.models.traffic_train import Example, TrafficTraining, example, inputs_of, train
from djepa.models.weights import CHECKOUT, DRIVING, claim_native, shipped
from djepa.pools.driving import Vocabulary, fit_vocabulary
from djepa.seeds import generator
from djepa.worlds.traffic.generate import make_log, scenes
from djepa.worlds.traffic.scene import Scene


@cache
def generated() -> list[Scene]:
    return list(scenes("native", 2, 2, seed=5))


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return fit_vocabulary((make_log("native", i, 5) for i in range(2)), generator("v"), 100)


@pytest.fixture(scope="module")
def examples(vocabulary: Vocabulary) -> list[Example]:
    return [example(scene, vocabulary, generator("t", scene.name)) for scene in generated()]


def scrambled(scene: Scene) -> Scene:
    """The same past with another future."""
    other = scene.future.copy()
    other[:, 1:, :2] += 7.0
    return replace(scene, future=other, driven=None)


def test_the_future_changes_outcomes_and_nothing_that_a_model_reads(
    vocabulary: Vocabulary, examples: list[Example]
) -> None:
    again = [example(scrambled(scene), vocabulary) for scene in generated()]
    a, b = inputs_of(examples), inputs_of(again)
    for part in ("rasters", "ego", "poses"):
        assert torch.equal(getattr(a, part), getattr(b, part)), part
    assert any((x.judged.pdms != y.judged.pdms).any() for x, y in zip(examples, again, strict=True))


def test_a_model_exposes_what_the_published_scorer_does(examples: list[Example]) -> None:
    model, inputs = TrafficModel().eval(), inputs_of(examples)
    with torch.no_grad():
        native = model(inputs)
        turn = torch.randperm(32)
        turned = model(replace(inputs, poses=inputs.poses[:, turn]))
    N = len(examples)
    assert native.queries.shape == (N, 32, 256)
    assert native.logits.shape == (N, 32, 6)
    assert torch.equal(native.score, native.logits[..., -1].sigmoid())
    torch.testing.assert_close(turned.score, native.score[:, turn])
    assert native.score.std(1).min() > 0


def test_a_raster_shows_the_car_ahead_where_it_is() -> None:
    scene = generated()[0]
    c, s = np.cos(scene.ego[2]), np.sin(scene.ego[2])
    ahead = np.array([scene.ego[0] + 20 * c, scene.ego[1] + 20 * s, scene.ego[2], 10.0])
    past = np.full((1, 21, 4), np.nan)
    past[0, -1] = ahead
    one = replace(
        scene, past=past, future=np.repeat(past[:, -1:], 51, 1), size=np.array([[4.0, 2.0]]),
        kind=np.zeros(1, np.int64),
    )  # fmt: skip
    frame = raster(one, one.ego[:3], seen(one))
    cars = frame[CHANNELS.index("vehicles")]
    y, x = np.nonzero(cars)
    assert 34 <= x.min() <= 36 < 37 <= x.max() <= 39  # 16 + 20 ± 2 m
    assert 31 <= y.min() <= y.max() <= 33
    speed = frame[CHANNELS.index("speed along")]
    assert speed[32, 36] == MIDDLE + MIDDLE * 10 / 20
    twice = mirrored(mirrored(torch.from_numpy(frame)))
    np.testing.assert_array_equal(twice[:4], frame[:4])


def test_training_is_repeatable_and_weights_are_read_strictly(
    examples: list[Example], vocabulary: Vocabulary, tmp_path: Path
) -> None:
    config = TrafficTraining(epochs=1, batch=2)
    (_, loss, model), (_, again, _) = (next(iter(train(config, examples))) for _ in range(2))
    assert loss == again
    claim_native(tmp_path / "w", DRIVING)
    save_native(tmp_path / "w", model, vocabulary, {"scenes": len(examples)})
    stored = load_scorer(tmp_path / "w")
    assert stored.card["scenes"] == len(examples)
    assert np.array_equal(stored.vocabulary.motions, vocabulary.motions)
    inputs = inputs_of(examples)
    with torch.no_grad():
        assert torch.equal(stored.model(inputs).score, model.half().float()(inputs).score)
    with pytest.raises(DjepaError, match="holds a finished driving model already"):
        claim_native(tmp_path / "w", DRIVING)
    (tmp_path / "w/manifest.json").unlink()
    with pytest.raises(DjepaError, match="w holds no finished driving model"):
        load_scorer(tmp_path / "w")
    with pytest.raises(DjepaError, match=r"no driving model 'none'.*traffic_train FOLDER"):
        load_scorer("none")


def test_the_shipped_model_is_what_results_are_bound_to_and_the_command_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scorer, of = load_scorer(), tmp_path / "traffic"
    assert scorer.hash[:12] == "49eca3683546"  # the same as before it had a manifest
    assert scorer.card["config"] == asdict(TrafficTraining())
    assert "traffic" not in shipped()  # it is no geometry
    monkeypatch.setenv("DJEPA_WEIGHTS", str(tmp_path))
    shutil.copytree(CHECKOUT / "weights/traffic", of)
    assert Weights(("traffic", "bimanual")).run() == 0
    assert capsys.readouterr().out.count("whole") == 2
    file = of / "model.safetensors"
    file.write_bytes(flipped(file.read_bytes()))
    assert load_scorer().hash == scorer.hash  # what the checkout has comes first
    for look in (lambda: load_scorer(of), Weights((str(of),)).run):
        with pytest.raises(DjepaError, match=r"model\.safetensors is damaged"):
            look()


def flipped(data: bytes) -> bytes:
    """With one bit changed in the middle."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
