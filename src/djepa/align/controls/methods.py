"""Decisions of a fitted control: a cost per candidate, and the futures it is computed from."""

from torch import Tensor

from djepa.align.controls.sampled import cvar, expected_value, sampled_costs
from djepa.align.controls.trajectory import code_of, prior_futures
from djepa.align.plastic import Patch, apply_patch
from djepa.align.plastic_fit import Encoded, futures
from djepa.models.lewm import LeWM

BATCH = 8  # starts whose futures are rolled out at a time
SAMPLED = {"expected value": expected_value, "CVaR": cvar}  # from the prior of Var-JEPA


def adapts_predictor(patch: Patch) -> bool:
    """Whether a patch replaces tensors of the predictor; otherwise it holds a trajectory code."""
    return "shape" not in patch.card


def control_futures(
    model: LeWM, patch: Patch, starts: Encoded, frozen: Tensor | None = None
) -> Tensor:
    """(N, K, B, D) futures from which a fitted control computes its costs; reads no outcome.

    `frozen`: futures of the unchanged model, where they are known already.
    """
    if adapts_predictor(patch):
        return futures(apply_patch(model, patch), starts, BATCH)
    base = futures(model, starts, BATCH) if frozen is None else frozen
    return prior_futures(model, code_of(model, patch), starts, base)


def control_cost(
    name: str, model: LeWM, patch: Patch, starts: Encoded, frozen: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """(N, K) costs of a control and its (N, K, B, D) futures, or None if it samples several.

    The lowest cost is chosen, ties go to the smaller ID. Controls in `SAMPLED` use the patch of
    Var-JEPA.
    """
    if name in SAMPLED:
        base = futures(model, starts, BATCH) if frozen is None else frozen
        return SAMPLED[name](sampled_costs(model, code_of(model, patch), starts, base)), None
    after = control_futures(model, patch, starts, frozen)
    return model.native_cost(after, starts.goal), after
