"""The relational operator: each candidate attends to all others; its score moves by at most ε.

    h = SetTransformer(Encoder(v))                                   permutation-equivariant
    δ_i = ε tanh(W_up tanh(W_down h_i)),   s_i = b_i + δ_i,   ε = 0.2        (Eq. 1)

W_up starts at zero, so an untrained operator returns the base score. Initial weights and dropout
masks come from an explicit generator; torch's own modules would draw from the global one.

Legend: N starts, K candidates, F token width.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from djepa.errors import DjepaError

LARGEST = 2**28  # weights, 1 GiB in float32
DEEPEST = 256  # layers


@dataclass(frozen=True)
class OperatorConfig:
    """Sizes of the network; the defaults are the published ones."""

    inputs: int  # F
    width: int = 64
    layers: int = 2
    heads: int = 4
    hidden: int = 128
    rank: int = 8
    epsilon: float = 0.2
    dropout: float = 0.0  # on the tokens and inside the layers, in training only
    relations: bool = True  # False: the same network on each candidate alone, as a control
    norm_first: bool = False  # LayerNorm on the token itself, before the first linear layer

    def __post_init__(self) -> None:
        if self.inputs < 1 or not 0 < self.epsilon < math.inf:
            raise DjepaError(
                "An operator needs at least one input and an epsilon above 0, and finite."
            )
        for name in ("width", "heads", "hidden", "rank"):
            if getattr(self, name) < 1:
                raise DjepaError(f"An operator's {name} is at least 1, not {getattr(self, name)}.")
        if not 0 <= self.layers <= DEEPEST:
            raise DjepaError(f"An operator has 0 to {DEEPEST} layers, not {self.layers}.")
        if self.width % self.heads:
            raise DjepaError(f"An operator's width {self.width} must divide by {self.heads} heads.")
        if not 0 <= self.dropout < 1:
            raise DjepaError(f"An operator's dropout is 0 or more, below 1, not {self.dropout}.")
        self._check_weights()

    def _check_weights(self) -> None:
        """Refuse a size that exceeds memory before allocating it: sizes come from files."""
        layer = 4 * self.width**2 + 2 * self.width * self.hidden
        ends = (self.inputs + self.rank) * self.width
        if (weights := ends + self.layers * layer) > LARGEST:
            raise DjepaError(
                f"An operator of {self.inputs} inputs, width {self.width}, hidden {self.hidden}, "
                f"rank {self.rank} and {self.layers} layers has about {weights} weights; at most "
                f"{LARGEST} are allowed."
            )


class RelationalOperator(nn.Module):
    """Maps tokens and base scores of whole pools to corrected scores (Eq. 1)."""

    def __init__(self, config: OperatorConfig, random: Generator) -> None:
        super().__init__()
        c = self.config = config
        with torch.device("meta"):  # no weights yet, so nothing is drawn
            norm = nn.LayerNorm(c.inputs if c.norm_first else c.width)
            embed = nn.Linear(c.inputs, c.width)
            first = [norm, embed] if c.norm_first else [embed, norm]
            # The Identity keeps the indices by which stored operators name their weights.
            self.encoder = nn.Sequential(nn.Identity(), *first, nn.GELU())
            self.relations = nn.ModuleList(Layer(c) for _ in range(c.layers))
            self.down = nn.Linear(c.width, c.rank, bias=False)
            self.up = nn.Linear(c.rank, 1, bias=False)
        self.to_empty(device="cpu")
        draw_weights(self, random)
        nn.init.zeros_(self.up.weight)

    def forward(
        self, tokens: Tensor, base: Tensor, random: Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """(N, K, F) tokens, (N, K) base scores -> (N, K) scores s, (N, K) corrections δ.

        Dropout is applied only if a generator is given.
        """
        (N, K, width), c = tokens.shape, self.config
        if c.inputs != width:
            raise DjepaError(f"This operator reads tokens of {c.inputs} numbers, not {width}.")
        h = self.encoder(dropped(tokens, c.dropout, random))
        if not c.relations:
            h = h.view(N * K, 1, -1)  # pools of one
        for layer in self.relations:
            h = layer(h, random)
        delta = bounded(self.up(torch.tanh(self.down(h))).view(N, K), c.epsilon)
        return base.float() + delta, delta


class Layer(nn.Module):
    """A pre-norm transformer layer with the parameter names of torch's TransformerEncoderLayer."""

    def __init__(self, c: OperatorConfig) -> None:
        super().__init__()
        self.self_attn = Attention(c)
        self.linear1, self.linear2 = nn.Linear(c.width, c.hidden), nn.Linear(c.hidden, c.width)
        self.norm1, self.norm2 = nn.LayerNorm(c.width), nn.LayerNorm(c.width)
        self.dropout = c.dropout

    def forward(self, x: Tensor, random: Generator | None = None) -> Tensor:
        """(N, K, width) -> the same shape."""
        p = self.dropout
        x = x + dropped(self.self_attn(self.norm1(x), random), p, random)
        wide = dropped(F.gelu(self.linear1(self.norm2(x))), p, random)
        return x + dropped(self.linear2(wide), p, random)


