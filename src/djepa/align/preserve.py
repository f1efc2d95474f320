"""Controls that keep a native choice or replace it by one fixed correction (App. G).

    fixed correction   always the variant with the most successes on fitting starts
    a gate             that variant iff a scalar of the native chunk passes a threshold τ:
                       timing    q < τ         distance    d > τ         doubt    u > τ
    preservation       the aligned winner iff it is better than the native one by more than τ

Thresholds come from paired outcomes of calibration starts; of equals, the one that keeps the native
choice most often. Legend: N starts, K candidates; the native candidate has the smallest ID.
"""

import msgspec
import torch
from torch import Tensor

from djepa.align.gates import NEVER
from djepa.align.outcomes import Outcomes
from djepa.errors import DjepaError


class Fixed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Always choose the variant with this ID."""

    candidate: int

    def __post_init__(self) -> None:
        if self.candidate < 0:
            raise DjepaError(f"No candidate has the ID {self.candidate}.")


class Threshold(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Replace the native choice where sign · scalar > τ."""

    sign: int  # 1 or -1
    tau: float

    def __post_init__(self) -> None:
        if self.sign not in (1, -1):
            raise DjepaError(f"The sign of a threshold is 1 or -1, not {self.sign}.")

    def opens(self, scalar: Tensor) -> Tensor:
        """(N,) numbers -> (N,) bool."""
        return self.sign * scalar.double() > self.tau


def fit_fixed(ids: Tensor, outcomes: Outcomes) -> Fixed:
    """The variant with the most successes; ties go to the smaller ID. ID 0 is the native chunk."""
    variants = [int(i) for i in ids[0].sort().values.tolist() if i != 0]
    if not variants or not (ids.sort(1).values == ids[0].sort().values).all():
        raise DjepaError("A fixed correction needs the same candidate IDs at every start.")
    solved = [int((outcomes.success & (ids == one)).sum()) for one in variants]
    return Fixed(variants[solved.index(max(solved))])


def fit_threshold(scalar: Tensor, before: Tensor, after: Tensor, sign: int = 1) -> Threshold:
    """(N,) scalars, successes `before` (keeping) and `after` (replacing) -> the best threshold.

    The candidates for τ are one between every two distinct scalars, and "never".
    """
    if not len(scalar):
        raise DjepaError("There is no start to calibrate a threshold on.")
    x = sign * scalar.double()
    gain = after.long() - before.long()
    order = x.argsort(descending=True)
    sums = torch.cat([gain.new_zeros(1), gain[order].cumsum(0)])
    ranked = x[order]
    apart = torch.cat(
        [torch.tensor([True]), ranked[:-1] > ranked[1:], torch.tensor([True])]
    )  # equal scalars are replaced together
    sums = sums.masked_fill(~apart, -len(x) - 1)
    many = int((sums == sums.max()).nonzero()[0])  # the fewest replacements among the best
    if many == 0:
        return Threshold(sign, NEVER)
    low = ranked[many] if many < len(x) else ranked[-1] - 1
    return Threshold(sign, float((ranked[many - 1] + low) / 2))
