"""Parts of a cost, summaries of wide latents, looks of a bank, weights to begin with."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import Tensor

from djepa.align.methods import densest, native
from djepa.bank.collect import collect
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence
from djepa.models.dinowm import DINOWM
from djepa.models.jepawm import JEPAWM
from djepa.models.lewm import LeWM
from djepa.models.patches import PatchConfig, PatchGeometry
from djepa.models.predict import predict
from djepa.models.predictions import evidence_name, predict_bank, read_predictions
from djepa.models.recipes import begin_with
from djepa.models.weights import load_geometry, save_geometry
from djepa.rollout.engine import LocalEngine
from djepa.rollout.execute import CollectConfig
from djepa.studies.populations import evidence_from
from tiny import TINY as TINY_LEWM

TINY = PatchConfig(
    image=56,
    width=6,
    depth=1,
    heads=3,
    hidden=12,
    predictor_width=24,
    predictor_depth=1,
    predictor_heads=2,
    predictor_head=12,
    predictor_hidden=24,
)
FOUR = replace(TINY, image=112)  # 4 x 4 tokens of 24 features
KINDS = [JEPAWM, DINOWM]
CPU = torch.device("cpu")


def lively(kind: type[PatchGeometry], config: PatchConfig = TINY, seed: int = 0) -> PatchGeometry:
    """Random weights large enough that everything matters."""
    random = torch.Generator().manual_seed(seed)
    net = kind(config).eval()
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=random)
    net.proprio_std.fill_(100.0)
    return net.requires_grad_(False)


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.empty(*shape).normal_(generator=torch.Generator().manual_seed(seed))


# --------------------------------------------------------------------------- parts of a cost


@pytest.mark.parametrize(("kind", "weight"), [(JEPAWM, 0.1), (DINOWM, 1.0)])
def test_parts_sum_to_the_cost(kind: type[PatchGeometry], weight: float) -> None:
    net = kind(TINY)
    futures, goal = normal(3, 7, 5, net.latent), normal(3, net.latent, seed=2)
    parts = net.parts(futures, goal)
    assert set(parts) == {"visual", "proprio"}
    assert all(part.shape == (3, 7) and part.dtype == torch.float32 for part in parts.values())
    assert torch.equal(net.native_cost(futures, goal), parts["visual"] + weight * parts["proprio"])
    away = (futures[:, :, -1] - goal[:, None]).square()
    assert torch.allclose(parts["visual"], away[..., :-4].mean(-1))
    assert torch.allclose(parts["proprio"], away[..., -4:].mean(-1))


def test_parts_by_hand() -> None:
    """One candidate is off in one of 96 features, the other in one of four felt numbers."""
    net = JEPAWM(TINY)
    assert net.latent == 4 * 24 + 4
    futures, goal = torch.zeros(1, 2, 3, 100), torch.zeros(1, 100)
    futures[0, :, :-1] = 9.0  # only the last block counts
    futures[0, 0, -1, 95], futures[0, 1, -1, 96] = 2.0, 2.0
    parts = net.parts(futures.half(), goal.half())  # sums are made in float32
    assert parts["visual"][0].tolist() == pytest.approx([4 / 96, 0])
    assert parts["proprio"][0].tolist() == [0, 1]


# --------------------------------------------------------------------------- summaries

FRAME, UPPER_LEFT, UPPER_RIGHT, LOWER_LEFT, LOWER_RIGHT, MIDDLE = range(6)
QUARTERS = (  # of the sixteen tokens, row by row
    *(UPPER_LEFT, UPPER_LEFT, UPPER_RIGHT, UPPER_RIGHT) * 2,
    *(LOWER_LEFT, LOWER_LEFT, LOWER_RIGHT, LOWER_RIGHT) * 2,
)
INNER = (5, 6, 9, 10)


def grid_of(net: PatchGeometry, tokens: Tensor, felt: float = 0.0) -> Tensor:
    """Latents of (..., P, features) tokens."""
    body = torch.full((*tokens.shape[:-2], 4), felt)
    return torch.cat([tokens.flatten(-2), body], dim=-1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_constant_is_the_same_everywhere(kind: type[PatchGeometry]) -> None:
    """Every feature comes back six times, in its place, and nothing of what is felt."""
    net, features = kind(FOUR), torch.arange(24.0) + 1
    latent = grid_of(net, features.expand(16, 24), felt=1000.0)
    assert latent.shape == (net.latent,)
    found = net.summary(latent)
    assert found.shape == (6 * 24,)
    assert torch.allclose(found.view(6, 24), features.expand(6, 24))


@pytest.mark.parametrize("token", range(16))
def test_a_token_is_seen_by_the_frame_its_quarter_and_perhaps_the_middle(token: int) -> None:
    net = JEPAWM(FOUR)
    tokens = torch.zeros(16, 24)
    tokens[token, 3] = 8.0
    wanted = torch.zeros(6, 24)
    wanted[FRAME, 3] = 8 / 16
    wanted[QUARTERS[token], 3] = 8 / 4
    wanted[MIDDLE, 3] = 8 / 4 if token in INNER else 0
    assert torch.equal(net.summary(grid_of(net, tokens)).view(6, 24), wanted)


def test_the_middle_of_a_larger_grid() -> None:
    """Eight by eight: of the quarters' size, two tokens from every edge."""
    net = JEPAWM(replace(TINY, image=224))
    tokens = torch.zeros(64, 64, 24)  # every token alone
    tokens[torch.arange(64), torch.arange(64), 0] = 1.0
    seen = net.summary(grid_of(net, tokens)).view(64, 6, 24)[..., 0].view(8, 8, 6)
    assert (seen[..., FRAME] == 1 / 64).all()
    inner = torch.zeros(8, 8)
    inner[2:6, 2:6] = 1 / 16
    assert torch.equal(seen[..., MIDDLE], inner)
    for part, corner in enumerate(((0, 0), (0, 4), (4, 0), (4, 4)), start=UPPER_LEFT):
        quarter = torch.zeros(8, 8)
        quarter[corner[0] : corner[0] + 4, corner[1] : corner[1] + 4] = 1 / 16
        assert torch.equal(seen[..., part], quarter)


