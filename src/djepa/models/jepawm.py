"""JEPA-WM: a predictor over frozen patch features that reads the action in every layer (Terver et
al., 2026).

One token per patch and one for proprioception; AdaLN from the action block of the frame, rotary
positions in time, row and column; trained one step ahead and on short rollouts; the planning cost
is visual + 0.1 · proprioceptive.

Legend: B batch, T frames, P tokens of a frame, W predictor width, A action width.
"""

from dataclasses import replace

import torch
from torch import Tensor

from djepa.models.linear import Linear
from djepa.models.patches import DINOV2_SMALL, PROPRIO, PatchConfig, PatchGeometry

SMALL = PatchConfig()
PAPER = replace(
    DINOV2_SMALL, image=224, predictor_width=400, predictor_head=25, predictor_hidden=1600
)
SIZES = {"small": SMALL, "paper": PAPER}


class JEPAWM(PatchGeometry):
    """Patch tokens + a proprioception token, AdaLN + RoPE."""

    name = "jepawm"
    proprio_weight = 0.1

    def __init__(self, config: PatchConfig = SMALL, chunk: int = 128) -> None:
        super().__init__(config, chunk)
        c = config
        W = c.predictor_width
        self.patch_in, self.patch_out = Linear(c.features, W), Linear(W, c.features)
        self.proprio_in, self.proprio_out = Linear(PROPRIO, W), Linear(W, PROPRIO)
        self.action_in = Linear(c.stride * c.actions, W)
        self.predictor = self.frame_predictor(extra=1, conditional=True)

    def tokens(self, latents: Tensor, blocks: Tensor) -> tuple[Tensor, Tensor | None]:
        """Latents -> tokens; blocks -> conditions."""
        patches, proprio = self.split(latents)
        body = self.proprio_in(proprio)[..., None, :]
        return torch.cat([self.patch_in(patches), body], dim=-2), self.action_in(blocks)

    def read(self, tokens: Tensor) -> Tensor:
        """Patch tokens -> features, the last token -> proprioception."""
        patches, body = self.patch_out(tokens[..., :-1, :]), self.proprio_out(tokens[..., -1, :])
        return torch.cat([patches.flatten(-2), body], dim=-1)
