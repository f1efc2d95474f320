"""V-JEPA 2-AC from its own code and weights, which are neither shipped nor downloaded.

    model = load_vjepa2("clones/vjepa2", "vjepa2-ac-vitg.pt")
    cost = native_costs(model, Scene("arm", "push"), starts)      # djepa.models.planner_pool

The first is a clone of its repository, whose `hubconf.py` builds encoder and predictor without
weights; the second is the file of weights. One frame is shown twice, as a tubelet of two.

Legend: B rows, P = 256 tokens of a frame, W width of a token.
"""

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from djepa.errors import DjepaError
from djepa.models.ac import ACGeometry
from djepa.models.lewm import IMAGENET_MEAN, IMAGENET_STD

ENTRY = "vjepa2_ac_vit_giant"
PREFIXES = ("module.", "backbone.")


class VJEPA2AC(ACGeometry):
    """A given encoder and predictor behind the interface of the small model."""

    name = "vjepa2-ac"

    def __init__(self, encoder: nn.Module, predictor: nn.Module, image: int = 256) -> None:
        super().__init__()
        self.encoder, self.predictor = encoder, predictor
        self.image, self.grid, self.chunk = image, image // 16, 8
        self.register_buffer("mean", torch.tensor(IMAGENET_MEAN)[:, None, None])
        self.register_buffer("std", torch.tensor(IMAGENET_STD)[:, None, None])
        self.mean: Tensor
        self.std: Tensor
        self.width = int(self.tokens(torch.zeros(1, image, image, 3, dtype=torch.uint8)).shape[-1])

    @torch.inference_mode()
    def tokens(self, frames: Tensor) -> Tensor:
        """uint8 frames (B, I, I, 3) -> (B, P, W), layer-normed."""
        pixels = (frames.to(self.mean.device).permute(0, 3, 1, 2) / 255 - self.mean) / self.std
        tokens = self.encoder(pixels[:, :, None].repeat(1, 1, 2, 1, 1))
        if tokens.shape[1] != self.grid**2:
            raise DjepaError(
                f"The encoder gives {tokens.shape[1]} tokens a frame of {self.image} pixels, "
                f"not {self.grid**2}."
            )
        return F.layer_norm(tokens, tokens.shape[-1:])

    @torch.inference_mode()
    def predict(self, tokens: Tensor, actions: Tensor, poses: Tensor) -> Tensor:
        """(B, P, W), (B, 7), (B, 7) -> (B, P, W)."""
        after = self.predictor(tokens, actions[:, None], poses[:, None])[:, -tokens.shape[1] :]
        return F.layer_norm(after, after.shape[-1:])


def load_vjepa2(
    repository: str | Path, weights: str | Path, device: str = "cpu", entry: str = ENTRY
) -> VJEPA2AC:
    """Build it by the repository's own code and fill in the weights; strict."""
    for what, path in (("clone of its repository", repository), ("file of weights", weights)):
        if not Path(path).exists():
            raise DjepaError(f"There is no {what} at {path}.")
    made: Any = torch.hub.load(str(repository), entry, source="local", pretrained=False)
    stored = torch.load(weights, map_location="cpu", weights_only=True)
    for name, part in zip(("encoder", "predictor"), made, strict=True):
        if name not in stored:
            raise DjepaError(f"{weights} holds no '{name}', but {', '.join(stored)}.")
        try:
            part.load_state_dict({_plain(key): value for key, value in stored[name].items()})
        except RuntimeError as error:
            raise DjepaError(f"{weights}: its {name} does not fit ({error}).") from None
    return VJEPA2AC(*made).to(device).eval().requires_grad_(False)


def _plain(key: str) -> str:
    """A tensor's name without what training wrapped around the module."""
    for prefix in PREFIXES:
        key = key.removeprefix(prefix)
    return key