class Attention(nn.Module):
    """Multi-head self-attention over the candidates of a pool, without positions."""

    def __init__(self, c: OperatorConfig) -> None:
        super().__init__()
        self.heads, self.dropout = c.heads, c.dropout
        self.out_proj = nn.Linear(c.width, c.width)
        self.in_proj_weight = nn.Parameter(torch.empty(3 * c.width, c.width))
        self.in_proj_bias = nn.Parameter(torch.empty(3 * c.width))

    def forward(self, x: Tensor, random: Generator | None) -> Tensor:
        """(N, K, width) -> the same shape.

        Candidates are the first axis inside, as in torch's module, so that sums round alike.
        """
        (N, K, width), heads = x.shape, self.heads
        joint = F.linear(x.transpose(0, 1), self.in_proj_weight, self.in_proj_bias)
        q, k, v = (
            part.contiguous().view(K, N, heads, width // heads).permute(1, 2, 0, 3)
            for part in joint.unflatten(-1, (3, width)).unbind(-2)
        )
        if random is None or not self.dropout:
            seen = F.scaled_dot_product_attention(q, k, v)  # never holds all K² weights
        else:
            scale = q.shape[-1] ** -0.25
            weights = ((q * scale) @ (k * scale).transpose(-2, -1)).softmax(-1)
            seen = dropped(weights, self.dropout, random) @ v
        flat = seen.permute(2, 0, 1, 3).contiguous().view(N * K, width)
        out: Tensor = self.out_proj(flat).view(K, N, width)
        return out.transpose(0, 1)


def dropped(x: Tensor, p: float, random: Generator | None) -> Tensor:
    """Dropout: zero with probability p, else x / (1 - p). Without `random`, x unchanged."""
    if random is None or not p:
        return x
    return x * torch.empty_like(x).bernoulli_(1 - p, generator=random).div_(1 - p)


def draw_weights(module: nn.Module, random: Generator) -> None:
    """Initialise as torch's own modules do and in their order, but from a given generator."""
    for child in module.children():
        draw_weights(child, random)
    if isinstance(module, nn.LayerNorm):
        module.reset_parameters()  # ones and zeros
    elif isinstance(module, nn.Linear):
        nn.init.kaiming_uniform_(module.weight, a=math.sqrt(5), generator=random)
        if module.bias is not None:
            bound = 1 / math.sqrt(module.in_features)
            nn.init.uniform_(module.bias, -bound, bound, generator=random)
    elif isinstance(module, Attention):
        nn.init.xavier_uniform_(module.in_proj_weight, generator=random)
        nn.init.zeros_(module.in_proj_bias)
        nn.init.zeros_(module.out_proj.bias)


def bounded(x: Tensor, limit: float) -> Tensor:
    """Compute limit · tanh(x), clamped: rounding must not exceed the limit (float32(0.2) > 0.2)."""
    edge = torch.tensor(limit, dtype=x.dtype)
    if edge.item() > limit:
        edge = edge.nextafter(torch.zeros_like(edge))
    return (limit * torch.tanh(x)).clamp(-edge.item(), edge.item())