def test_summaries_are_linear_and_one_by_one() -> None:
    """So the difference of two summaries is that of what differs; any leading axes."""
    net = JEPAWM(FOUR)
    a, b = normal(2, 3, 5, net.latent), normal(2, 3, 5, net.latent, seed=2)
    both = net.summary(2 * a - 3 * b)
    assert both.shape == (2, 3, 5, 144)
    assert torch.allclose(both, 2 * net.summary(a) - 3 * net.summary(b), atol=1e-5)
    assert torch.allclose(net.summary(a)[1, 2, 4], net.summary(a[1, 2, 4]), atol=1e-6)


# --------------------------------------------------------------------------- stored


@pytest.fixture(scope="module")
def tiny_bank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three starts in two blocks. Not to be written to."""
    config = CollectConfig(starts=3, block=2)
    return collect(tmp_path_factory.mktemp("banks") / "tiny", config, LocalEngine(1)).path


@pytest.fixture
def bank(tiny_bank: Path, tmp_path: Path) -> Bank:
    return Bank(shutil.copytree(tiny_bank, tmp_path / "bank"))


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_stored_summary_stands_for_the_ends(bank: Bank) -> None:
    net = lively(JEPAWM, FOUR)
    direct = predict(net, bank.scene(), bank.decisions)
    predict_bank(bank, net, "abc", summary=True)
    held = read_predictions(bank, "jepawm")
    assert held.futures is not None
    assert held.futures.shape == (3, 63, 1, 144)
    assert held.goal.shape == (3, 144)
    ends, goal = net.summary(direct.futures[:, :, -1]), net.summary(direct.goal)
    assert np.allclose(held.futures[:, :, 0], ends.numpy(), rtol=2e-3, atol=2e-3)
    assert np.allclose(held.goal, goal.numpy(), rtol=2e-3, atol=2e-3)
    assert len(np.unique(held.futures)) > 1000
    # Costs and parts are of the latents, not of their summaries.
    assert np.allclose(held.cost, direct.cost.numpy(), rtol=1e-4)
    parts = net.parts(direct.futures, direct.goal)
    assert set(held.parts) == set(parts)
    for name, part in parts.items():
        assert np.allclose(held.parts[name], part.numpy(), rtol=1e-4)
    whole = held.parts["visual"] + np.float32(0.1) * held.parts["proprio"]
    assert np.allclose(held.cost, whole, rtol=1e-6)


def test_evidence_is_made_of_summaries_and_parts(bank: Bank) -> None:
    net = lively(JEPAWM, FOUR)
    predict_bank(bank, net, "abc", look="clean", summary=True)
    of = evidence_name("jepawm", "clean")
    held = read_predictions(bank, of)
    columns = {"visual": (of, "visual"), "proprio": (of, "proprio"), "joint": (of, "")}
    evidence = evidence_from(bank, columns, {"joint": of})
    assert evidence.names == ("visual", "proprio", "joint")
    stored = (held.parts["visual"], held.parts["proprio"], held.cost)
    assert np.array_equal(evidence.costs, np.stack(stored, axis=-1).astype(float))
    assert evidence.identities == tuple(bytes(x).hex() for x in bank.decisions.identities)
    assert evidence.directions("joint").shape == (3, 63, 144)
    seen = native("visual")(evidence).position
    assert seen.tolist() == held.parts["visual"].argmin(1).tolist()
    assert densest("joint")(evidence).position.shape == (3,)
    plain = Evidence.from_bank(bank, (of,), (of,))
    assert torch.equal(plain.latents[of], evidence.latents["joint"])


def test_parts_are_stored_without_futures_too(bank: Bank) -> None:
    net = lively(DINOWM)
    predict_bank(bank, net, "abc", futures=False)
    held = read_predictions(bank, "dinowm")
    assert held.futures is None
    assert np.allclose(held.cost, held.parts["visual"] + held.parts["proprio"], rtol=1e-6)
    with pytest.raises(DjepaError, match="holds no futures of 'dinowm'"):
        Evidence.from_bank(bank, ("dinowm",), ("dinowm",))


def test_summaries_and_futures_are_not_mixed(bank: Bank) -> None:
    net = lively(JEPAWM)
    before = files(predict_bank(bank, net, "abc", summary=True))
    for others in ({}, {"futures": True}, {"futures": False}):
        with pytest.raises(DjepaError, match=r"futures: .* there, .* asked"):
            predict_bank(bank, net, "abc", **others)
    with pytest.raises(DjepaError, match="weights: abc there, xyz asked"):
        predict_bank(bank, net, "xyz", summary=True)
    again = predict_bank(bank, net, "abc", summary=True)
    assert files(again) == before


def test_a_geometry_without_summary_stores_none(bank: Bank) -> None:
    net = LeWM(TINY_LEWM).eval().requires_grad_(False)
    with pytest.raises(DjepaError, match="lewm has no summary of its latents"):
        predict_bank(bank, net, "abc", summary=True)
    assert not (bank.path / "evidence").exists()
    predict_bank(bank, net, "abc")
    assert read_predictions(bank, "lewm").parts == {}  # nor has its cost parts


# --------------------------------------------------------------------------- looks


def test_every_look_is_evidence_of_its_own(bank: Bank) -> None:
    net = lively(JEPAWM)
    names = {"plain": "jepawm", "clean": "jepawm@clean", "dark": "jepawm@dark"}
    for look, name in names.items():
        assert evidence_name("jepawm", look) == name
        folder = predict_bank(bank, net, "abc", look=look)
        assert folder == bank.path / "evidence" / name
    held = {look: read_predictions(bank, name) for look, name in names.items()}
    for look, found in held.items():
        direct = predict(net, bank.scene(look), bank.decisions)
        assert np.allclose(found.cost, direct.cost.numpy(), rtol=1e-4), look
        assert np.allclose(found.goal, direct.goal.numpy(), rtol=2e-3, atol=2e-3), look
    for one, other in (("plain", "clean"), ("plain", "dark"), ("clean", "dark")):
        assert not np.allclose(held[one].goal, held[other].goal, rtol=1e-2), (one, other)
        seen = (held[look].parts["visual"] for look in (one, other))
        assert not np.allclose(*seen, rtol=1e-3), (one, other)
    blocks = sorted((bank.path / "evidence" / "jepawm@dark").glob("*.safetensors"))
    assert [len(load_file(block)["cost"]) for block in blocks] == [2, 1]


def test_looks_are_not_mixed(bank: Bank) -> None:
    """What was seen in one is no evidence of another; each folder keeps to its own weights."""
    net = lively(JEPAWM)
    folder = predict_bank(bank, net, "abc", look="dark")
    before = files(folder)
    for name in ("jepawm", "jepawm@blur"):
        with pytest.raises(DjepaError, match=f"no evidence of '{name}'"):
            read_predictions(bank, name)
    with pytest.raises(DjepaError, match="weights: abc there, xyz asked"):
        predict_bank(bank, net, "xyz", look="dark")
    predict_bank(bank, net, "xyz", look="clean")
    assert read_predictions(bank, "jepawm@dark").weights == "abc"
    assert read_predictions(bank, "jepawm@clean").weights == "xyz"
    assert files(folder) == before


def test_an_unknown_look_is_named_before_anything_is_written(bank: Bank) -> None:
    with pytest.raises(DjepaError, match=r"Unknown look 'drak'\. Did you mean 'dark'\?"):
        predict_bank(bank, lively(JEPAWM), "abc", look="drak")
    with pytest.raises(DjepaError, match="Unknown look 'turned-90'"):  # of another world
        predict_bank(bank, lively(JEPAWM), "abc", look="turned-90")
    assert not (bank.path / "evidence").exists()


# --------------------------------------------------------------------------- to begin with


def states(net: torch.nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in net.state_dict().items()}


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Weights of a geometry that pushes with two numbers."""
    net = lively(JEPAWM, TINY, seed=5)
    net.feature_mean.fill_(3.0)
    save_geometry(net, tmp_path / "other", {})
    return tmp_path / "other"


