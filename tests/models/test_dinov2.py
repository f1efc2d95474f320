"""DINOv2: the library's numbers from every spelling, the caches, and what is refused."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from djepa.errors import DjepaError
from djepa.models.dinov2 import find_dinov2, load_dinov2, rename_dinov2
from djepa.models.nets import ViT

State = dict[str, Tensor]

GOLDEN = load_file(Path(__file__).parents[1] / "goldens/dinov2.safetensors")
STATE = {k.removeprefix("state."): v for k, v in GOLDEN.items() if k.startswith("state.")}
META = (
    ("embeddings.cls_token", "cls_token"),
    ("embeddings.mask_token", "mask_token"),
    ("embeddings.position_embeddings", "pos_embed"),
    ("embeddings.patch_embeddings.projection", "patch_embed.proj"),
    ("encoder.layer.", "blocks."),
    ("attention.output.dense", "attn.proj"),
    ("layer_scale1.lambda1", "ls1.gamma"),
    ("layer_scale2.lambda1", "ls2.gamma"),
    ("layernorm.", "norm."),
)
MODULES = (
    ("attention.attention.query", "attention.q_proj"),
    ("attention.attention.key", "attention.k_proj"),
    ("attention.attention.value", "attention.v_proj"),
    ("attention.output.dense", "attention.o_proj"),
)


def respelt(state: State, pairs: tuple[tuple[str, str], ...]) -> State:
    new = {}
    for key, value in state.items():
        for old, name in pairs:
            key = key.replace(old, name)
        new[key] = value
    return new


def as_meta(state: State) -> State:
    """Meta's names; query, key and value in one matrix."""
    new = respelt({k: v for k, v in state.items() if "attention.attention" not in k}, META)
    for layer in range(2):
        for kind in ("weight", "bias"):
            own = f"encoder.layer.{layer}.attention.attention"
            parts = [state[f"{own}.{role}.{kind}"] for role in ("query", "key", "value")]
            new[f"blocks.{layer}.attn.qkv.{kind}"] = torch.cat(parts)
    return new


def as_timm(state: State) -> State:
    return {k: v for k, v in as_meta(state).items() if k != "mask_token"}


def as_modules(state: State) -> State:
    """The names transformers 5 gives its modules, which its files do not have."""
    return respelt(state, MODULES)


def prefixed(prefix: str) -> Callable[[State], State]:
    return lambda state: {prefix + key: value for key, value in state.items()}


