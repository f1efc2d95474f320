"""Compile a loss on a GPU, and keep that only if the gradients stay what they were.

At some batch sizes compiled gradients came out wrong by orders of magnitude while the loss agreed:
training then stands still without a word.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

GAP = 0.1  # bfloat16 alone makes about 0.01

Loss = Callable[..., Tensor]


def compile_checked(
    loss: Loss, model: nn.Module, inputs: Sequence[Tensor], blocks: Iterable[Any] = ()
) -> tuple[Loss, float]:
    """The loss with these blocks compiled, or as a whole if there are none; the gradients' gap.

    Where the gap is too large, the loss comes back as it was.
    """
    blocks, plain = list(blocks), _gradient(loss, model, inputs)
    for block in blocks:
        block.compile(dynamic=False)
    tried: Loss = loss if blocks else torch.compile(loss, dynamic=False)
    gap = float((_gradient(tried, model, inputs) - plain).norm() / plain.norm())
    if gap < GAP:
        return tried, gap
    for block in blocks:
        block._compiled_call_impl = None
    return loss, gap


def _gradient(loss: Loss, model: nn.Module, inputs: Sequence[Tensor]) -> Tensor:
    """One long vector: the gradient of everything that is trained."""
    model.zero_grad(set_to_none=True)  # a phase before may have left some
    with torch.autocast(inputs[0].device.type, torch.bfloat16):
        value = loss(*inputs)
    value.backward()
    found = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    gradient = torch.cat(found).float()
    model.zero_grad(set_to_none=True)
    return gradient
