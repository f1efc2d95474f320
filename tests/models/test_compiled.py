"""A compiled loss is kept if rounding explains its gradient, and only then.

The real compiler takes minutes on a CPU: a stand-in changes the gradient as one may.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from djepa.models.compiled import GAP, MOST, Compiled, compile_checked

Change = Callable[[Tensor], Tensor]


def compiler(change: Change | None) -> Callable[..., Any]:
    """Compiled, a function is computed in float32, or its result is changed."""

    def compile_(function: Any, dynamic: bool) -> Any:
        def compiled(*args: Tensor) -> Tensor:
            if change is not None:
                return change(function(*args))
            with torch.autocast("cpu", enabled=False):
                found: Tensor = function(*args)
                return found

        return compiled

    return compile_


def checked(noise: float, whole: bool = True) -> tuple[nn.Module, Compiled]:
    """The loss of a layer that is nearly solved: the nearer, the more its gradient is rounding."""
    random = torch.Generator().manual_seed(0)
    layer, x = nn.Linear(32, 16), torch.randn(64, 32, generator=random)
    nn.init.normal_(layer.weight, generator=random)
    target = layer(x).detach() + noise * torch.randn(64, 16, generator=random)
    blocks = () if whole else (layer,)
    return layer, compile_checked(lambda x: (layer(x) - target).square().mean(), layer, [x], blocks)


@pytest.mark.parametrize("whole", [True, False])
def test_rounding_is_no_reason_to_refuse(whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", compiler(None))
    layer, found = checked(0.05, whole)
    assert GAP < found.gap < found.allowed < MOST
    assert found.kept
    assert found.loss.__name__ == ("compiled" if whole else "<lambda>")
    assert (layer._compiled_call_impl is None) == whole


@pytest.mark.parametrize("noise", [0.05, 1.0])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    "change",
    [lambda y: y.detach() + 0 * y, lambda y: 3 * y, lambda y: torch.nan * y],
    ids=["none", "other", "nan"],
)
def test_a_wrong_gradient_is_refused(
    change: Change, noise: float, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", compiler(change))
    layer, found = checked(noise, whole)
    assert not found.kept
    assert found.loss.__name__ == "<lambda>"
    assert layer._compiled_call_impl is None


def test_a_gap_that_rounding_does_not_explain_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", compiler(lambda y: 1.2 * y))
    assert not checked(1.0)[1].kept
    monkeypatch.setattr(torch, "compile", compiler(lambda y: 1.05 * y))
    assert checked(1.0)[1].kept