def test_to_begin_with_is_to_take_everything_of_the_same_sizes(other: Path) -> None:
    model, held = lively(JEPAWM, seed=6), load_geometry(other).state_dict()
    parts = {"encoder", "predictor", "patch_in", "action_in"}
    weights = [name for name in held if name.endswith("weight") and name.split(".")[0] in parts]
    assert not any(torch.equal(states(model)[name], held[name]) for name in weights)
    begin_with(model, str(other), CPU)
    for name, tensor in states(model).items():
        assert torch.equal(tensor, held[name]), name


def test_what_has_another_size_stays_as_it_was(other: Path) -> None:
    """Another world pushes with three numbers: its own action layer, all else from the other."""
    model, held = (
        lively(JEPAWM, replace(TINY, actions=3), seed=6),
        load_geometry(other).state_dict(),
    )
    before = states(model)
    begin_with(model, str(other), CPU)
    after = states(model)
    own = {"action_in.weight", "action_mean", "action_std"}
    assert {name for name, tensor in held.items() if tensor.shape != before[name].shape} == own
    for name, tensor in after.items():
        assert torch.equal(tensor, before[name] if name in own else held[name]), name


def test_weights_whose_predictor_does_not_fit_are_refused(other: Path, tmp_path: Path) -> None:
    """Even where encoders do; and the model is as it was."""
    wide = replace(TINY, predictor_width=36, predictor_hidden=36, predictor_head=18)
    for model in (lively(JEPAWM, wide, seed=6), LeWM(TINY_LEWM)):
        before = states(model)
        with pytest.raises(DjepaError, match=f"no predictor of the sizes of this {model.name}"):
            begin_with(model, str(other), CPU)
        for name, tensor in states(model).items():
            assert torch.equal(tensor, before[name]), name
    with pytest.raises(DjepaError):
        begin_with(lively(JEPAWM), str(tmp_path / "nowhere"), CPU)


def test_later_weights_go_over_earlier_ones(other: Path, tmp_path: Path) -> None:
    """A shallow predictor over a deep one: the first layer is the later's, the second stays."""
    deep = replace(TINY, predictor_depth=2)
    save_geometry(lively(JEPAWM, deep, seed=7), tmp_path / "deep", {})
    first, second = (load_geometry(x).state_dict() for x in (tmp_path / "deep", other))
    model = lively(JEPAWM, deep, seed=8)
    for where in (tmp_path / "deep", other):
        begin_with(model, str(where), CPU)
    after = states(model)
    assert set(after) - set(second)
    for name, tensor in after.items():
        assert torch.equal(tensor, second.get(name, first[name])), name
