"""A linear layer whose product on a CPU is oneDNN's.

PyTorch hands float32 products to MKL. On processors that are not Intel's MKL leaves the widest
vectors unused; oneDNN, which comes with PyTorch, then takes about half the time
(`djepa bench geometry`).
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def _product() -> Any:
    """The product of oneDNN for (..., I), (O, I), (O,) -> (..., O); None where it is missing.

    It is no public function of PyTorch, so it is tried: a version that has another is left alone.
    """
    if not torch.backends.mkldnn.is_available():
        return None
    found, one = getattr(torch.ops.mkldnn, "_linear_pointwise", None), torch.ones(1, 1)
    try:
        right = found is not None and found(one, one, one[0], "none", [], "").item() == 2
    except (RuntimeError, TypeError, ValueError):
        right = False
    return found if right else None


PRODUCT = _product()


class _Product(torch.autograd.Function):
    """oneDNN's product with its gradients: with and without them the bits are the same."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return PRODUCT(x, weight, bias, "none", [], "")

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        rows, (to_x, to_weight, to_bias) = g.reshape(-1, g.shape[-1]), ctx.needs_input_grad
        return (
            g @ weight if to_x else None,
            rows.T @ x.reshape(-1, x.shape[-1]) if to_weight else None,
            rows.sum(0) if to_bias else None,
        )


class Linear(nn.Linear):
    """`nn.Linear`: the same parameters and names, and the same values but for rounding."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., I) -> (..., O)."""
        if PRODUCT is None or not self._plain(x):
            return super().forward(x)
        if torch.is_grad_enabled():
            found: Tensor = _Product.apply(x, self.weight, self.bias)  # type: ignore[no-untyped-call]
        else:
            found = PRODUCT(x, self.weight, self.bias, "none", [], "")
        return found

    def _plain(self, x: Tensor) -> bool:
        """Whether this is a float32 product on a CPU that nobody traces."""
        return (
            x.device.type == "cpu"
            and x.dtype == self.weight.dtype == torch.float32
            and not torch.is_autocast_enabled("cpu")
            and not torch.compiler.is_compiling()
        )
