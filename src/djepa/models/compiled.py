"""Compile the blocks of a model for inference, or a training loss.

A compiled loss is kept only if its gradients match the plain ones: at some batch sizes compiled
gradients were wrong by orders of magnitude while the loss agreed, and training did not progress.
"""

from collections.abc import Callable, Iterable, Sequence
from types import MethodType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from djepa.models.frames import FrameBlock
from djepa.models.nets import Block, ConditionalBlock, Projector

METHODS: dict[type[nn.Module], str] = {
    ConditionalBlock: "follow",
    Block: "forward",
    FrameBlock: "forward",
    Projector: "forward",
}
VARIANTS = 128  # shapes and formats of one method that may be compiled before it is called plainly
GAP = 0.1  # of a loss whose gradient hardly feels bfloat16
ROUNDINGS = 1.5  # two independent roundings differ by √2 times the error of one
MOST = 0.9  # no gradient at all is off by 1

Loss = Callable[..., Tensor]


class Compiled(NamedTuple):
    """A loss, the gap of the compiled gradient to the plain one, and the largest one allowed."""

    loss: Loss
    gap: float
    allowed: float

    @property
    def kept(self) -> bool:
        """Whether the loss is the compiled one."""
        return self.gap < self.allowed


def compile_blocks(module: nn.Module) -> nn.Module:
    """Compile every block of a module, in place. Layers of one shape share what is compiled.

    Compiling a whole rollout instead takes minutes: it repeats every layer at every step.
    """
    config: Any = torch._dynamo.config
    config.recompile_limit = max(config.recompile_limit, VARIANTS)
    config.accumulated_recompile_limit = max(config.accumulated_recompile_limit, 4 * VARIANTS)
    for kind, name in METHODS.items():
        compiled = torch.compile(getattr(kind, name), dynamic=False)
        for part in module.modules():
            if isinstance(part, kind):
                setattr(part, name, MethodType(compiled, part))
    return module


def compile_checked(
    loss: Loss, model: nn.Module, inputs: Sequence[Tensor], blocks: Iterable[Any] = ()
) -> Compiled:
    """The loss with these blocks compiled, or as a whole if there are none.

    If its gradient differs from the plain one by more than rounding, the plain loss is returned.
    Rounding is measured as the gap of plain bfloat16 to plain float32.
    """
    blocks, plain = list(blocks), _gradient(loss, model, inputs)
    for block in blocks:
        block.compile(dynamic=False)
    tried: Loss = loss if blocks else torch.compile(loss, dynamic=False)
    gap = _gap(_gradient(tried, model, inputs), plain)
    if gap < GAP:
        return Compiled(tried, gap, GAP)
    calls = [block._compiled_call_impl for block in blocks]
    for block in blocks:
        block._compiled_call_impl = None
    rounding = _gap(_gradient(loss, model, inputs, short=False), plain)
    found = Compiled(loss, gap, max(GAP, min(ROUNDINGS * rounding, MOST)))
    if not found.kept:
        return found
    for block, call in zip(blocks, calls, strict=True):
        block._compiled_call_impl = call
    return found._replace(loss=tried)


def _gap(gradient: Tensor, plain: Tensor) -> float:
    return float((gradient - plain).norm() / plain.norm())


def _gradient(loss: Loss, model: nn.Module, inputs: Sequence[Tensor], short: bool = True) -> Tensor:
    """One long vector: the gradient of everything that is trained; `short` is in bfloat16."""
    model.zero_grad(set_to_none=True)  # a phase before may have left some
    with torch.autocast(inputs[0].device.type, torch.bfloat16, enabled=short):
        value = loss(*inputs)
    value.backward()
    found = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    gradient = torch.cat(found).float()
    model.zero_grad(set_to_none=True)
    return gradient
