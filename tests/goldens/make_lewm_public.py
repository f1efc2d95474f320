"""Record rollouts of a narrow random instance of stable-worldmodel's own LeWM class.

Not a test: it needs an environment with stable-worldmodel 0.1.1, transformers 5 and einops.

    python tests/goldens/make_lewm_public.py tests/goldens/lewm_public.safetensors
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from stable_worldmodel.wm.lewm.lewm import LeWM
from stable_worldmodel.wm.lewm.module import MLP, Embedder, Predictor
from torch import nn
from transformers import ViTConfig, ViTModel

MEAN, STD = torch.tensor([-0.0078, 0.0069]), torch.tensor([0.2085, 0.2067])
PIXEL_MEAN, PIXEL_STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])


def narrow() -> LeWM:
    """A small LeWM with random weights and random BatchNorm statistics."""
    sizes = ViTConfig(
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=48,
        image_size=28,
        patch_size=14,
    )
    model = LeWM(
        ViTModel(sizes, add_pooling_layer=False, use_mask_token=False),
        Predictor(
            num_frames=3, depth=2, heads=2, mlp_dim=40, input_dim=20, hidden_dim=20, dim_head=8
        ),
        Embedder(10, 10, 20),
        MLP(24, 32, 20, norm_fn=nn.BatchNorm1d),
        MLP(20, 32, 20, norm_fn=nn.BatchNorm1d),
    )
    for parameter in model.parameters():
        matrix = parameter.ndim > 1
        nn.init.normal_(parameter, mean=0.0 if matrix else 0.3, std=0.15 if matrix else 0.2)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2.0)
    return model.eval()


@torch.no_grad()
def record(model: LeWM) -> dict[str, torch.Tensor]:
    """Two starts, three candidates: inputs, goal latents and the five predicted latents."""
    random = torch.Generator().manual_seed(1)
    frames = torch.randint(0, 256, (2, 4, 28, 28, 3), generator=random, dtype=torch.uint8)
    history = torch.rand(2, 10, 2, generator=random) * 2 - 1
    candidates = torch.rand(2, 3, 25, 2, generator=random) * 2 - 1
    pixels = (frames / 255 - PIXEL_MEAN) / PIXEL_STD
    pixels = pixels.permute(0, 1, 4, 2, 3)

    def blocks(controls: torch.Tensor) -> torch.Tensor:
        return ((controls - MEAN) / STD).reshape(*controls.shape[:-2], -1, 10)

    actions = torch.cat([blocks(history)[:, None].expand(-1, 3, -1, -1), blocks(candidates)], 2)
    context = pixels[:, None, :3].expand(-1, 3, -1, -1, -1, -1)
    return {
        "frames": frames,
        "history": history,
        "candidates": candidates,
        "futures": model.rollout({"pixels": context}, actions)["predicted_emb"][:, :, -5:].clone(),
        "goal": model.encode({"pixels": pixels[:, 3:]})["emb"][:, 0].clone(),
    }


if __name__ == "__main__":
    torch.manual_seed(0)
    instance = narrow()
    state = {f"state.{name}": tensor.clone() for name, tensor in instance.state_dict().items()}
    save_file({**record(instance), **state}, Path(sys.argv[1]))
