"""Which part of a planner fails, by a rule fixed in advance.

A start whose chosen candidate fails is attributed to the first part that explains the failure:

    pool        no candidate of the start succeeds
    search      the candidate of lowest predicted cost succeeds, but the planner chose another
    prediction  the candidate of lowest realised cost succeeds: the cost is right on executed
                latents and wrong on predicted ones
    cost        the candidate of lowest realised cost fails, although some candidate succeeds

    nothing     the upper end of the 95 % interval of the share of failed starts is at most 10 %
    NAME        otherwise the part with the largest share, if the 95 % interval of the difference
                between its share and the second largest lies above 0
    undecided   otherwise

Realised costs are the model's own cost of the latents of executed states. Without them there is no
verdict. If the planner's choices are not given, the lowest predicted cost is the choice, and the
search cannot fail.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.audit.choices import Floats, Share, resampled, share_of

PARTS = ("pool", "search", "prediction", "cost")
TOLERATED = 0.1
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Verdict:
    """The part that fails, and the share of all starts attributed to each part."""

    part: str  # one of PARTS, "nothing" or "undecided"
    failed: Share
    parts: dict[str, Share]

    def __str__(self) -> str:
        shares = ", ".join(f"{name} {100 * s.value:.1f} %" for name, s in self.parts.items())
        return f"{self.part} (fails on {self.failed}: {shares})"


def verdict(taken: Bools, predicted: Bools, realised: Bools, any_: Bools, groups: Any) -> Verdict:
    """Apply the rule to (N,) bool successes.

    `taken`: the planner's choice; `predicted`, `realised`: the candidate of lowest predicted or
    realised cost; `any_`: whether any candidate succeeds. `groups` (N,) marks rows of one start.
    """
    reasons = (~any_, predicted, realised, np.ones_like(any_))
    left, blamed = ~taken, []
    for reason in reasons:
        blamed.append(left & reason)
        left = left & ~reason
    columns: Floats = np.stack([~taken, *blamed], axis=1).astype(float)
    drawn, mean = resampled(columns, groups), columns.mean(0)
    failed, *shares = (share_of(mean[i], drawn[:, i]) for i in range(5))
    parts = dict(zip(PARTS, shares, strict=True))
    first, second = np.argsort(-mean[1:], kind="stable")[:2] + 1
    ahead = share_of(mean[first] - mean[second], drawn[:, first] - drawn[:, second])
    part = PARTS[first - 1] if ahead.low > 0 else "undecided"
    return Verdict("nothing" if failed.high <= TOLERATED else part, failed, parts)
