"""The relational operator: every candidate sees all others, and may move by at most ε.

    h = SetTransformer(Encoder(v))                                   permutation-equivariant
    δ_i = ε tanh(W_up tanh(W_down h_i)),   s_i = b_i + δ_i,   ε = 0.2        (Eq. bounded)

W_up starts at zero, so a fresh operator gives back the base score.

Legend: N starts, K candidates, F token width.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from djepa.errors import DjepaError


@dataclass(frozen=True)
class OperatorConfig:
    """Sizes; the defaults are the published ones."""

    inputs: int  # F
    width: int = 64
    layers: int = 2
    heads: int = 4
    hidden: int = 128
    rank: int = 8
    epsilon: float = 0.2
    dropout: float = 0.0  # of the tokens and of the layers, in training
    relations: bool = True  # False: the same network on each candidate alone, the sceptic's control
    norm_first: bool = False  # normalise the token itself before the first layer

    def __post_init__(self) -> None:
        if self.inputs < 1 or self.epsilon <= 0:
            raise DjepaError("An operator needs at least one input and an epsilon above 0.")


class RelationalOperator(nn.Module):
    """Tokens and base scores of whole pools -> scores and corrections."""

    def __init__(self, config: OperatorConfig) -> None:
        super().__init__()
        c = self.config = config
        norm = nn.LayerNorm(c.inputs if c.norm_first else c.width)
        embed = nn.Linear(c.inputs, c.width)
        first = [norm, embed] if c.norm_first else [embed, norm]
        self.encoder = nn.Sequential(nn.Dropout(c.dropout), *first, nn.GELU())
        self.relations = nn.ModuleList(
            nn.TransformerEncoderLayer(
                c.width,
                c.heads,
                c.hidden,
                c.dropout,
                activation="gelu",
                batch_first=True,
                norm_first=True,
            )
            for _ in range(c.layers)
        )
        self.down = nn.Linear(c.width, c.rank, bias=False)
        self.up = nn.Linear(c.rank, 1, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, tokens: Tensor, base: Tensor) -> tuple[Tensor, Tensor]:
        """(N, K, F) tokens, (N, K) base scores -> (N, K) scores s, (N, K) corrections δ."""
        N, K, F = tokens.shape
        if self.config.inputs != F:
            raise DjepaError(
                f"This operator reads tokens of {self.config.inputs} numbers, not {F}."
            )
        h = self.encoder(tokens)
        if not self.config.relations:
            h = h.view(N * K, 1, -1)  # pools of one
        with plain_attention():
            for layer in self.relations:
                h = layer(h)
        delta = bounded(self.up(torch.tanh(self.down(h))).view(N, K), self.config.epsilon)
        return base.float() + delta, delta


@contextmanager
def plain_attention() -> Iterator[None]:
    """Attention as in training: the library's shortcut for inference holds all K² weights at once.

    At K = 4096 that is three times slower and takes 270 MB more, and at K = 63 it is no faster.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def bounded(x: Tensor, limit: float) -> Tensor:
    """Limit times tanh(x), never beyond it as a real number: float32(0.2) is larger than 0.2."""
    edge = torch.tensor(limit, dtype=x.dtype)
    if edge.item() > limit:
        edge = edge.nextafter(torch.zeros_like(edge))
    return (limit * torch.tanh(x)).clamp(-edge.item(), edge.item())
