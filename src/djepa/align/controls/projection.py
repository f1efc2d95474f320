"""Gradient projection: an auxiliary gradient must not oppose the primary one.

    g_a ← g_a - min(⟨g_a, g_p⟩, 0) / ‖g_p‖² g_p          removed only where the two conflict
    g_a ← g_a · min(1, κ ‖g_p‖ / ‖g_a‖)                   capped relative to the primary (PEGrad)
    descend along g_p + g_a                               (App. A, baseline mechanisms)

Since ⟨g_a, g_p⟩ ≥ 0 afterwards, the step lowers the primary loss, to first order, at least as much
as g_p alone would.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

SLACK = 1e-12  # projected ⟨g_a, g_p⟩ is SLACK ‖g_a‖ ‖g_p‖, not 0: rounding must leave no conflict


def without_conflict(auxiliary: Tensor, primary: Tensor) -> Tensor:
    """Remove from g_a its component against g_p; both are float64 vectors."""
    inner, length = auxiliary @ primary, primary @ primary
    if inner >= 0 or length == 0:
        return auxiliary
    slack = SLACK * auxiliary.norm() * length.sqrt()
    return auxiliary - (inner - slack) / length * primary


def capped(auxiliary: Tensor, primary: Tensor, cap: float) -> Tensor:
    """Scale g_a to at most `cap` times the norm of g_p."""
    length = auxiliary.norm()
    limit = cap * primary.norm()
    return auxiliary if length <= limit else auxiliary * (limit / length)


def gradient(loss: Tensor, parameters: Sequence[nn.Parameter]) -> Tensor:
    """The gradient as one float64 vector, zero for unused parameters; keeps the graph."""
    found = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
    parts = [
        torch.zeros_like(p) if g is None else g for g, p in zip(found, parameters, strict=True)
    ]
    return torch.cat([part.flatten().double() for part in parts])


def with_gradient(value: Tensor, parameters: Sequence[nn.Parameter], wanted: Tensor) -> Tensor:
    """A loss with value `value` and gradient `wanted` with respect to the parameters."""
    parts = wanted.split([p.numel() for p in parameters])
    slope = torch.stack(
        [(p * g.view_as(p).to(p.dtype)).sum() for p, g in zip(parameters, parts, strict=True)]
    ).sum()
    return slope + (value - slope).detach()
