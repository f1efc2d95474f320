"""Read DINOv2 weights (Oquab et al., 2023) as a frozen patch encoder.

Meta, timm and transformers name the same tensors differently (transformers' files and modules
differ too); all are accepted. Every tensor must be used, and every parameter must be set.
"""

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from djepa.errors import DjepaError, check_name
from djepa.models.nets import ViT

NAMES = ("small", "base", "large")
HEAD, EPS = 64, 1e-6  # the same in every published size; no tensor tells them
_NEEDED = "Give model.safetensors of facebook/dinov2-small, -base or -large, and image >= 14."
_LAYER, _OWN = r"(?:blocks|encoder\.layer)\.(\d+)\.", r"attention\.(?:attention\.|output\.)?"

# public pattern -> our name; \1 is the number of a layer
_RENAMES = (
    (r"(?:embeddings\.)?cls_token", "token"),
    (r"pos_embed|embeddings\.position_embeddings", "position"),
    (r"(?:patch_embed\.proj|embeddings\.patch_embeddings\.projection)\.(\w+)", r"embed.\1"),
    (r"(?:norm|layernorm)\.(\w+)", r"norm.\1"),
    (_LAYER + r"norm([12])\.(\w+)", r"blocks.\1.norm\2.\3"),
    (_LAYER + r"attn\.qkv\.(\w+)", r"blocks.\1.attention.qkv.\2"),
    (_LAYER + _OWN + r"([qkv])(?:uery|ey|alue|_proj)\.(\w+)", r"blocks.\1.attention.\2.\3"),
    (_LAYER + rf"(?:attn\.proj|{_OWN}(?:dense|o_proj))\.(\w+)", r"blocks.\1.attention.out.\2"),
    (_LAYER + r"(?:ls|layer_scale)([12])\.(?:gamma|lambda1)", r"blocks.\1.scale\2"),
    (_LAYER + r"mlp\.fc1\.(\w+)", r"blocks.\1.mlp.up.\2"),
    (_LAYER + r"mlp\.fc2\.(\w+)", r"blocks.\1.mlp.down.\2"),
)
_UNSUPPORTED = (
    (r"(?:embeddings\.)?(?:register_tokens|reg_token)", "register tokens"),
    (_LAYER + r"mlp\.(?:w12|w3|weights_in|weights_out|gate_proj)\.\w+", "SwiGLU layers"),
)


def load_dinov2(path: str | Path | None, image: int = 224, name: str = "small") -> ViT:
    """A frozen ViT from a file, or with None the one of size `name` in a cache.

    It maps (B, 3, image, image), ImageNet-normalised, to (B, 1 + P, width): the last hidden states
    after the final norm, the class token first. Where the stored positions have another grid they
    are interpolated as transformers does it; Meta's and timm's own code differ there a little.
    """
    file = find_dinov2(name) if path is None else Path(path)
    try:
        ours = rename_dinov2(_read(file))
        model = _empty(ours, image)
        ours["position"] = _resized(ours["position"], model.patches)
        model.load_state_dict(ours)
    except (DjepaError, RuntimeError) as error:
        raise DjepaError(f"{file} with image={image}: {error} {_NEEDED}") from None
    return model.eval().requires_grad_(False)


def find_dinov2(name: str = "small") -> Path:
    """The weights of this size in the cache of Hugging Face or torch hub; downloads nothing."""
    check_name("DINOv2 size", name, NAMES)
    home = os.environ.get("HF_HOME") or "~/.cache/huggingface"
    hub = Path(os.environ.get("HF_HUB_CACHE") or f"{home}/hub").expanduser()
    torch_home = Path(os.environ.get("TORCH_HOME") or "~/.cache/torch").expanduser()
    places = (
        (hub, f"models--facebook--dinov2-{name}/snapshots/*/model.safetensors"),
        (hub, f"models--timm--vit_{name}_patch14_dinov2.lvd142m/snapshots/*/model.safetensors"),
        (torch_home, f"hub/checkpoints/dinov2_vit{name[0]}14_pretrain.pth"),
    )
    found = [file for folder, pattern in places for file in sorted(folder.glob(pattern))]
    for file in filter(Path.is_file, found):  # a link may outlive what it points at
        return file
    tried = ", ".join(str(folder / pattern) for folder, pattern in places)
    raise DjepaError(f"No DINOv2 '{name}' is cached. {_NEEDED} Looked for: {tried}")


