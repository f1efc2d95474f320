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
def test_without_gradients_onednn_multiplies_and_with_them_pytorch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[int] = []

    def counted(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, *rest: object) -> torch.Tensor:
        calls.append(len(x))
        return x @ w.T + b

    monkeypatch.setattr(linear, "PRODUCT", counted)
    of, x = layer(4, 3), drawn(5, 4)
    with torch.inference_mode():
        of(x)
    assert calls == [5]
    of(x.requires_grad_()).sum().backward()
    assert calls == [5]
    assert torch.allclose(x.grad, of.weight.sum(0).expand(5, 4))  # type: ignore[arg-type]


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
