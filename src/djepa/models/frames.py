"""Predictors over the patch tokens of frames: each frame attends to itself and the two before it.

Keys and values of a frame never change once computed, so a rollout computes one frame per step and
keeps those of the two frames before it: `past`, per layer and frame one (keys, values) pair.

Legend: B batch, T frames, P tokens of a frame, W width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from djepa.models.linear import Linear
from djepa.models.nets import FeedForward, small_weights
from djepa.models.protocol import CONTEXT

Pair = tuple[Tensor, Tensor]  # keys and values of a frame, (B, heads, P, head) each
Past = list[list[Pair]]
Turn = tuple[Tensor, Tensor]


class Rope(nn.Module):
    """Rotary positions in time, row and column; tokens beyond the grid carry time alone."""

    def __init__(self, head: int, grid: int, extra: int = 0) -> None:
        super().__init__()
        pairs = head // 6  # per axis
        rate = 100.0 ** -(torch.arange(pairs) / pairs)
        place = torch.arange(grid).float()
        rows, columns = place.repeat_interleave(grid), place.repeat(grid)
        where = F.pad(torch.stack([rows, columns], dim=-1), (0, 0, 0, extra))  # (P, 2)
        self.register_buffer("rate", rate, persistent=False)
        self.register_buffer("where", where, persistent=False)
        self.rate: Tensor
        self.where: Tensor

    def forward(self, first: int, frames: int) -> Turn:
        """Cosines and sines (T·P, 3 pairs) for the tokens of frames `first`, `first` + 1, ..."""
        P = len(self.where)
        time = torch.arange(first, first + frames, device=self.where.device)
        position = torch.cat(
            [time.repeat_interleave(P)[:, None].float(), self.where.repeat(frames, 1)], dim=1
        )
        angles = (position[:, :, None] * self.rate).flatten(1)
        return angles.cos(), angles.sin()


def turned(x: Tensor, turn: Turn) -> Tensor:
    """Turn pairs of channels of (..., T·P, head); what is left of the head stays."""
    c, s = (part.to(x.dtype) for part in turn)
    a, b, rest = x.tensor_split((c.shape[-1], 2 * c.shape[-1]), dim=-1)
    return torch.cat([a * c - b * s, a * s + b * c, rest], dim=-1)


class FrameBlock(nn.Module):
    """Pre-norm block; with `conditional` its norms are shifted, scaled and gated per frame."""

    def __init__(
        self, width: int, heads: int, head: int, hidden: int, conditional: bool, dropout: float
    ) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, elementwise_affine=not conditional)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=not conditional)
        self.qkv = Linear(width, 3 * heads * head)
        self.out = Linear(heads * head, width)
        self.mlp = FeedForward(width, hidden, dropout)
        self.modulation = Linear(width, 6 * width) if conditional else None

    def forward(
        self,
        x: Tensor,
        condition: Tensor | None,
        turn: Turn | None,
        mask: Tensor | None,
        past: list[Pair] | None,
    ) -> tuple[Tensor, list[Pair]]:
        """(B, T, P, W) tokens, (B, T, W) conditions -> tokens, and the past of the next frame."""
        if self.modulation is None or condition is None:
            mixed, kept = self._attend(self.norm1(x), turn, mask, past)
            x = x + mixed
            return x + self.mlp(self.norm2(x)), kept
        parts = self.modulation(F.silu(condition))[:, :, None].chunk(6, dim=-1)
        shift1, scale1, gate1, shift2, scale2, gate2 = parts
        seen = torch.addcmul(shift1, self.norm1(x), 1 + scale1)
        mixed, kept = self._attend(seen, turn, mask, past)
        x = torch.addcmul(x, gate1, mixed)
        seen = torch.addcmul(shift2, self.norm2(x), 1 + scale2)
        return torch.addcmul(x, gate2, self.mlp(seen)), kept

    def _attend(
        self,
        x: Tensor,
        turn: Turn | None,
        mask: Tensor | None,
        past: list[Pair] | None,
    ) -> tuple[Tensor, list[Pair]]:
        B, T, P, _ = x.shape
        q, k, v = self.qkv(x).view(B, T * P, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if turn is not None:
            q, k = turned(q, turn), turned(k, turn)
        if past is None:
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            frames = list(zip(k.split(P, dim=2), v.split(P, dim=2), strict=True))
        else:  # one frame after others
            frames = [*past, (k, v.contiguous())]
            mixed = attend(q, frames)
        out: Tensor = self.out(mixed.transpose(1, 2).reshape(B, T, P, -1))
        return out, frames[1 - CONTEXT :]


class FramePredictor(nn.Module):
    """Blocks over the tokens of a few frames; its positions are rotary or learned.

    Learned positions belong to CONTEXT frames and are used in turn (frame t takes set t mod
    CONTEXT): any three frames in a row have three different ones, whatever the horizon.
    """

    def __init__(
        self,
        grid: int,
        extra: int,
        width: int,
        depth: int,
        heads: int,
        head: int,
        hidden: int,
        conditional: bool,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.tokens = grid * grid + extra
        self.rope = Rope(head, grid, extra) if conditional else None
        self.position = (
            None if conditional else nn.Parameter(torch.zeros(CONTEXT, self.tokens, width))
        )
        self.blocks = nn.ModuleList(
            FrameBlock(width, heads, head, hidden, conditional, dropout) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)

    def forward(
        self, x: Tensor, condition: Tensor | None = None, first: int = 0, past: Past | None = None
    ) -> tuple[Tensor, Past]:
        """(B, T, P, W) tokens of frames `first`, ... -> (B, T, P, W), and the past of what follows.

        Without `past` the first frame given is the first there is; with it, give one frame.
        """
        T, P = x.shape[1], self.tokens
        if self.position is not None:
            turns = [(first + t) % CONTEXT for t in range(T)]
            x = x + torch.stack([self.position[t] for t in turns])
        turn = None if self.rope is None else self.rope(first, T)
        mask = band(T, P, x.device) if T > 1 else None
        kept: Past = []
        for i, block in enumerate(self.blocks):
            x, frames = block(x, condition, turn, mask, None if past is None else past[i])
            kept.append(frames)
        return self.norm(x), kept

    def initialise(self, random: torch.Generator) -> None:
        """Small weights; the branch outputs shrink with depth, the modulation starts larger."""
        if self.position is not None:
            nn.init.normal_(self.position, std=0.02, generator=random)
        small_weights(self, random)
        for i, block in enumerate(self.blocks, start=1):
            assert isinstance(block, FrameBlock)
            block.out.weight.data.div_((2 * i) ** 0.5)
            block.mlp.down.weight.data.div_((2 * i) ** 0.5)
            if block.modulation is not None:
                nn.init.trunc_normal_(block.modulation.weight, std=0.2, generator=random)


def band(frames: int, tokens: int, device: torch.device) -> Tensor:
    """(T·P, T·P) True where a token may look: its own frame and the CONTEXT - 1 before it."""
    frame = torch.arange(frames, device=device).repeat_interleave(tokens)
    lag = frame[:, None] - frame
    return (lag >= 0) & (lag < CONTEXT)


def attend(q: Tensor, frames: list[Pair]) -> Tensor:
    """Attention of (B, heads, P, head) queries to all tokens of some frames.

    Scores are put together, not keys and values: they are a quarter of the size.
    """
    q = q * q.shape[-1] ** -0.5
    scores = torch.cat([q @ k.transpose(-1, -2) for k, _ in frames], dim=-1).softmax(-1)
    parts = scores.split([k.shape[2] for k, _ in frames], dim=-1)
    mixed = parts[0] @ frames[0][1]
    for part, (_, v) in zip(parts[1:], frames[1:], strict=True):
        mixed = mixed + part @ v
    return mixed


def pick(past: Past, rows: Tensor) -> Past:
    """The past of some rows; rows may repeat."""
    return [[(k[rows], v[rows]) for k, v in frames] for frames in past]
