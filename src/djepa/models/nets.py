"""The building blocks of the predictive models.

Legend: B batch, T frames of a window, P patches of a frame, D latent.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from djepa.errors import DjepaError
from djepa.models.linear import Linear
from djepa.models.parallel import BatchNorm, count, rows

FEW = 4  # tokens; below, tiles made for long sequences are nearly all padding
Memory = list[tuple[Tensor, Tensor]]  # keys and values (B, heads, T, head) of every layer


class Dropout(nn.Module):
    """Dropout that draws from the generator that `draw_from` gave it.

    It draws for the whole batch, even if this process holds only part of it.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share
        self.random: torch.Generator | None = None

    def forward(self, x: Tensor) -> Tensor:
        """(n, ...) rows; in eval mode, or with a share of 0, nothing happens."""
        if not (self.training and self.share):
            return x
        if self.random is None:
            raise DjepaError("Dropout needs a generator in training: call `draw_from` first.")
        whole = (len(x) * count(), *x.shape[1:])
        drawn = torch.rand(whole, device=x.device, generator=self.random)[rows()]
        return x * (drawn >= self.share) / (1 - self.share)


def draw_from(module: nn.Module, random: torch.Generator) -> bool:
    """Let all dropout of a module draw from this generator; returns whether it has any."""
    layers = [part for part in module.modules() if isinstance(part, Dropout) and part.share]
    for layer in layers:
        layer.random = random
    return bool(layers)


def initialise(module: nn.Module, random: torch.Generator) -> None:
    """Fresh weights from this generator: by a module's own `initialise`, or as PyTorch does it."""
    own = getattr(module, "initialise", None)
    if own is not None:
        own(random)
        return
    if isinstance(module, nn.Linear | nn.Conv2d):
        bound = module.weight[0].numel() ** -0.5
        nn.init.uniform_(module.weight, -bound, bound, generator=random)
        if module.bias is not None:
            nn.init.uniform_(module.bias, -bound, bound, generator=random)
    for part in module.children():
        initialise(part, random)


def small_weights(module: nn.Module, random: torch.Generator) -> None:
    """All matrices and convolutions of a module truncated normal, σ = 0.02; biases zero."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Conv2d):
            nn.init.trunc_normal_(part.weight, std=0.02, generator=random)
            if part.bias is not None:
                nn.init.zeros_(part.bias)


def attend_few(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, drop: Dropout | None = None
) -> Tensor:
    """Attention over a handful of tokens, (B, heads, T, head) each, as elementwise products.

    Where there are fewer queries than keys, they are those of the last tokens.
    """
    scores = (q[:, :, :, None] * k[:, :, None]).sum(-1) * q.shape[-1] ** -0.5
    if causal:
        later = torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1 + k.shape[2] - q.shape[2])
        scores = scores.masked_fill(later, -torch.inf)
    weights = scores.softmax(-1)
    return ((weights if drop is None else drop(weights))[..., None] * v[:, :, None]).sum(-2)


class Attention(nn.Module):
    """Multi-head self-attention; `inner` = heads x head width may differ from the token width."""

    def __init__(self, width: int, heads: int, head: int, bias: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.drop = heads, Dropout(dropout)
        self.qkv = Linear(width, 3 * heads * head, bias=bias)
        self.out = Linear(heads * head, width)

    def forward(self, x: Tensor, causal: bool = False) -> Tensor:
        """(B, T, width) -> (B, T, width)."""
        return self.mix(*self.project(x), causal)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, T, width) -> queries, keys and values (B, heads, T, head)."""
        B, T, _ = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        return q, k, v

    def mix(self, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
        """Queries of the last T tokens, keys and values of all of them -> (B, T, width)."""
        if k.shape[2] <= FEW or (self.training and self.drop.share):
            mixed = attend_few(q, k, v, causal, self.drop)
        else:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        out: Tensor = self.drop(self.out(mixed.transpose(1, 2).flatten(2)))
        return out


class FeedForward(nn.Module):
    """Linear, GELU, Linear."""

    def __init__(self, width: int, hidden: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.up, self.down = Linear(width, hidden), Linear(hidden, width)
        self.drop = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) -> (..., width)."""
        out: Tensor = self.drop(self.down(self.drop(F.gelu(self.up(x)))))
        return out


class Block(nn.Module):
    """Pre-norm Transformer block of the encoder; `scaled` gives each branch a LayerScale."""

    def __init__(
        self, width: int, heads: int, hidden: int, eps: float = 1e-12, scaled: bool = False
    ) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=eps), nn.LayerNorm(width, eps=eps)
        self.attention = Attention(width, heads, width // heads, bias=True)
        self.mlp = FeedForward(width, hidden)
        # None, not ones, so that weights without scales keep their names and exact outputs.
        self.scale1 = nn.Parameter(torch.full((width,), 1e-5)) if scaled else None
        self.scale2 = nn.Parameter(torch.full((width,), 1e-5)) if scaled else None

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, width) -> (B, T, width)."""
        mixed = self.attention(self.norm1(x))
        x = x + (mixed if self.scale1 is None else self.scale1 * mixed)
        mapped = self.mlp(self.norm2(x))
        return x + (mapped if self.scale2 is None else self.scale2 * mapped)


class ViT(nn.Module):
    """Vision Transformer with a class token and learned positions."""

    def __init__(
        self,
        image: int,
        patch: int,
        width: int,
        depth: int,
        heads: int,
        hidden: int,
        eps: float = 1e-12,
        scaled: bool = False,
    ) -> None:
        super().__init__()
        self.image, self.patches = image, (image // patch) ** 2
        self.embed = nn.Conv2d(3, width, kernel_size=patch, stride=patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.zeros(1, 1 + self.patches, width))
        self.blocks = nn.ModuleList(Block(width, heads, hidden, eps, scaled) for _ in range(depth))
        self.norm = nn.LayerNorm(width, eps=eps)

    def initialise(self, random: torch.Generator) -> None:
        """Everything small, as is usual for such encoders."""
        for parameter in (self.token, self.position):
            nn.init.trunc_normal_(parameter, std=0.02, generator=random)
        small_weights(self, random)

    def forward(self, images: Tensor) -> Tensor:
        """(B, 3, image, image) normalised -> (B, 1 + P, width), the class token first."""
        patches = self.embed(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(images.shape[0], -1, -1), patches], dim=1) + self.position
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


class Projector(nn.Module):
    """Linear, BatchNorm, GELU, Linear; in eval mode BatchNorm uses its stored statistics."""

    def __init__(self, width: int, hidden: int, out: int) -> None:
        super().__init__()
        self.up, self.norm = Linear(width, hidden), BatchNorm(hidden)
        self.down = Linear(hidden, out)

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) -> (..., out)."""
        flat = self.norm(self.up(x.flatten(0, -2)))
        return self.down(F.gelu(flat)).view(*x.shape[:-1], -1)


class ActionEncoder(nn.Module):
    """A block of five controls, already standardised -> an embedding."""

    def __init__(self, block: int, width: int) -> None:
        super().__init__()
        self.mix = Linear(block, block)
        self.up, self.down = Linear(block, 4 * width), Linear(4 * width, width)

    def forward(self, actions: Tensor) -> Tensor:
        """(..., block) -> (..., width)."""
        return self.down(F.silu(self.up(self.mix(actions))))


class ConditionalBlock(nn.Module):
    """Transformer block whose norms are shifted, scaled and gated by the action (AdaLN-zero).

    The non-affine norm that is modulated and the affine one inside each branch are both there, as
    in the published model.
    """

    def __init__(self, width: int, heads: int, head: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, head, bias=False, dropout=dropout)
        self.mlp = FeedForward(width, hidden, dropout)
        self.modulation = Linear(width, 6 * width)
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """(B, T, width) tokens and conditions -> (B, T, width)."""
        return self.follow(x, self.modulation(condition))[0]

    def follow(
        self,
        x: Tensor,
        modulation: Tensor,
        before: tuple[Tensor, Tensor] | None = None,
        only_last: bool = False,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Tokens (B, T, width) after others of which only keys and values are known.

        Modulations are (B, T, 6 width). Returns all tokens or the last, and their keys and values.
        """
        shift1, scale1, gate1, shift2, scale2, gate2 = modulation.chunk(6, dim=-1)
        q, k, v = self.attention.project(self.norm1(_modulated(x, shift1, scale1)))
        own = (k, v)
        if before is not None:
            k, v = torch.cat([before[0], k], dim=2), torch.cat([before[1], v], dim=2)
        if only_last:
            q, x, gate1 = q[:, :, -1:], x[:, -1:], gate1[:, -1:]
            shift2, scale2, gate2 = shift2[:, -1:], scale2[:, -1:], gate2[:, -1:]
        x = x + gate1 * self.attention.mix(q, k, v, causal=True)
        return x + gate2 * self.mlp(self.norm2(_modulated(x, shift2, scale2))), own


