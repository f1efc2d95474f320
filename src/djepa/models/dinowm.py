"""DINO-WM: next-frame prediction over frozen patch features (Zhou et al., 2025).

Action and proprioception are embedded in ten numbers each and written into every patch token; the
predictor attends causally between frames, all patches of a frame at once; it is trained one step
ahead; the planning cost is the patch error + the proprioceptive error.

Legend: B batch, T frames, P tokens of a frame, W predictor width, A action width.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from djepa.models.linear import Linear
from djepa.models.patches import DINOV2_SMALL, PROPRIO, PatchConfig, PatchGeometry

EMBED = 10  # numbers of a token for the action, and for proprioception
SMALL = PatchConfig()
PAPER = replace(
    DINOV2_SMALL,
    image=196,
    predictor_width=404,
    predictor_head=64,
    predictor_hidden=2048,
    dropout=0.1,
)
SIZES = {"small": SMALL, "paper": PAPER}


class DINOWM(PatchGeometry):
    """Patch tokens that carry action and proprioception, learned positions."""

    name = "dinowm"
    proprio_weight = 1.0

    def __init__(self, config: PatchConfig = SMALL, chunk: int = 128) -> None:
        super().__init__(config, chunk)
        c = config
        token, W = c.features + 2 * EMBED, c.predictor_width
        self.proprio_in = Linear(PROPRIO, EMBED)
        self.action_in = Linear(c.stride * c.actions, EMBED)
        self.patch_in = nn.Identity() if token == W else Linear(token, W)
        self.patch_out = Linear(W, c.features)
        self.proprio_out = Linear(W, PROPRIO)
        self.predictor = self.frame_predictor(extra=0, conditional=False)

    def tokens(self, latents: Tensor, blocks: Tensor) -> tuple[Tensor, Tensor | None]:
        """Latents and blocks -> tokens; there is no condition beside them."""
        patches, proprio = self.split(latents)
        same = torch.cat([self.proprio_in(proprio), self.action_in(blocks)], dim=-1)[..., None, :]
        if isinstance(self.patch_in, nn.Linear):  # W [a; b] = W_a a + W_b b: b is the same for all
            seen, same_in = self.patch_in.weight.split([self.config.features, 2 * EMBED], dim=1)
            return F.linear(patches, seen) + F.linear(same, same_in, self.patch_in.bias), None
        return torch.cat([patches, same.expand(*patches.shape[:-1], -1)], dim=-1), None

    def read(self, tokens: Tensor) -> Tensor:
        """Every token -> features; their mean -> proprioception."""
        body = self.proprio_out(tokens.mean(-2))
        return torch.cat([self.patch_out(tokens).flatten(-2), body], dim=-1)
