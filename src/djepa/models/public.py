"""Read public LeWM weights: stable-worldmodel's LeWM around a HuggingFace ViT.

Transformers 4 and transformers 5 name the ViT's tensors differently; both are accepted. Every
tensor must be used, and every parameter must be set.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from djepa.errors import DjepaError
from djepa.models.lewm import LeWM, LeWMConfig

# public pattern -> our name; \1 is the number of a layer, \2 is weight or bias
_RENAMES = (
    (r"encoder\.embeddings\.cls_token", "encoder.token"),
    (r"encoder\.embeddings\.position_embeddings", "encoder.position"),
    (r"encoder\.embeddings\.patch_embeddings\.projection\.()(\w+)", r"encoder.embed.\2"),
    (r"encoder\.layernorm\.()(\w+)", r"encoder.norm.\2"),
    (r"{layer}attention\.(?:output\.dense|o_proj)\.(\w+)", r"encoder.blocks.\1.attention.out.\2"),
    (r"{layer}(?:intermediate\.dense|mlp\.fc1)\.(\w+)", r"encoder.blocks.\1.mlp.up.\2"),
    (r"{layer}(?:output\.dense|mlp\.fc2)\.(\w+)", r"encoder.blocks.\1.mlp.down.\2"),
    (r"{layer}layernorm_before\.(\w+)", r"encoder.blocks.\1.norm1.\2"),
    (r"{layer}layernorm_after\.(\w+)", r"encoder.blocks.\1.norm2.\2"),
    (r"predictor\.pos_embedding", "predictor.position"),
    (r"predictor\.transformer\.norm\.()(\w+)", r"predictor.norm.\2"),
    (r"{block}attn\.norm\.(\w+)", r"predictor.blocks.\1.norm1.\2"),
    (r"{block}attn\.to_qkv\.(\w+)", r"predictor.blocks.\1.attention.qkv.\2"),
    (r"{block}attn\.to_out\.0\.(\w+)", r"predictor.blocks.\1.attention.out.\2"),
    (r"{block}mlp\.net\.0\.(\w+)", r"predictor.blocks.\1.norm2.\2"),
    (r"{block}mlp\.net\.1\.(\w+)", r"predictor.blocks.\1.mlp.up.\2"),
    (r"{block}mlp\.net\.4\.(\w+)", r"predictor.blocks.\1.mlp.down.\2"),
    (r"{block}adaLN_modulation\.1\.(\w+)", r"predictor.blocks.\1.modulation.\2"),
    (r"action_encoder\.patch_embed\.()(\w+)", r"action_encoder.mix.\2"),
    (r"action_encoder\.embed\.0\.()(\w+)", r"action_encoder.up.\2"),
    (r"action_encoder\.embed\.2\.()(\w+)", r"action_encoder.down.\2"),
    (r"(projector|pred_proj)\.net\.0\.(\w+)", r"\1.up.\2"),
    (r"(projector|pred_proj)\.net\.1\.(\w+)", r"\1.norm.\2"),
    (r"(projector|pred_proj)\.net\.3\.(\w+)", r"\1.down.\2"),
)
_LAYER = r"encoder\.(?:encoder\.layer|layers|encoder\.layers)\.(\d+)\."
_BLOCK = r"predictor\.transformer\.layers\.(\d+)\."
_QKV = re.compile(
    _LAYER + r"attention\.(?:attention\.)?(query|key|value|q_proj|k_proj|v_proj)\.(\w+)"
)
_PATTERNS = [
    (re.compile(pattern.replace("{layer}", _LAYER).replace("{block}", _BLOCK)), name)
    for pattern, name in _RENAMES
]


def rename_public(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Public names -> ours; separate query, key and value are stacked."""
    ours: dict[str, Tensor] = {}
    parts: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        split = _QKV.fullmatch(key)
        if split:
            layer, role, kind = split.groups()
            parts.setdefault(f"encoder.blocks.{layer}.attention.qkv.{kind}", {})[role[0]] = tensor
            continue
        for pattern, name in _PATTERNS:
            found = pattern.fullmatch(key)
            if found:
                # The 1 x 1 convolution over time is a linear map.
                wide = name.endswith("mix.\\2") and tensor.ndim == 3
                ours[found.expand(name)] = tensor.squeeze(-1) if wide else tensor
                break
        else:
            raise DjepaError(f"'{key}' is not a tensor of a public LeWM.")
    for name, roles in parts.items():
        if set(roles) != {"q", "k", "v"}:
            raise DjepaError(f"Query, key or value is missing for '{name}'.")
        ours[name] = torch.cat([roles["q"], roles["k"], roles["v"]])
    return ours


def load_public_lewm(
    tensors: Mapping[str, Tensor],
    action_mean: tuple[float, ...],
    action_std: tuple[float, ...],
    config: LeWMConfig | None = None,
) -> LeWM:
    """A LeWM from a public state dict and the statistics of the actions it was trained on."""
    model = LeWM(config or LeWMConfig())
    ours = rename_public(tensors)
    ours["action_mean"] = torch.tensor(action_mean)
    ours["action_std"] = torch.tensor(action_std)
    try:
        model.load_state_dict(ours)
    except RuntimeError as error:
        raise DjepaError(f"The tensors do not fit a LeWM of this size: {error}") from None
    return model.eval().requires_grad_(False)
