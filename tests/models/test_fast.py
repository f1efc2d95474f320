"""The fast path gives what the geometry itself gives."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from djepa.errors import DjepaError
from djepa.models import fallback
from djepa.models.fallback import Checked
from djepa.models.fast import Fast, Inputs, Nets, Predicted, Together, Way
from djepa.models.graph import KEPT
from djepa.models.kinds import Model
from djepa.models.lewm import LeWM, LeWMConfig
from djepa.models.tdjepa import TDJEPA, PlanningCost

TINY = LeWMConfig(
    image=28,
    patch=14,
    width=24,
    depth=2,
    heads=3,
    hidden=48,
    latent=20,
    projector=32,
    predictor_depth=2,
    predictor_heads=2,
    predictor_head=8,
    predictor_hidden=40,
)
N, K, H = 3, 5, 25
NO_CUDA = not torch.cuda.is_available()
on_cuda = pytest.mark.skipif(NO_CUDA, reason="no CUDA device")


def tiny(name: str = "lewm", config: LeWMConfig = TINY) -> Model:
    torch.manual_seed(0)
    model = (TDJEPA if name == "tdjepa" else LeWM)(config).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model.requires_grad_(False)


def inputs(starts: int = N, candidates: int = K, controls: int = H) -> Inputs:
    random = torch.Generator().manual_seed(1)
    px = TINY.image
    pixels = torch.randint(0, 256, (starts, 4, px, px, 3), generator=random, dtype=torch.uint8)
    uniform = [
        torch.empty(shape).uniform_(-1, 1, generator=random)
        for shape in ((starts, 4, 4), (starts, 10, 2), (starts, candidates, controls, 2))
    ]
    return Inputs(pixels[:, :3], pixels[:, 3], *uniform)


def plain(model: Model, given: Inputs) -> Tensor:
    """The geometry's own three calls."""
    z = model.encode(torch.cat([given.frames, given.goal[:, None]], 1), given.proprio)
    futures = model.rollout(z[:, :3], given.history, given.candidates)
    return model.native_cost(futures, z[:, 3])


@pytest.mark.parametrize("name", ["lewm", "tdjepa"])
@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_it_is_the_geometry_to_the_last_bit(name: str, precision: str) -> None:
    model = tiny(name)
    if isinstance(model, TDJEPA):
        model.planned_by(PlanningCost(blend=0.5, terminal=0.3))
    cost = Fast(model, precision=precision).predict(inputs()).cost
    assert cost.dtype == torch.float32
    assert torch.equal(cost, plain(model, inputs()))


def test_a_batch_is_its_starts() -> None:
    given, fast = inputs(), Fast(tiny())
    alone = [fast.predict(Inputs(*(x[n : n + 1] for x in given))).cost for n in range(N)]
    assert torch.allclose(fast.predict(given).cost, torch.cat(alone), atol=1e-5)


def test_bf16_is_near_and_leaves_model_and_flags_alone() -> None:
    model, given = tiny(), inputs()
    flags = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    exact = plain(model, given)
    cost = Fast(model, precision="bf16").predict(given).cost
    assert cost.dtype == torch.float32
    assert not torch.equal(cost, exact)
    assert (cost - exact).abs().max() < 0.05 * exact.mean()
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert flags == (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)


def test_inputs_of_other_types_are_converted() -> None:
    model, given = tiny(), inputs()
    double = [tensor.double() for tensor in given[2:]]
    cost = Fast(model).predict(Inputs(given.frames, given.goal, *double)).cost
    assert torch.equal(cost, plain(model, given))


