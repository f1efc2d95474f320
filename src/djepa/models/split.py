"""Products of float32 accuracy on tensor cores: every number is the sum of two of float16.

    x = h + l,   h = half(x),   l = half(x - h)
    x · w ≈ h_x · h_w + h_x · l_w + l_x · h_w            l_x · l_w is below the last bit of float32

The three are one product of three times the length, [h_x, h_x, l_x] · [h_w, l_w, h_w], summed in
float32. Powers of two scale both factors, so that nothing is lost below the range of float16. It
has 11 significant bits, two of them 22, float32 has 24. (Ootomo and Yokota, 2022.)

Legend: R rows, I inputs, O outputs.
"""

import math

import torch
from torch import Tensor, nn

LEAST = 64  # inputs of a layer that gains; shorter ones stay as they are
ROW = 8  # tensor cores want rows of a multiple of 16 bytes
INPUT_SCALE = 16.0  # float16 then holds inputs up to 4,000, and steps of 2e-9 near zero
LARGEST_WEIGHT = 128.0  # after scaling


@torch.library.custom_op("djepa::product", mutates_args=())
def product(rows: Tensor, weight: Tensor) -> Tensor:
    """(R, I) · (O, I)ᵀ -> (R, O) float32, summed in float32; opaque to the compiler."""
    if rows.is_cuda:
        return torch.mm(rows, weight.t(), out_dtype=torch.float32)
    return torch.mm(rows.float(), weight.t().float())


@product.register_fake
def _(rows: Tensor, weight: Tensor) -> Tensor:
    return rows.new_empty((rows.shape[0], weight.shape[0]), dtype=torch.float32)


def two_parts(x: Tensor) -> tuple[Tensor, Tensor]:
    """High and low part in float16."""
    high = x.half()
    return high, (x - high.float()).half()


class SplitLinear(nn.Module):
    """A linear layer whose product is split."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        weight = layer.weight.detach().float()
        most = max(float(weight.abs().max()), 1e-30)
        power = 2.0 ** math.floor(math.log2(LARGEST_WEIGHT / most))
        high, low = two_parts(weight * power)
        self.weight = nn.Parameter(torch.cat([high, low, high], dim=1), requires_grad=False)
        self.bias, self.after = layer.bias, 1.0 / (power * INPUT_SCALE)

    def forward(self, x: Tensor) -> Tensor:
        """(..., I) -> (..., O) float32."""
        high, low = two_parts(x.reshape(-1, x.shape[-1]).float() * INPUT_SCALE)
        out = product(torch.cat([high, high, low], dim=1), self.weight) * self.after
        return (out if self.bias is None else out + self.bias).view(*x.shape[:-1], -1)


def split_layers(module: nn.Module) -> nn.Module:
    """Replace the linear layers of a module, in place, that gain by it."""
    for name, part in module.named_children():
        if isinstance(part, nn.Linear) and part.in_features >= LEAST and not part.in_features % ROW:
            setattr(module, name, SplitLinear(part))
        else:
            split_layers(part)
    return module
