"""Split products have the accuracy of float32, not of the float16 they are made of."""

import pytest
import torch
from torch import Tensor, nn

from djepa.models.precision import in_format
from djepa.models.split import SplitLinear, product, two_parts


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 300.0])
def test_a_split_layer_is_as_accurate_as_float32(scale: float, bias: bool) -> None:
    random = torch.Generator().manual_seed(0)
    layer, x = nn.Linear(72, 40, bias=bias), scale * torch.randn(50, 72, generator=random)
    layer.requires_grad_(False).weight.copy_(0.05 * torch.randn(40, 72, generator=random))
    exact = x.double() @ layer.weight.double().T + (layer.bias.double() if bias else 0)

    def off(found: Tensor) -> float:
        return float((found.double() - exact).abs().max() / exact.abs().mean())

    plain = off(layer(x))
    assert off(SplitLinear(layer)(x)) < 4 * plain + 1e-6
    layer.weight.copy_(two_parts(layer.weight)[0])
    assert off(layer(two_parts(x)[0].float())) > 20 * plain  # one part alone would not do


def test_a_copy_is_split_where_it_gains() -> None:
    model = nn.Sequential(nn.Linear(8, 64), nn.Sequential(nn.Linear(64, 8)))
    split = in_format(model, "fp16x3")
    assert [type(part) for part in (split[0], split[1][0])] == [nn.Linear, SplitLinear]
    assert isinstance(model[1], nn.Sequential)
    assert type(model[1][0]) is nn.Linear


def test_a_compiler_knows_the_shape_of_a_product() -> None:
    with torch._subclasses.FakeTensorMode():
        out = product(torch.empty(3, 8, dtype=torch.float16), torch.empty(5, 8))
    assert (out.shape, out.dtype) == ((3, 5), torch.float32)
