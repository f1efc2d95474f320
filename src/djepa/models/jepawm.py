"""JEPA-WM: a predictor over frozen patch features that reads the action in every layer (Terver et
al., 2026).

One token per patch and one for proprioception; AdaLN from the action block of the frame, rotary
positions in time, row and column; trained one step ahead and on short rollouts; the planning cost
is visual + 0.1 · proprioceptive.

Legend: B batch, T frames, P tokens of a frame, W predictor width, A action width.
"""

import torch
from torch import Tensor, nn

from djepa.models.frames import FramePredictor
from djepa.models.patches import PROPRIO, PatchConfig, PatchGeometry

SMALL = PatchConfig()
PAPER = PatchConfig(
    image=224,
    width=384,
    depth=12,
    heads=6,
    hidden=1536,
    scaled=True,
    merge=1,
    predictor_width=400,
    predictor_depth=6,
    predictor_heads=16,
    predictor_head=25,
    predictor_hidden=1600,
    residual=False,
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
        self.patch_in, self.patch_out = nn.Linear(c.features, W), nn.Linear(W, c.features)
        self.proprio_in, self.proprio_out = nn.Linear(PROPRIO, W), nn.Linear(W, PROPRIO)
        self.action_in = nn.Linear(c.stride * c.actions, W)
        self.predictor = FramePredictor(
            c.grid,
            1,
            W,
            c.predictor_depth,
            c.predictor_heads,
            c.predictor_head,
            c.predictor_hidden,
            conditional=True,
            dropout=c.dropout,
        )

    def tokens(self, latents: Tensor, blocks: Tensor) -> tuple[Tensor, Tensor | None]:
        """Latents -> tokens; blocks -> conditions."""
        patches, proprio = self.split(latents)
        body = self.proprio_in(proprio)[..., None, :]
        return torch.cat([self.patch_in(patches), body], dim=-2), self.action_in(blocks)

    def read(self, tokens: Tensor) -> Tensor:
        """Patch tokens -> features, the last token -> proprioception."""
        patches, body = self.patch_out(tokens[..., :-1, :]), self.proprio_out(tokens[..., -1, :])
        return torch.cat([patches.flatten(-2), body], dim=-1)
