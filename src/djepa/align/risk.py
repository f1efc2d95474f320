"""Risk control: a gate whose harm is below a limit with a given confidence.

A start is harmed if the base choice solves it and the gated choice does not. Learn then Test
(Angelopoulos et al., 2021) with fixed-sequence testing: the thresholds of a fixed grid are tested
in descending order. Each tests the null hypothesis "harm exceeds the limit" by the exact binomial
tail. The sequence stops at the first that is not rejected, so no multiplicity correction is needed.
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
    """The requested limit and confidence, and the gate that could be certified."""

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
    """The most permissive certified threshold, from (N, K) calibration starts.

    These starts must not have chosen the checkpoint or anything else about the operator. Rows that
    share a number in `same` (N,) are one start, harmed if any of its rows is; the bound is on
    starts.
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
    """Raise unless limit and confidence are valid shares."""
    if not (0 < limit < 1 and 0 < confidence < 1):
        raise DjepaError("limit and confidence are shares between 0 and 1.")


def starts_needed(limit: float, confidence: float) -> int:
    """The fewest calibration starts, none of them harmed, that certify a threshold."""
    return int(np.ceil(np.log(1 - confidence) / np.log(1 - limit)))
