"""Conflict-safe variational adaptation: Var-JEPA's residual with a projected auxiliary gradient.

    g_p = ∇ λ_D L_decision,   g_a = ∇ (mean |z̃(u_q) - z|² + β KL(q ‖ p))
    g_a ← g_a - min(⟨g_a, g_p⟩, 0) / ‖g_p‖² g_p,   step along g_p + g_a

(App. A.) Here the decision is the primary objective; the auxiliary gradient is projected only where
it conflicts, and not capped.
"""

from collections.abc import Sequence
from functools import partial

from torch import Tensor, nn

from djepa.align.controls.projection import gradient, with_gradient, without_conflict
from djepa.align.controls.varjepa import Losses, fit_residual


def combined(of: Losses, parameters: Sequence[nn.Parameter]) -> Tensor:
    """A loss with the value of the sum and the gradient g_p + projected g_a."""
    primary, auxiliary = gradient(of.decision, parameters), gradient(of.auxiliary, parameters)
    wanted = primary + without_conflict(auxiliary, primary)
    return with_gradient(of.decision + of.auxiliary, parameters, wanted)


fit_conflict_safe = partial(fit_residual, "conflict-safe", combined)
