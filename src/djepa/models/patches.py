"""What the patch geometries share: frozen patch features, proprioception, and the rollout.

A latent is the standardised features of a frame's patches, neighbours merged into one token, and
after them the pusher's standardised position and velocity: D = P · merged features + 4. Two
predictors stand on it: `JEPAWM` and `DINOWM`.

Legend: N starts, K candidates, B rows or blocks, T frames, P tokens of a frame, A action width.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from djepa.models.frames import FramePredictor, Past, pick
from djepa.models.lewm import IMAGENET_MEAN, IMAGENET_STD
from djepa.models.nets import ViT
from djepa.models.protocol import CONTEXT, STRIDE

PROPRIO = 4  # what is felt: on push the pusher's x, y and their velocities


@dataclass(frozen=True)
class PatchConfig:
    """Sizes of the frozen encoder and of the predictor. The defaults are the ones that ship."""

    may_lack = ("stride",)  # newer than the first weights

    image: int = 112
    patch: int = 14
    width: int = 96
    depth: int = 6
    heads: int = 3
    hidden: int = 384
    scaled: bool = False  # LayerScale in the encoder's blocks, as DINOv2 has it
    merge: int = 2  # patches merged along each side
    predictor_width: int = 192
    predictor_depth: int = 3
    predictor_heads: int = 6
    predictor_head: int = 32
    predictor_hidden: int = 384
    dropout: float = 0.0
    residual: bool = True  # predict the change of a latent, not the latent
    actions: int = 2
    stride: int = STRIDE  # controls of a block

    @property
    def grid(self) -> int:
        """Tokens along a side."""
        return self.image // self.patch // self.merge

    @property
    def features(self) -> int:
        """Numbers of a token."""
        return self.merge**2 * self.width


DINOV2_SMALL = PatchConfig(  # the encoder of the published sizes, and what their predictors share
    width=384,
    depth=12,
    heads=6,
    hidden=1536,
    scaled=True,
    merge=1,
    predictor_depth=6,
    predictor_heads=16,
    residual=False,
)


class PatchGeometry(nn.Module, ABC):
    """Encoder, merging, standardisation, rollout, cost; a geometry adds `tokens` and `read`."""

    name: str
    proprio_weight: float
    predictor: FramePredictor

    def __init__(self, config: PatchConfig, chunk: int = 128) -> None:
        super().__init__()
        c = config
        self.config, self.chunk = config, chunk
        self.encoder = ViT(c.image, c.patch, c.width, c.depth, c.heads, c.hidden, 1e-6, c.scaled)
        self.register_buffer("action_mean", torch.zeros(c.actions))
        self.register_buffer("action_std", torch.ones(c.actions))
        self.register_buffer("proprio_mean", torch.zeros(PROPRIO))
        self.register_buffer("proprio_std", torch.ones(PROPRIO))
        self.register_buffer("feature_mean", torch.zeros(c.width))
        self.register_buffer("feature_std", torch.ones(c.width))
        mean, std = torch.tensor(IMAGENET_MEAN), torch.tensor(IMAGENET_STD)
        self.register_buffer("pixel_mean", mean[:, None, None], persistent=False)
        self.register_buffer("pixel_std", std[:, None, None], persistent=False)
        self.action_mean: Tensor
        self.action_std: Tensor
        self.proprio_mean: Tensor
        self.proprio_std: Tensor
        self.feature_mean: Tensor
        self.feature_std: Tensor
        self.pixel_mean: Tensor
        self.pixel_std: Tensor

    @property
    def image(self) -> int:
        """Side of a frame in pixels."""
        return self.config.image

    @property
    def latent(self) -> int:
        """D."""
        return self.config.grid**2 * self.config.features + PROPRIO

    @property
    def stride(self) -> int:
        """Controls of a block."""
        return self.config.stride

    def frame_predictor(self, extra: int, conditional: bool) -> FramePredictor:
        """A fresh one, for `extra` tokens beside the patches of a frame."""
        c = self.config
        sizes = c.predictor_depth, c.predictor_heads, c.predictor_head, c.predictor_hidden
        return FramePredictor(
            c.grid, extra, c.predictor_width, *sizes, conditional=conditional, dropout=c.dropout
        )

    @abstractmethod
    def tokens(self, latents: Tensor, blocks: Tensor) -> tuple[Tensor, Tensor | None]:
        """(B, T, D), (B, T, 5 A) -> tokens (B, T, P, W), conditions (B, T, W) or None."""

    @abstractmethod
    def read(self, tokens: Tensor) -> Tensor:
        """(B, T, P, W) what the predictor says -> (B, T, D)."""

    def patch_features(self, frames: Tensor) -> Tensor:
        """uint8 frames (n, image, image, 3) -> raw features of every patch (n, patches, width)."""
        pixels = frames.permute(0, 3, 1, 2) / 255.0
        return self.encoder((pixels - self.pixel_mean) / self.pixel_std)[:, 1:]

    def merged(self, features: Tensor) -> Tensor:
        """(n, patches, width) -> (n, P, merged features): neighbours side by side in one token."""
        g, m = self.config.grid, self.config.merge
        x = features.view(-1, g, m, g, m, self.config.width)
        return x.permute(0, 1, 3, 2, 4, 5).reshape(features.shape[0], g * g, -1)

    def split(self, latents: Tensor) -> tuple[Tensor, Tensor]:
        """(..., D) -> patches (..., P, features), proprioception (..., 4)."""
        patches, proprio = latents.split([self.latent - PROPRIO, PROPRIO], dim=-1)
        return patches.unflatten(-1, (-1, self.config.features)), proprio

    def blocks(self, controls: Tensor) -> Tensor:
        """Raw controls (..., 5 B, A) -> standardised blocks (..., B, 5 A)."""
        scaled = (controls - self.action_mean) / self.action_std
        return scaled.unflatten(-2, (-1, self.config.stride)).flatten(-2)

    def advance(
        self, latents: Tensor, blocks: Tensor, first: int = 0, past: Past | None = None
    ) -> tuple[Tensor, Past]:
        """(B, T, D) latents and the blocks that follow each -> (B, T, D) the next ones, past."""
        x, condition = self.tokens(latents, blocks)
        x, past = self.predictor(x, condition, first, past)
        after = self.read(x)
        return (latents + after if self.config.residual else after), past

    def predict(self, latents: Tensor, blocks: Tensor) -> Tensor:
        """One step ahead of every frame of a window: (B, T, D), (B, T, 5 A) -> (B, T, D)."""
        return self.advance(latents, blocks)[0]

    def unroll(self, latents: Tensor, blocks: Tensor, noise: Tensor | None = None) -> Tensor:
        """(B, 3, D) latents, (B, 2 + S, 5 A) blocks -> (B, S, D): S steps, predictions fed back.

        `noise` (B, S, D) is added to what is fed back, if it is not empty.
        """
        before = CONTEXT - 1
        _, past = self.advance(latents[:, :before], blocks[:, :before])
        steps = self._steps(latents[:, before:], blocks[:, before:], past, noise)
        return torch.cat(list(steps), dim=1)

    def _steps(
        self, now: Tensor, blocks: Tensor, past: Past, noise: Tensor | None = None
    ) -> Iterator[Tensor]:
        """(R, 1, D) present latents, (R, B, 5 A) blocks -> B times (R, 1, D), one after another."""
        for step in range(blocks.shape[1]):
            now, past = self.advance(now, blocks[:, step : step + 1], CONTEXT - 1 + step, past)
            yield now
            if noise is not None and noise.shape[1]:
                now = now + noise[:, step : step + 1]

    @torch.inference_mode()
    def encode(self, frames: Tensor, proprio: Tensor) -> Tensor:
        """Frames (..., image, image, 3) and proprioception (..., 4) -> latents (..., D)."""
        raw = self.patch_features(frames.flatten(0, -4)).float()
        patches = self.merged((raw - self.feature_mean) / self.feature_std)
        body = (proprio.float() - self.proprio_mean) / self.proprio_std
        return torch.cat([patches.flatten(1), body.reshape(-1, PROPRIO)], dim=1).view(
            *frames.shape[:-3], -1
        )

    @torch.inference_mode()
    def rollout(self, context: Tensor, history: Tensor, candidates: Tensor) -> Tensor:
        """Futures (N, K, B, D), at most `chunk` candidates in memory; the past is shared by all."""
        N, K = candidates.shape[:2]
        before, after = self.blocks(history), self.blocks(candidates).flatten(0, 1)
        _, past = self.advance(context[:, :-1], before)
        futures = context.new_empty(N * K, after.shape[1], self.latent)  # wide: written in place
        for begin in range(0, N * K, self.chunk):
            part = slice(begin, begin + self.chunk)
            start = torch.arange(N * K, device=context.device)[part] // K
            steps = self._steps(context[start, -1:], after[part], pick(past, start))
            for step, now in enumerate(steps):
                futures[part, step] = now[:, 0]
        return futures.unflatten(0, (N, K))

    def parts(self, futures: Tensor, goal: Tensor) -> dict[str, Tensor]:
        """Terminal mean squared errors of what is seen and of what is felt, (N, K) float32."""
        seen, felt = self.split((futures[:, :, -1].float() - goal[:, None].float()).square())
        return {"visual": seen.flatten(-2).mean(-1), "proprio": felt.mean(-1)}

    def native_cost(self, futures: Tensor, goal: Tensor) -> Tensor:
        """Terminal patch error + weight · proprioceptive error: (N, K) float32."""
        parts = self.parts(futures, goal)
        return parts["visual"] + self.proprio_weight * parts["proprio"]

    def summary(self, latents: Tensor) -> Tensor:
        """(..., D) -> (..., 6 features): means over the frame, its four quarters and its middle.

        With 384 features a token, 2,304 numbers that still say where on the table something is.
        """
        g, h = self.config.grid, self.config.grid // 2
        x = self.split(latents)[0].unflatten(-2, (g, g))
        low, high, middle = slice(0, h), slice(g - h, g), slice(h // 2, h // 2 + h)
        boxes = [(slice(None), slice(None)), (middle, middle)]
        boxes[1:1] = [(rows, columns) for rows in (low, high) for columns in (low, high)]
        return torch.cat([x[..., r, c, :].mean((-3, -2)) for r, c in boxes], dim=-1)
