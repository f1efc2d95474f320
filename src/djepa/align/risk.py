"""A gate with a promise: harm at most x %, with a confidence.

Harm is a start that the base choice solves and the gated choice does not. Learn then Test
(Angelopoulos et al., 2021): thresholds of a fixed grid are tested from the most careful downwards,
each against "harm exceeds the limit" by the exact binomial tail; the walk ends at the first that
cannot be rejected, so many tests need no correction.

Legend: N starts, K candidates.
"""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import binom
from torch import Tensor

from djepa.align.gates import NEVER, Gate
from djepa.errors import DjepaError
from djepa.evidence.ranks import best

GRID = tuple(np.linspace(0.4, -0.4, 161).round(4).tolist())  # fixed before any outcome is seen


@dataclass(frozen=True)
class Guarantee:
    """What was asked and what could be certified."""

    gate: Gate
    valid: bool  # False: no threshold but "never" can be certified at this sample size
    starts: int
    harmed: int  # calibration starts harmed at the threshold
    changed: int  # calibration starts on which the gate opens
    limit: float
    confidence: float

    def __post_init__(self) -> None:
        if not 0 <= self.harmed <= self.changed <= self.starts:
            raise DjepaError(
                f"Of {self.starts} starts {self.changed} changed and {self.harmed} harmed: no more "
                "can be harmed than changed, nor changed than there are."
            )
        check_shares(self.limit, self.confidence)

    def __str__(self) -> str:
        asked = f"harm at most {self.limit:.1%} with {self.confidence:.0%} confidence"
        if not self.valid:
            least = starts_needed(self.limit, self.confidence)
            return (
                f"No valid threshold for {asked} on {self.starts} calibration starts: the base "
                f"choice is kept. At least {least} starts are needed, with no harm at all on them."
            )
        return f"{asked}: {self.harmed} of {self.starts} harmed, {self.changed} changed"


def risk_controlled(
    gate: Gate,
    base: Tensor,
    refined: Tensor,
    ids: Tensor,
    success: Tensor,
    limit: float = 0.02,
    confidence: float = 0.95,
    same: Tensor | None = None,
) -> Guarantee:
    """The most permissive threshold that keeps the promise, on (N, K) calibration starts.

    They must not have chosen the checkpoint or anything else about the operator. Rows with one
    number in `same` (N,) are one start, harmed if any of its rows is: the bound counts starts.
    """
    check_shares(limit, confidence)
    same = torch.arange(len(ids)) if same is None else same
    gain, N = gate.advantage(base, refined, ids), len(same.unique())
    before, after = (success.gather(1, best(x, ids)[:, None])[:, 0] for x in (base, refined))
    worse = before & ~after
    found = Guarantee(Gate(NEVER, gate.mode, gate.decimals), False, N, 0, 0, limit, confidence)
    for tau in GRID:
        opened = gain > tau
        harmed = len(same[(worse & opened).cpu()].unique())
        if binom.cdf(harmed, N, limit) > 1 - confidence:
            break
        changed = len(same[opened.cpu()].unique())
        certified = Gate(tau, gate.mode, gate.decimals)
        found = Guarantee(certified, True, N, harmed, changed, limit, confidence)
    return found


def check_shares(limit: float, confidence: float) -> None:
    """Refuse what no promise can be."""
    if not (0 < limit < 1 and 0 < confidence < 1):
        raise DjepaError("limit and confidence are shares between 0 and 1.")


def starts_needed(limit: float, confidence: float) -> int:
    """Calibration starts without a single harm from which a threshold can be certified."""
    return int(np.ceil(np.log(1 - confidence) / np.log(1 - limit)))