def written(state: State, file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".safetensors":
        save_file(state, file)
    else:
        torch.save(state, file)
    return file


def without(*keys: str) -> State:
    assert set(keys) <= set(STATE)
    return {key: value for key, value in STATE.items() if key not in keys}


def check(model: ViT, size: int) -> None:
    """What the library computed, to 1e-5."""
    states = model(GOLDEN[f"images.{size}"])
    assert states.shape == (1, 1 + (size // 14) ** 2, 128)
    assert (states - GOLDEN[f"states.{size}"]).abs().max() <= 1e-5


@pytest.mark.parametrize("size", [70, 112])
@pytest.mark.parametrize(
    "spelling",
    [dict, as_meta, as_timm, as_modules, prefixed("dinov2."), prefixed("backbone.")],
    ids=["files", "meta", "timm", "modules", "dinov2.", "backbone."],
)
def test_every_spelling_gives_the_library_states(
    spelling: Callable[[State], State], size: int, tmp_path: Path
) -> None:
    check(load_dinov2(written(spelling(STATE), tmp_path / "w.safetensors"), size), size)


@pytest.mark.parametrize("suffix", [".pth", ".pt"])
def test_a_torch_file_is_read_and_a_path_may_be_text(suffix: str, tmp_path: Path) -> None:
    file = written(as_meta(STATE), tmp_path / f"w{suffix}")
    check(load_dinov2(str(file), 112), 112)


def test_the_encoder_is_frozen_and_draws_nothing(tmp_path: Path) -> None:
    file = written(STATE, tmp_path / "w.safetensors")
    before = torch.get_rng_state()
    model = load_dinov2(file)
    assert torch.equal(torch.get_rng_state(), before)
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert (model.image, model.patches) == (224, 256)
    norms = [module for module in model.modules() if isinstance(module, torch.nn.LayerNorm)]
    assert [norm.eps for norm in norms] == [1e-6] * 5


def test_half_precision_weights_are_widened(tmp_path: Path) -> None:
    narrow = {key: value.half() for key, value in STATE.items()}
    model = load_dinov2(written(narrow, tmp_path / "w.safetensors"), 70)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert (model(GOLDEN["images.70"]) - GOLDEN["states.70"]).abs().max() < 0.02


def test_an_edge_that_holds_no_patch_is_left_out_as_in_the_library(tmp_path: Path) -> None:
    file = written(STATE, tmp_path / "w.safetensors")
    image = torch.nn.functional.pad(GOLDEN["images.70"], (0, 5, 0, 5), value=9.0)
    assert (load_dinov2(file, 75)(image) - GOLDEN["states.70"]).abs().max() <= 1e-5


def test_a_block_without_scales_is_what_it_was() -> None:
    plain, scaled = ViT(28, 14, 64, 1, 1, 128), ViT(28, 14, 64, 1, 1, 128, scaled=True)
    extra = {"blocks.0.scale1", "blocks.0.scale2"}
    assert set(scaled.state_dict()) - set(plain.state_dict()) == extra
    assert (plain.norm.eps, plain.blocks[0].norm1.eps, plain.blocks[0].norm2.eps) == (1e-12,) * 3
    ones = {name: torch.ones(64) for name in extra}
    scaled.load_state_dict({**plain.state_dict(), **ones})
    images = torch.randn(1, 3, 28, 28)
    assert torch.equal(plain(images), scaled(images))


HUB = "hub/models--facebook--dinov2-small/snapshots/abc/model.safetensors"
TIMM = "hub/models--timm--vit_small_patch14_dinov2.lvd142m/snapshots/abc/model.safetensors"
TORCH = "hub/checkpoints/dinov2_vits14_pretrain.pth"


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty caches, and a home without any."""
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    return tmp_path


@pytest.mark.parametrize(
    ("place", "spelling"),
    [(f"hf/{HUB}", dict), (f"hf/{TIMM}", as_timm), (f"torch/{TORCH}", as_meta)],
)
def test_cached_weights_are_found(
    place: str, spelling: Callable[[State], State], caches: Path
) -> None:
    file = written(spelling(STATE), caches / place)
    assert find_dinov2() == file
    check(load_dinov2(None, 112), 112)


def test_where_the_caches_are(caches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HF_HOME", "TORCH_HOME"):
        monkeypatch.delenv(variable)
    home = written(STATE, caches / "home/.cache/torch" / TORCH)
    assert find_dinov2() == home
    home = written(STATE, caches / "home/.cache/huggingface" / HUB)
    assert find_dinov2() == home
    monkeypatch.setenv("HF_HUB_CACHE", str(caches / "elsewhere/hub"))
    other = written(STATE, caches / "elsewhere" / HUB)
    assert find_dinov2() == other


def test_a_dangling_link_and_another_size_are_passed_over(caches: Path) -> None:
    link = caches / "hf" / HUB
    link.parent.mkdir(parents=True)
    link.symlink_to(caches / "gone")
    written(STATE, caches / "hf" / HUB.replace("small", "base"))
    with pytest.raises(DjepaError, match=r"No DINOv2 'small' is cached\. Give .* Looked for"):
        load_dinov2(None)
    assert "dinov2-base" in str(find_dinov2("base"))


def test_a_misspelt_size_is_named(caches: Path) -> None:
    with pytest.raises(DjepaError, match=r"Unknown DINOv2 size 'smal'.* 'small'"):
        load_dinov2(None, name="smal")


LAST = "encoder.layer.1."
UP, DOWN = "encoder.layer.0.mlp.fc1.weight", "encoder.layer.0.mlp.fc2.weight"
PATCHES = "embeddings.patch_embeddings.projection.weight"
POSITIONS = "embeddings.position_embeddings"
BAD = {
    "foreign": ({**STATE, "classifier.weight": torch.zeros(1)}, "'classifier.weight' is not"),
    "foreign in a layer": (
        {**STATE, LAST + "norm3.weight": torch.zeros(128)},
        r"'encoder\.layer\.1\.norm3\.weight' is not",
    ),
    "extra": (
        {**STATE, LAST + "norm1.more": torch.zeros(1)},
        r"Unexpected.*blocks\.1\.norm1\.more",
    ),
    "twice": ({**STATE, "norm.weight": torch.zeros(128)}, "'norm.weight' is there in two"),
    "twice, prefixed": (
        {**STATE, "dinov2.layernorm.bias": torch.zeros(128)},
        "layernorm.bias' is there in two",
    ),
    "fused and split": (
        {**STATE, "blocks.0.attn.qkv.bias": torch.zeros(384)},
        r"Unexpected.*blocks\.0\.attention\.q\.bias",
    ),
    "no norm": (without("layernorm.weight"), r"Missing.*norm\.weight"),
    "no scale": (without(LAST + "layer_scale2.lambda1"), r"Missing.*blocks\.1\.scale2"),
    "no query": (
        without(LAST + "attention.attention.query.weight"),
        r"Missing.*blocks\.1\.attention\.qkv\.weight",
    ),
    "no key": (
        without(LAST + "attention.attention.key.bias"),
        r"Missing.*blocks\.1\.attention\.qkv\.bias",
    ),
    "no patches": (without(PATCHES), r"'embed\.weight' .* missing"),
    "no positions": (without(POSITIONS), "'position' .* missing"),
    "a layer short": (respelt(STATE, ((LAST, "encoder.layer.7."),)), r"Missing.*blocks\.1\."),
    "flat patches": ({**STATE, PATCHES: torch.zeros(128, 588)}, "has not 4 axes"),
    "grey patches": ({**STATE, PATCHES: torch.zeros(128, 1, 14, 14)}, "size mismatch"),
    "long norm": ({**STATE, "layernorm.weight": torch.zeros(129)}, "size mismatch"),
    "ragged query": (
        {**STATE, LAST + "attention.attention.query.weight": torch.zeros(128, 100)},
        "Sizes of tensors must match",
    ),
    "odd width": ({**STATE, PATCHES: torch.zeros(100, 3, 14, 14)}, "width 100 is not a multiple"),
    "no width": ({**STATE, PATCHES: torch.zeros(0, 3, 14, 14)}, "width 0 is not a multiple"),
    "no square": ({**STATE, POSITIONS: torch.zeros(1, 25, 128)}, "25 positions are not"),
    "one position": ({**STATE, POSITIONS: torch.zeros(1, 1, 128)}, "1 positions are not"),
    "registers": (
        {**STATE, "embeddings.register_tokens": torch.zeros(1, 4, 128)},
        r"register tokens \('embeddings\.register_tokens'\)",
    ),
    "registers, Meta": (
        {**as_meta(STATE), "register_tokens": torch.zeros(1, 4, 128)},
        "register tokens",
    ),
    "registers, timm": ({**as_timm(STATE), "reg_token": torch.zeros(1, 4, 128)}, "register tokens"),
    "SwiGLU": (respelt(STATE, (("mlp.fc1", "mlp.weights_in"),)), "SwiGLU"),
    "SwiGLU, Meta": (respelt(as_meta(STATE), (("mlp.fc1", "mlp.w12"),)), "SwiGLU"),
    "SwiGLU, modules": (respelt(STATE, (("mlp.fc1", "mlp.gate_proj"),)), "SwiGLU"),
    "SwiGLU, timm": ({**STATE, DOWN: STATE[DOWN][:, :128].clone()}, "SwiGLU.*fc1"),
    "nothing": ({}, r"'embed\.weight' .* missing"),
}


@pytest.mark.parametrize("fault", BAD)
def test_what_does_not_fit_is_named(fault: str, tmp_path: Path) -> None:
    state, message = BAD[fault]
    file = written(state, tmp_path / "w.safetensors")
    with pytest.raises(DjepaError, match=rf"(?s)w\.safetensors.*{message}.*Give model"):
        load_dinov2(file, 70)


def test_an_image_must_hold_a_patch(tmp_path: Path) -> None:
    file = written(STATE, tmp_path / "w.safetensors")
    assert load_dinov2(file, 14).patches == 1
    with pytest.raises(DjepaError, match=r"image=13: .* smaller than a patch of 14.*image >= 14"):
        load_dinov2(file, 13)


@pytest.mark.parametrize("name", ["gone.safetensors", "gone.pth"])
def test_a_missing_file_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(DjepaError, match=rf"{name}.* no such file.*Give model"):
        load_dinov2(tmp_path / name)


def test_only_known_kinds_of_files_are_opened(tmp_path: Path) -> None:
    file = written(STATE, tmp_path / "w.bin")
    with pytest.raises(DjepaError, match=r"not a \.safetensors"):
        load_dinov2(file)


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
@pytest.mark.parametrize("part", [0, 5, 1000, -100])
def test_damaged_files_are_refused(suffix: str, part: int, tmp_path: Path) -> None:
    file = written(STATE, tmp_path / f"w{suffix}")
    file.write_bytes(file.read_bytes()[:part])
    with pytest.raises(DjepaError, match=r"damaged.*Give model"):
        load_dinov2(file)


def test_a_pickle_of_more_than_tensors_is_not_run(tmp_path: Path) -> None:
    torch.save({"cls_token": Path("x")}, tmp_path / "w.pth")
    with pytest.raises(DjepaError, match="holds more than tensors") as caught:
        load_dinov2(tmp_path / "w.pth")
    assert "weights_only" not in str(caught.value)


@pytest.mark.parametrize("content", [[1, 2], {"model": dict(STATE)}, torch.zeros(2)])
def test_a_torch_file_must_be_a_plain_dictionary(content: object, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(DjepaError, match="plain dictionary of tensors"):
        load_dinov2(tmp_path / "w.pth")


def test_numbered_tensors_are_refused(tmp_path: Path) -> None:
    torch.save({1: torch.zeros(2)}, tmp_path / "w.pth")
    with pytest.raises(DjepaError, match="'1' is not a tensor"):
        load_dinov2(tmp_path / "w.pth")


def test_names_alone_can_be_translated() -> None:
    names = set(rename_dinov2(STATE))
    assert names == set(ViT(70, 14, 128, 2, 2, 256, scaled=True).state_dict())
