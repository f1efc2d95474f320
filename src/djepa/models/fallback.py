"""The fast path, as long as it agrees with float32; else the plain call.

Recorded graphs, compilers and number formats are tried once for every shape of inputs, against the
plain call in float32 on the same inputs. Where they fail or disagree, the plain call is used.
"""

import warnings
from collections.abc import Mapping

import torch

from djepa.models.fast import RECORDED, Inputs, Predicted, Together, Way, predict_frames
from djepa.models.graph import KEPT
from djepa.models.protocol import Geometry

REFUSED = "Planning in plain float32"  # how the warning begins
EXACT = 1e-4  # of the mean cost: two orders of kernels in float32 differ by about 1e-6
ROUGH = 0.1  # of formats that are known to be rounder; a wrong answer is farther off


class Checked:
    """Predictions of several geometries, by the fast path where it agrees, else the plain call."""

    def __init__(
        self, geometries: Mapping[str, Geometry], device: str | torch.device, way: Way = RECORDED
    ) -> None:
        self.geometries, self.fast = geometries, Together(geometries, device, way)
        self.room = ROUGH if way.precision in ("tf32", "bf16") else EXACT
        self._agrees: dict[tuple[torch.Size, ...], bool] = {}

    @torch.inference_mode()
    def predict(self, given: Inputs) -> dict[str, Predicted]:
        """Predictions by geometry."""
        shapes = tuple(tensor.shape for tensor in given)
        agrees = self._agrees.pop(shapes) if shapes in self._agrees else self._check(given)
        self._agrees[shapes] = agrees  # the latest comes last
        if len(self._agrees) > KEPT:  # graphs of older shapes are recorded anew, too
            self._agrees.pop(next(iter(self._agrees)))
        return self.fast.predict(given) if agrees else self._plain(given)

    def _plain(self, given: Inputs) -> dict[str, Predicted]:
        return {name: predict_frames(of, given) for name, of in self.geometries.items()}

    def _check(self, given: Inputs) -> bool:
        plain = self._plain(given)
        try:
            gap = largest_gap(self.fast.predict(given), plain)
        except Exception as error:  # a compiler may fail in many ways
            reason = (str(error).splitlines() or [type(error).__name__])[0]
        else:
            if gap <= self.room:  # NaN is not
                return True
            reason = f"{self.fast.way.label} is off by {gap:.1g}."
        warnings.warn(f"{REFUSED}: {reason}", stacklevel=4)
        return False


def largest_gap(found: Mapping[str, Predicted], exact: Mapping[str, Predicted]) -> float:
    """Largest difference of a cost, as a share of the geometry's mean cost; NaN if one is."""
    gaps = [
        (found[name].cost - of.cost).abs().max() / of.cost.abs().mean().clamp(min=1e-30)
        for name, of in exact.items()
    ]
    return float(torch.stack(gaps).max())
