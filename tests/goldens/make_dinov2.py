"""Record what a narrow random instance of transformers' own Dinov2Model computes.

Not a test: it needs an environment with transformers 5, which the project does not depend on. The
weights are kept under the names `save_pretrained` writes, which are those of the public files.

    python tests/goldens/make_dinov2.py tests/goldens/dinov2.safetensors
"""

import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import Dinov2Config, Dinov2Model

SIZES = (70, 112)  # the size of the stored positions, and one that needs them interpolated


def narrow() -> Dinov2Model:
    """Two layers of two heads; random norms, biases and layer scales."""
    sizes = Dinov2Config(
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        mlp_ratio=2,
        image_size=SIZES[0],
        patch_size=14,
    )
    model = Dinov2Model(sizes)
    for name, parameter in model.named_parameters():
        matrix = parameter.ndim > 1
        nn.init.normal_(parameter, mean=0.0 if matrix else 0.3, std=0.1 if matrix else 0.2)
        if name.startswith("embeddings."):
            # Tokens so faint that the epsilon of the first norm shows in the output.
            parameter.data *= 0.01 if "projection" in name else 0.2
    return model.eval()


def public_tensors(model: Dinov2Model) -> dict[str, torch.Tensor]:
    """The tensors of the file that the library itself would publish."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return load_file(Path(folder) / "model.safetensors")


@torch.no_grad()
def record(model: Dinov2Model) -> dict[str, torch.Tensor]:
    """Normalised images (1, 3, size, size) and last hidden states (1, 1 + P, 128) of each size."""
    random = torch.Generator().manual_seed(1)
    kept = {}
    for size in SIZES:
        images = torch.empty(1, 3, size, size).normal_(generator=random)
        kept[f"images.{size}"] = images
        kept[f"states.{size}"] = model(pixel_values=images).last_hidden_state.clone()
    return kept


if __name__ == "__main__":
    torch.manual_seed(0)
    instance = narrow()
    state = {f"state.{name}": tensor for name, tensor in public_tensors(instance).items()}
    save_file({**record(instance), **state}, Path(sys.argv[1]))
