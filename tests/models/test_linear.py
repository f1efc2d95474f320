"""The linear layer: PyTorch's own in all but the library that multiplies."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from djepa.models import linear
from djepa.models.linear import Linear
from djepa.seeds import generator

SIZES = st.integers(1, 70)
needs_onednn = pytest.mark.skipif(linear.PRODUCT is None, reason="PyTorch is without oneDNN")


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    """Normal numbers of their own for every shape."""
    numbers = generator("linear", *shape, seed).normal(size=shape)
    return torch.from_numpy(numbers).float()


def layer(inputs: int, outputs: int, bias: bool = True) -> Linear:
    found = Linear(inputs, outputs, bias)
    with torch.no_grad():
        found.weight.copy_(drawn(outputs, inputs, seed=1))
        if bias:
            found.bias.copy_(drawn(outputs, seed=2))
    return found


@settings(max_examples=60, deadline=None)
@given(SIZES, SIZES, SIZES, st.booleans())
def test_it_is_the_product_in_double_precision_but_for_rounding(
    rows: int, inputs: int, outputs: int, bias: bool
) -> None:
    of, x = layer(inputs, outputs, bias), drawn(rows, inputs)
    with torch.no_grad():
        exact = x.double() @ of.weight.double().T
        exact = exact + of.bias.double() if bias else exact
        gap = (of(x).double() - exact).abs().amax()
    assert gap <= 1e-5 * (1 + exact.abs().amax())


@needs_onednn
def test_gradients_change_no_bit_and_are_those_of_pytorchs_layer() -> None:
    of, x = layer(40, 30), drawn(6, 5, 40)
    with torch.no_grad():
        plain = of(x)
    theirs = nn.Linear(40, 30)
    theirs.load_state_dict(of.state_dict())
    for one in (of, theirs):
        given = x.clone().requires_grad_()
        out = one(given)
        out.square().sum().backward()
        one.seen = (out, given.grad, one.weight.grad, one.bias.grad)  # type: ignore[assignment]
    assert torch.equal(of.seen[0], plain)  # type: ignore[index, arg-type]
    for ours, other in zip(of.seen, theirs.seen, strict=True):  # type: ignore[arg-type]
        torch.testing.assert_close(ours, other, rtol=1e-4, atol=1e-3)


def test_gradients_by_finite_differences() -> None:
    of, x = layer(5, 3), drawn(4, 5).requires_grad_()
    (of(x) ** 3).sum().backward()
    assert x.grad is not None
    for at, name in (((2, 1), x), ((1, 4), of.weight)):
        values = []
        for step in (1e-2, -1e-2):
            with torch.no_grad():
                name[at] += step
                values.append((of(x).double() ** 3).sum().item())
                name[at] -= step
        assert name.grad is not None
        assert name.grad[at].item() == pytest.approx((values[0] - values[1]) / 2e-2, rel=2e-2)


@needs_onednn
def test_a_frozen_weight_gets_no_gradient() -> None:
    of, x = layer(5, 3).requires_grad_(False), drawn(4, 5).requires_grad_()
    of(x).sum().backward()
    assert of.weight.grad is None
    assert torch.allclose(x.grad, of.weight.sum(0).expand(4, 5))  # type: ignore[arg-type]
    assert layer(5, 3, bias=False)(x).requires_grad


def test_other_formats_tracing_and_compiling_are_left_to_pytorch() -> None:
    of, x = layer(8, 6), drawn(5, 8)
    with torch.no_grad():
        plain = nn.functional.linear(x, of.weight, of.bias)
        program = torch.export.export(of, (x,))
        assert not any("mkldnn" in str(node.target) for node in program.graph.nodes)
        assert torch.allclose(program.module()(x), plain, atol=1e-5)
        narrow = Linear(8, 6).bfloat16()
        assert narrow(x.bfloat16()).dtype == torch.bfloat16
        with torch.autocast("cpu", torch.bfloat16):
            assert of(x).dtype == torch.bfloat16


def test_rows_do_not_depend_on_their_company_nor_on_their_strides() -> None:
    of, x = layer(48, 40), drawn(100, 48)
    with torch.no_grad():
        whole = of(x)
        order = torch.from_numpy(generator("order").permutation(100))
        assert torch.equal(of(x[order]), whole[order])
        assert torch.equal(of(x[:64]), whole[:64])
        assert torch.equal(of(x.T.contiguous().T), whole)
        assert torch.equal(of(x.view(4, 25, 48)), whole.view(4, 25, 40))
        assert of(x[:0]).shape == (0, 40)
        assert of(x[0]).shape == (40,)
        assert of(torch.full((2, 48), torch.nan)).isnan().all()


def test_weights_of_pytorchs_layer_fit() -> None:
    of, theirs = layer(8, 6), nn.Linear(8, 6)
    of.load_state_dict(theirs.state_dict(), strict=True)
    with torch.no_grad():
        assert torch.allclose(of(torch.eye(8)), theirs(torch.eye(8)), atol=1e-6)
