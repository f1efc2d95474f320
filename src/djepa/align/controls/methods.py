"""All five controls in one code path: fitted on the same starts, each a cost per candidate.

Legend: N starts, K candidates, B blocks of five controls, D latent.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from torch import Tensor

from djepa.align.controls.conflict_safe import fit_conflict_safe
from djepa.align.controls.lessons import Supervised, futures
from djepa.align.controls.pegrad import fit_pegrad
from djepa.align.controls.sampled import cvar, expected_value, sampled_costs
from djepa.align.controls.trajectory import code_of, prior_futures
from djepa.align.controls.varjepa import fit_varjepa
from djepa.align.plastic import Patch, apply_patch, load_patch, save_patch
from djepa.align.plastic_fit import Encoded
from djepa.models.lewm import LeWM

Fit = Callable[[LeWM, Supervised, Supervised], Patch]
FITTED: dict[str, Fit] = {
    "PEGrad": fit_pegrad,
    "Var-JEPA": fit_varjepa,
    "conflict-safe": fit_conflict_safe,
}
SAMPLED = {"expected value": expected_value, "CVaR": cvar}  # from the prior of Var-JEPA
CONTROLS = (*FITTED, *SAMPLED)


def fit_controls(
    folder: Path,
    model: LeWM,
    fitting: Supervised,
    calibration: Supervised,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Patch]:
    """Fit what is not in the folder yet, each written as it is finished: FOLDER/NAME."""
    for name, fit in FITTED.items():
        if not (folder / name / "manifest.json").exists():
            say(name)
            save_patch(fit(model, fitting, calibration), folder / name)
    return {name: load_patch(folder / name) for name in FITTED}


def control_futures(
    model: LeWM, patch: Patch, starts: Encoded, frozen: Tensor | None = None, batch: int = 8
) -> Tensor:
    """(N, K, B, D) futures that a fitted control decides by. Takes no outcome.

    `frozen`: futures of the unchanged model, where they are known already.
    """
    if "shape" not in patch.card:  # tensors of the predictor itself
        return futures(apply_patch(model, patch), starts, batch)
    base = futures(model, starts, batch) if frozen is None else frozen
    return prior_futures(model, code_of(model, patch), starts, base)


def control_costs(
    model: LeWM,
    patches: Mapping[str, Patch],
    starts: Encoded,
    frozen: Tensor | None = None,
    batch: int = 8,
) -> dict[str, Tensor]:
    """Control -> (N, K) costs, lower is better; the lowest is chosen, ties to the smaller ID.

    `patches` holds what `FITTED` made; with that of Var-JEPA come the two that sample its prior.
    """
    base = futures(model, starts, batch) if frozen is None else frozen
    found = {}
    for name, patch in patches.items():
        predicted = control_futures(model, patch, starts, base, batch)
        found[name] = model.native_cost(predicted, starts.goal).double()
    if "Var-JEPA" in patches:
        drawn = sampled_costs(model, code_of(model, patches["Var-JEPA"]), starts, base)
        found |= {name: rule(drawn) for name, rule in SAMPLED.items()}
    return found