class CausalPredictor(nn.Module):
    """The next latent from a few latents and the actions that follow them."""

    def __init__(
        self,
        frames: int,
        latent: int,
        depth: int,
        heads: int,
        head: int,
        hidden: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.frames, self.drop = frames, Dropout(dropout)
        self.position = nn.Parameter(torch.zeros(1, frames, latent))
        self.blocks = nn.ModuleList(
            ConditionalBlock(latent, heads, head, hidden, dropout) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(latent)

    def initialise(self, random: torch.Generator) -> None:
        """Positions of the size of a latent; every action gate closed."""
        nn.init.normal_(self.position, generator=random)
        initialise(self.blocks, random)
        for block in self._layers():
            nn.init.zeros_(block.modulation.weight)
            nn.init.zeros_(block.modulation.bias)

    def forward(self, latents: Tensor, actions: Tensor) -> Tensor:
        """(B, T <= frames, D) latents and action embeddings -> (B, T, D): each one step ahead."""
        x = latents + self.position[:, : latents.shape[1]]
        x, condition = self.drop(x), F.silu(actions)
        for block in self.blocks:
            x = block(x, condition)
        return self.norm(x)

    def modulations(self, actions: Tensor) -> list[Tensor]:
        """(B, T, D) action embeddings -> per layer (B, T, 6 D): the same at every position."""
        condition = F.silu(actions)
        return [block.modulation(condition) for block in self._layers()]

    def remember(self, latents: Tensor, modulations: list[Tensor]) -> Memory:
        """Keys and values of the first latents of a window, (B, T, D), for later tokens."""
        x, memory = latents + self.position[:, : latents.shape[1]], []
        for block, modulation in zip(self._layers(), modulations, strict=True):
            x, own = block.follow(x, modulation)
            memory.append(own)
        return memory

    def last(self, latents: Tensor, modulations: list[Tensor], before: Memory | None) -> Tensor:
        """The last token of `forward`, (B, 1, D), from the T latents that end the window.

        `before` stands for the tokens that begin it. Not for training: there is no dropout.
        """
        T = latents.shape[1]
        first = 0 if before is None else before[0][0].shape[2]
        x = latents + self.position[:, first : first + T]
        for i, block in enumerate(self._layers()):
            known = None if before is None else before[i]
            x, _ = block.follow(x, modulations[i], known, only_last=i == len(self.blocks) - 1)
        return self.norm(x)

    def _layers(self) -> list[ConditionalBlock]:
        return [block for block in self.blocks if isinstance(block, ConditionalBlock)]


def _modulated(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale) + shift
