"""A linear layer whose product on a CPU is oneDNN's, wherever no gradient is asked for.

PyTorch hands float32 products to MKL. On processors that are not Intel's MKL leaves the widest
vectors unused; oneDNN, which comes with PyTorch, then takes about half the time
(`djepa bench geometry`).
"""

from typing import Any

import torch
from torch import Tensor, nn


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


class Linear(nn.Linear):
    """`nn.Linear`: the same parameters and names, and the same values but for rounding."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., I) -> (..., O)."""
        if PRODUCT is None or not self._plain(x):
            return super().forward(x)
        out: Tensor = PRODUCT(x, self.weight, self.bias, "none", [], "")
        return out

    def _plain(self, x: Tensor) -> bool:
        """Whether this is a float32 product on a CPU that nobody differentiates or traces."""
        return (
            x.device.type == "cpu"
            and x.dtype == self.weight.dtype == torch.float32
            and not torch.is_grad_enabled()
            and not torch.is_autocast_enabled("cpu")
            and not torch.compiler.is_compiling()
        )
