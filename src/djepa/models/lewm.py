"""LeWM: a joint-embedding world model trained end to end (Maes et al., 2026).

One vector per frame, z = projector(CLS of a ViT); a causal predictor turns three of them and the
actions that follow into the next; the planning cost is the mean squared distance of the last
predicted latent to the goal's.

Legend: N starts, K candidates, B blocks of five controls, T frames, A action width, D latent.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from djepa.models.nets import ActionEncoder, CausalPredictor, Memory, Projector, ViT
from djepa.models.protocol import CONTEXT, STRIDE

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class LeWMConfig:
    """Sizes. The defaults are the published ones: about 18 M parameters."""

    may_lack = ("stride",)  # newer than the first weights

    image: int = 224
    patch: int = 14
    width: int = 192
    depth: int = 12
    heads: int = 3
    hidden: int = 768
    latent: int = 192
    projector: int = 2048
    predictor_depth: int = 6
    predictor_heads: int = 16
    predictor_head: int = 64
    predictor_hidden: int = 2048
    dropout: float = 0.1
    actions: int = 2
    stride: int = STRIDE  # controls of a block


PAPER = LeWMConfig()
SMALL = LeWMConfig(
    image=112,
    depth=6,
    projector=768,
    predictor_heads=8,
    predictor_head=32,
    predictor_hidden=768,
    dropout=0.0,
)
WIDE = replace(SMALL, predictor_heads=16, predictor_hidden=1536)  # twice the predictor
COARSE = replace(  # for training on a CPU: a thirteenth of the operations of `small`
    SMALL,
    image=84,
    width=96,
    depth=4,
    hidden=384,
    latent=96,
    projector=384,
    predictor_depth=4,
    predictor_heads=4,
    predictor_hidden=512,
)
SIZES = {"small": SMALL, "wide": WIDE, "coarse": COARSE, "paper": PAPER}


class LeWM(nn.Module):
    """Encoder, projector, action encoder, predictor, prediction projection."""

    name = "lewm"

    def __init__(self, config: LeWMConfig = SMALL, chunk: int = 1024) -> None:
        super().__init__()
        c = config
        self.config, self.chunk = config, chunk
        self.encoder = ViT(c.image, c.patch, c.width, c.depth, c.heads, c.hidden)
        self.projector = Projector(c.width, c.projector, c.latent)
        self.action_encoder = ActionEncoder(c.stride * c.actions, c.latent)
        self.predictor = CausalPredictor(
            CONTEXT,
            c.latent,
            c.predictor_depth,
            c.predictor_heads,
            c.predictor_head,
            c.predictor_hidden,
            c.dropout,
        )
        self.pred_proj = Projector(c.latent, c.projector, c.latent)
        self.register_buffer("action_mean", torch.zeros(c.actions))
        self.register_buffer("action_std", torch.ones(c.actions))
        mean, std = torch.tensor(IMAGENET_MEAN), torch.tensor(IMAGENET_STD)
        self.register_buffer("pixel_mean", mean[:, None, None], persistent=False)
        self.register_buffer("pixel_std", std[:, None, None], persistent=False)
        self.pixel_mean: Tensor
        self.pixel_std: Tensor
        self.action_mean: Tensor
        self.action_std: Tensor

    @property
    def image(self) -> int:
        """Side of a frame in pixels."""
        return self.config.image

    @property
    def latent(self) -> int:
        """D."""
        return self.config.latent

    @property
    def stride(self) -> int:
        """Controls of a block."""
        return self.config.stride

    def embed(self, frames: Tensor) -> Tensor:
        """uint8 frames (..., image, image, 3) -> latents (..., D), gradients and all."""
        pixels = frames.flatten(0, -4).permute(0, 3, 1, 2) / 255.0
        z = self.projector(self.encoder((pixels - self.pixel_mean) / self.pixel_std)[:, 0])
        return z.view(*frames.shape[:-3], -1)

    def blocks(self, controls: Tensor) -> Tensor:
        """Raw controls (..., 5 B, A) -> standardised blocks (..., B, 5 A)."""
        scaled = (controls - self.action_mean) / self.action_std
        return scaled.unflatten(-2, (-1, self.config.stride)).flatten(-2)

    def predict(self, latents: Tensor, blocks: Tensor) -> Tensor:
        """(B, T, D) latents and the blocks that follow each -> (B, T, D) the next latents."""
        return self.pred_proj(self.predictor(latents, self.action_encoder(blocks)))

    def unroll(self, latents: Tensor, blocks: Tensor, noise: Tensor | None = None) -> Tensor:
        """(B, 3, D) latents, (B, 2 + S, 5 A) blocks -> (B, S, D): S steps, predictions fed back.

        `noise` (B, S, D) is added to what is fed back, if it is not empty.
        """
        window, futures = latents, []
        for step in range(blocks.shape[1] - CONTEXT + 1):
            after = self.predict(window, blocks[:, step : step + CONTEXT])[:, -1]
            futures.append(after)
            if noise is not None and noise.shape[1]:
                after = after + noise[:, step]
            window = torch.cat([window[:, 1:], after[:, None]], dim=1)
        return torch.stack(futures, dim=1)

    @torch.inference_mode()
    def encode(self, frames: Tensor, proprio: Tensor) -> Tensor:
        """Frames -> latents; this geometry takes nothing from proprioception."""
        return self.embed(frames)

    @torch.inference_mode()
    def rollout(self, context: Tensor, history: Tensor, candidates: Tensor) -> Tensor:
        """Futures (N, K, B, D), at most `chunk` candidates in memory at a time.

        Equal to `unroll`, without repeated work: tokens that candidates share are computed once per
        start, action modulations once per layer, and of each window only the last token.
        """
        N, K = candidates.shape[:2]
        shared = self._shared(context, history)
        blocks = self.blocks(candidates).flatten(0, 1)
        futures = []
        for rows in torch.arange(N * K, device=context.device).split(self.chunk):
            start = rows // K
            futures.append(self._follow(context[start, -1:], blocks[rows], shared, start))
        return torch.cat(futures).unflatten(0, (N, K))

    def _shared(self, context: Tensor, history: Tensor) -> list[Memory]:
        """Per step, the tokens of the window that come before any action of a candidate.

        At the first step these are two frames, at the second one, then none.
        """
        past = self.predictor.modulations(self.action_encoder(self.blocks(history)))
        return [
            self.predictor.remember(context[:, step:-1], [layer[:, step:] for layer in past])
            for step in range(CONTEXT - 1)
        ]

    def _follow(
        self, window: Tensor, blocks: Tensor, shared: list[Memory], start: Tensor
    ) -> Tensor:
        """(R, 1, D) present latents, (R, B, 5 A) blocks, (R,) their starts -> (R, B, D)."""
        modulations = self.predictor.modulations(self.action_encoder(blocks))
        futures: list[Tensor] = []
        for step in range(blocks.shape[1]):
            before = None
            if step < len(shared):
                before = [(keys[start], values[start]) for keys, values in shared[step]]
            now = slice(step + 1 - window.shape[1], step + 1)
            last = self.predictor.last(window, [layer[:, now] for layer in modulations], before)
            futures.append(self.pred_proj(last))
            window = torch.cat([window, futures[-1]], dim=1)[:, -CONTEXT:]
        return torch.cat(futures, dim=1)

    def native_cost(self, futures: Tensor, goal: Tensor) -> Tensor:
        """Terminal mean squared distance, in float32: (N, K, B, D), (N, D) -> (N, K)."""
        return (futures[:, :, -1].float() - goal[:, None].float()).square().mean(-1)