def test_blocks_of_a_copy_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in compiler that counts calls: the real one takes minutes on a CPU."""
    called: list[str] = []

    def compile_(function: Any, dynamic: bool) -> Any:
        def counted(*args: Any, **more: Any) -> Any:
            called.append(function.__qualname__)
            return function(*args, **more)

        return counted

    monkeypatch.setattr(torch, "compile", compile_)
    model, given = tiny(), inputs()
    cost = Fast(model, compiled=True).predict(given).cost
    assert called.count("Block.forward") == TINY.depth
    steps, shared = H // 5, 2  # the past of the first two steps is computed once per start
    assert called.count("ConditionalBlock.follow") == (steps + shared) * TINY.predictor_depth
    assert called.count("Projector.forward") == 1 + steps
    called.clear()
    assert torch.equal(cost, plain(model, given))
    assert not called  # the model itself is as it was


def test_mistakes_are_named() -> None:
    model, given = tiny(), inputs()
    fast = Fast(model)
    with pytest.raises(DjepaError, match="Did you mean 'bf16'"):
        Fast(model, precision="bf61")
    for field, bad, message in (
        ("frames", given.frames[:, :2], r"frames must be \(3, 3, 28, 28, 3\), got \(3, 2, 28"),
        ("goal", given.goal[:2], "goal must be"),
        ("proprio", given.proprio[:, :3], r"proprio must be \(3, 4, 4\)"),
        ("history", given.history[:, :5], "history must be"),
        ("candidates", given.candidates[0], "candidates must be|history must be"),
        ("candidates", given.candidates[:, :, :7], "whole blocks of 5"),
        ("candidates", given.candidates[:, :0], "candidates"),
        ("frames", given.frames.float(), "uint8"),
    ):
        with pytest.raises(DjepaError, match=message):
            fast.predict(given._replace(**{field: bad}))
    if NO_CUDA:
        with pytest.raises(DjepaError, match="No CUDA device"):
            Fast(model, "cuda")


def test_a_geometry_without_nets_is_refused() -> None:
    class Bare:
        name = "bare"

    bare: Any = Bare()
    with pytest.raises(DjepaError, match="'bare' is not a torch module"):
        Fast(bare)


@pytest.mark.parametrize("candidates", [1, 7])
@pytest.mark.parametrize("blocks", [1, 2, 3, 6])
def test_a_rollout_is_the_unrolled_predictor(candidates: int, blocks: int) -> None:
    """What `rollout` shares between candidates and leaves out changes nothing."""
    model, given = tiny(), inputs(2, candidates, 5 * blocks)
    assert isinstance(model, LeWM)
    context = model.encode(given.frames, given.proprio[:, :3])
    before = model.blocks(given.history).repeat_interleave(candidates, 0)
    after = model.blocks(given.candidates).flatten(0, 1)
    with torch.inference_mode():
        expected = model.unroll(
            context.repeat_interleave(candidates, 0), torch.cat([before, after], 1)
        )
    futures = model.rollout(context, given.history, given.candidates)
    assert torch.allclose(futures.flatten(0, 1), expected, atol=1e-6)


def test_equal_encoders_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other, given = tiny(), tiny("tdjepa"), inputs()
    pair = {"one": one, "other": other}
    assert isinstance(one, LeWM)
    assert isinstance(other, LeWM)
    other.encoder.load_state_dict(one.encoder.state_dict())
    assert Together(pair).encoded_by == {"one": "one", "other": "other"}
    other.projector.load_state_dict(one.projector.state_dict())
    assert Together(pair).encoded_by == {"one": "one", "other": "one"}
    calls: list[str] = []
    encode = Nets.encode
    monkeypatch.setattr(
        Nets, "encode", lambda nets, x: (calls.append(nets.geometry.name), encode(nets, x))[1]
    )
    found = Together(pair).predict(given)
    assert calls == ["lewm"]
    for name, of in pair.items():
        assert torch.equal(found[name].cost, plain(of, given))


def test_the_best_again_are_exact_and_the_others_near() -> None:
    model, given = tiny(), inputs(candidates=9)
    exact = Fast(model).predict(given)
    found = Together({"lewm": model}, way=Way("bf16", again=4)).predict(given)["lewm"]
    gap, room = (found.cost - exact.cost).abs(), 1e-5 * exact.cost.mean()
    again = gap.argsort(dim=1)[:, :4]
    assert (gap.gather(1, again) < room).all()
    assert (gap.amax(1) > room).all()
    off = (found.futures - exact.futures).abs().amax((2, 3))
    assert (off.gather(1, again) < 1e-5).all()
    assert (off.amax(1) > 1e-4).all()


def test_a_way_that_is_off_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model, given = tiny(), inputs()
    monkeypatch.setattr(fallback, "ROUGH", 1e-6)
    with pytest.warns(UserWarning, match="Planning in plain float32: bf16 .*is off by"):
        found = Checked({"lewm": model}, "cpu", Way("bf16")).predict(given)
    assert torch.equal(found["lewm"].cost, plain(model, given))


def test_a_way_that_fails_is_tried_once_for_a_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    model, given, tried = tiny(), inputs(), []
    predictions = Checked({"lewm": model}, "cpu")

    def broken(inputs: Inputs) -> dict[str, Predicted]:
        tried.append(len(inputs.frames))
        raise RuntimeError("no compiler\nand more")

    monkeypatch.setattr(predictions.fast, "predict", broken)
    given_in_turn = given, given, inputs(2)
    with pytest.warns(UserWarning, match="Planning in plain float32: no compiler$"):
        found = [predictions.predict(each)["lewm"].cost for each in given_in_turn]
    for cost, each in zip(found, given_in_turn, strict=True):
        assert torch.equal(cost, plain(model, each))
    assert tried == [N, 2]


@on_cuda
@pytest.mark.parametrize("name", ["lewm", "tdjepa"])
@pytest.mark.parametrize(("precision", "room"), [("float32", 1e-4), ("tf32", 5e-3), ("bf16", 5e-2)])
def test_a_replay_is_the_call(name: str, precision: str, room: float) -> None:
    given, expected = inputs(), plain(tiny(name), inputs())
    launched = Fast(tiny(name), "cuda", precision, record=False).predict(given).cost
    fast = Fast(tiny(name), "cuda", precision)
    first = fast.predict(given).cost
    assert fast.recorded
    assert torch.allclose(first, launched, rtol=1e-5)
    assert torch.allclose(first.cpu(), expected, rtol=room)
    turned = Inputs(*(tensor.flip(0) for tensor in given))
    assert torch.allclose(fast.predict(turned).cost.flip(0), first, rtol=1e-5)
    assert torch.equal(fast.predict(given).cost, first)  # and the first answer still stands


@on_cuda
def test_old_shapes_are_recorded_anew() -> None:
    fast, model = Fast(tiny(), "cuda"), tiny()
    for candidates in (*range(1, KEPT + 3), 1):
        given = inputs(candidates=candidates)
        cost = fast.predict(given).cost.cpu()
        assert torch.allclose(cost, plain(model, given), rtol=1e-4)
    assert len(fast._together.calls.kept) == KEPT