def rename_dinov2(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Public names -> ours, in float32; separate query, key and value are stacked."""
    ours: dict[str, Tensor] = {}
    for key, tensor in tensors.items():
        bare = re.sub(r"^(?:dinov2|backbone)\.", "", key)
        if bare in ("mask_token", "embeddings.mask_token"):  # hides patches in training only
            continue
        if (name := _renamed(bare)) in ours:
            raise DjepaError(f"'{key}' is there in two spellings.")
        ours[name] = tensor.float()
    for query in [name for name in ours if ".attention.q." in name]:
        whole, *roles = (query.replace(".q.", f".{part}.") for part in ("qkv", "q", "k", "v"))
        if whole not in ours and all(role in ours for role in roles):  # else the load names them
            ours[whole] = torch.cat([ours.pop(role) for role in roles])
    return ours


def _renamed(key: str) -> str:
    for pattern, what in _UNSUPPORTED:
        if re.fullmatch(pattern, key):
            raise DjepaError(f"It has {what} ('{key}').")
    for pattern, name in _RENAMES:
        if found := re.fullmatch(pattern, key):
            return found.expand(name)
    raise DjepaError(f"'{key}' is not a tensor of a DINOv2.")


def _read(file: Path) -> dict[str, Tensor]:
    if not file.is_file() or file.suffix not in (".safetensors", ".pth", ".pt"):
        raise DjepaError("There is no such file, or it is not a .safetensors, .pth or .pt.")
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        tensors = torch.load(file, map_location="cpu", weights_only=True)
    except Exception:  # a damaged pickle raises nearly anything; torch would advise to trust it
        raise DjepaError("It is damaged, or holds more than tensors.") from None
    if not isinstance(tensors, dict) or not all(isinstance(t, Tensor) for t in tensors.values()):
        raise DjepaError("It is not a plain dictionary of tensors.")
    return {str(key): tensor for key, tensor in tensors.items()}


def _empty(ours: Mapping[str, Tensor], image: int) -> ViT:
    """A ViT with the sizes inferred from the tensors' shapes, without initial weights."""
    names = ("embed.weight", "position", "blocks.0.mlp.up.weight", "blocks.0.mlp.down.weight")
    for name, axes in zip(names, (4, 3, 2, 2), strict=True):
        if name not in ours or ours[name].ndim != axes:
            raise DjepaError(f"'{name}' (our name) is missing or has not {axes} axes.")
    (width, _, patch, _), (_, tokens, _), (hidden, _), (_, inner) = (ours[n].shape for n in names)
    depth = len({name.split(".")[1] for name in ours if name.startswith("blocks.")})
    if hidden == 2 * inner:
        raise DjepaError("It has SwiGLU layers (fc1 gives twice what fc2 takes).")
    if width < HEAD or width % HEAD:
        raise DjepaError(f"Its width {width} is not a multiple of {HEAD}, the width of a head.")
    if tokens < 2 or math.isqrt(tokens - 1) ** 2 != tokens - 1:
        raise DjepaError(f"Its {tokens} positions are not a class token and a square of patches.")
    if not 0 < patch <= image:
        raise DjepaError(f"The image is smaller than a patch of {patch} pixels.")
    with torch.device("meta"):
        model = ViT(image, patch, width, depth, width // HEAD, hidden, EPS, scaled=True)
    return model.to_empty(device="cpu")


def _resized(position: Tensor, patches: int) -> Tensor:
    """(1, 1 + stored, width) -> (1, 1 + patches, width), the class token's untouched."""
    side, grid = math.isqrt(position.shape[1] - 1), math.isqrt(patches)
    square = position[:, 1:].unflatten(1, (side, side)).permute(0, 3, 1, 2)
    square = nn.functional.interpolate(square, size=(grid, grid), mode="bicubic")
    return torch.cat([position[:, :1], square.flatten(2).transpose(1, 2)], dim=1)
