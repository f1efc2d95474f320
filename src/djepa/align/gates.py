"""Gates: keep the base winner unless the aligned winner is better by more than a threshold.

    i_b = argmin b,  i_s = argmin s;   choose i_s iff advantage > τ, else i_b

    advantage = b[i_b] - s[i_s]   (base_minus_refined)   or   s[i_b] - s[i_s]   (refined_gap)

Legend: N starts, K candidates.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from scipy.stats import binomtest, ttest_1samp
from torch import Tensor

from djepa.align.outcomes import millionths
from djepa.errors import DjepaError, unknown_name
from djepa.evidence.blocks import in_blocks
from djepa.evidence.ranks import best

NEVER = float(torch.finfo(torch.float64).max)  # no advantage exceeds it; finite for JSON
Mode = Literal["base_minus_refined", "refined_gap"]
Policy = Literal["permissive", "conservative", "careful", "graded"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
CAREFUL = 0.05  # significance level of the gain on calibration starts that opens a careful gate
DIGITS = 15  # significant decimals of a float64
CELLS = 2**20  # entries of a (thresholds, starts) table held in memory at once
GRID = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 1.0)


@dataclass(frozen=True)
class Gate:
    """A gating rule: which advantage, its threshold τ, and its rounding."""

    threshold: float = NEVER
    mode: Mode = "base_minus_refined"
    decimals: int | None = None  # round the advantage, half to even, before comparing

    def __post_init__(self) -> None:
        if self.mode not in ("base_minus_refined", "refined_gap"):
            raise unknown_name("gate mode", self.mode, ("base_minus_refined", "refined_gap"))
        if not math.isfinite(self.threshold):
            raise DjepaError(
                "A gate's threshold must be finite; gates.NEVER keeps the base choice."
            )
        if self.decimals is not None and not 0 <= self.decimals <= DIGITS:
            raise DjepaError(f"A gate rounds to 0 to {DIGITS} decimals, not to {self.decimals}.")

    def advantage(self, base: Tensor, refined: Tensor, ids: Tensor) -> Tensor:
        """(N, K) scores and IDs -> (N,) float64: b[i_b] - s[i_s], or s[i_b] - s[i_s]."""
        return in_blocks(self._advantage, base, refined, ids)

    def _advantage(self, base: Tensor, refined: Tensor, ids: Tensor) -> Tensor:
        base, refined = base.double(), refined.double()
        i, j = best(base, ids)[:, None], best(refined, ids)[:, None]
        kept = (base if self.mode == "base_minus_refined" else refined).gather(1, i)
        gain = (kept - refined.gather(1, j))[:, 0]
        return gain if self.decimals is None else _rounded(gain, self.decimals)

    def opens(self, base: Tensor, refined: Tensor, ids: Tensor) -> Tensor:
        """(N,) bool: whether the advantage exceeds the threshold."""
        return self.advantage(base, refined, ids) > self.threshold

    def choose(self, base: Tensor, refined: Tensor, ids: Tensor) -> Tensor:
        """(N,) positions of the chosen candidates: i_s where the gate opens, else i_b."""
        opened = self.opens(base, refined, ids)
        return torch.where(opened, best(refined, ids), best(base, ids))

    def final(self, base: Tensor, refined: Tensor, ids: Tensor) -> Tensor:
        """(N, K) float64 final scores: s where the gate opens, else b."""
        opened = self.opens(base, refined, ids)[:, None]
        return torch.where(opened, refined.double(), base.double())


def calibrate(
    gate: Gate,
    base: Tensor,
    refined: Tensor,
    ids: Tensor,
    success: Tensor,
    policy: Policy = "permissive",
    cost: Tensor | None = None,
    observed: Tensor | None = None,
    same: Tensor | None = None,
    level: float = CAREFUL,
) -> Gate:
    """The gate with the most successes on (N, K) calibration starts; the policy breaks ties.

    permissive: the gate that opens on more starts, then the smaller threshold (published for push).
    conservative: the smaller mean `cost` of the choices, then the larger threshold (published for
    Reacher). careful: the gate that opens on fewer starts; it never opens unless an exact one-sided
    sign test of gains against losses is significant at 5 %. This level is nominal, because the
    threshold was chosen on the same starts. graded: `success` is a quality in [0, 1]; the highest
    mean quality, then fewer opened starts. It never opens unless a one-sided t-test of the changes
    is significant at `level` and no more choices than before have the worst quality, 0.

    Only `observed` candidates can win. Rows that share a number in `same` (N,) belong to one start;
    the tests add up their changes.
    """
    if policy not in POLICIES:
        raise unknown_name("policy", policy, POLICIES)
    if policy == "conservative" and cost is None:
        raise DjepaError("Conservative calibration settles ties by cost: give the task costs.")
    _some(ids)
    if observed is not None:
        base, refined, success = *among(observed, base, refined), success * observed
    gain, winners = gate.advantage(base, refined, ids), _winners(base, refined, ids)
    shown = millionths(success) if policy == "graded" else success
    before, after = shown.gather(1, winners).long().unbind(1)
    thresholds = _thresholds(gain, policy)
    opened, added = _opened(gain, after - before, thresholds)
    thresholds, opened = (x[added == added.max()] for x in (thresholds, opened))
    if policy == "conservative" and cost is not None:
        preference = -_paid(gain, cost.gather(1, winners), thresholds)
    else:
        preference = opened if policy == "permissive" else -opened
    tied = thresholds[preference == preference.max()]
    chosen = (tied.min() if policy == "permissive" else tied.max()).item()
    if policy in ("careful", "graded"):
        changed = torch.where(gain > chosen, after, before)
        if not _shown(policy, before, changed, same, level):
            chosen = NEVER
    return Gate(chosen, gate.mode, gate.decimals)


def calibrate_on_grid(
    gate: Gate,
    base: Tensor,
    refined: Tensor,
    ids: Tensor,
    success: Tensor,
    cost: Tensor,
    observed: Tensor | None = None,
) -> Gate:
    """Task-local calibration over the eight thresholds of GRID.

    The most successes win, then the least mean cost, then the larger threshold.
    """
    _some(ids)
    if observed is not None:
        base, refined, success = *among(observed, base, refined), success & observed
    gain, winners = gate.advantage(base, refined, ids)[:, None], _winners(base, refined, ids)
    keys = []
    for tau in GRID:
        at = torch.where(gain > tau, winners[:, 1:], winners[:, :1])
        keys.append((int(success.gather(1, at).sum()), -float(cost.gather(1, at).mean()), tau))
    return Gate(max(keys)[-1], gate.mode, gate.decimals)


def among(observed: Tensor, base: Tensor, refined: Tensor) -> tuple[Tensor, Tensor]:
    """Both (N, K) scores as float64; unobserved candidates get 1e300, so that they cannot win."""
    hidden = ~observed
    if not hidden.any():
        return base.double(), refined.double()
    return base.double().masked_fill(hidden, 1e300), refined.double().masked_fill(hidden, 1e300)


def _some(ids: Tensor) -> None:
    if not len(ids):
        raise DjepaError("There is no start to calibrate on.")


def _opened(gain: Tensor, change: Tensor, thresholds: Tensor) -> tuple[Tensor, Tensor]:
    """(N,) advantages and changes, (T,) τ -> (T,) counts and sums of changes where gain > τ."""
    rising = gain.sort()
    opened = len(gain) - torch.searchsorted(rising.values, thresholds, right=True)
    added = change[rising.indices].flip(0).cumsum(0)  # over the 1, 2, ... largest advantages
    return opened, torch.cat([added.new_zeros(1), added])[opened]


def _shown(
    policy: Policy, before: Tensor, after: Tensor, same: Tensor | None, level: float
) -> bool:
    """(N,) successes or qualities before and after -> whether the policy's test finds a gain."""
    change = after - before
    if same is not None:  # rows of one start count as one
        change = change.new_zeros(len(change)).index_add(0, same.to(change.device), change)
    if policy == "careful":
        return _more_gains(change)
    worst_before, worst_after = (int((quality == 0).sum()) for quality in (before, after))
    return worst_after <= worst_before and _raised(change, level)


def _more_gains(change: Tensor) -> bool:
    """(n,) changes -> whether a one-sided sign test of gains against losses is significant."""
    gains, losses = int((change > 0).sum()), int((change < 0).sum())
    if not gains:
        return False
    p = binomtest(gains, gains + losses, alternative="greater").pvalue
    return float(p) <= CAREFUL


def _raised(change: Tensor, level: float) -> bool:
    """(n,) changes of quality -> whether a one-sided t-test of mean > 0 is significant."""
    if len(change) < 2 or not (change > 0).any():
        return False
    if (change == change[0]).all():  # a t-test needs some variance
        return True
    known = change.double().cpu().numpy()
    return bool(ttest_1samp(known, 0, alternative="greater").pvalue <= level)


def _winners(base: Tensor, refined: Tensor, ids: Tensor) -> Tensor:
    """(N, 2) positions of the base winner i_b and of the aligned winner i_s."""
    return torch.stack([best(base, ids), best(refined, ids)], dim=1)


def _thresholds(gain: Tensor, policy: Policy) -> Tensor:
    """(T,) one threshold for every way to split the starts by advantage, "never" among them."""
    values = gain.unique()  # ascending
    low, high = values[:1], values[-1:]
    if policy == "conservative":
        step = (1e-6 * (high - low)).clamp(min=1e-9)
        return torch.cat([low - step, values, high + step])
    never, under = torch.full_like(low, NEVER), torch.full_like(low, -torch.inf)
    return torch.cat([never, (values[:-1] + values[1:]) / 2, low.nextafter(under)])


def _paid(gain: Tensor, spent: Tensor, thresholds: Tensor) -> Tensor:
    """(N,) advantages, (N, 2) costs of both winners -> (T,) mean cost of the choices.

    Not by running sums: thresholds with equal choices must have equal means to the last bit.
    """
    before, after = spent.unbind(1)
    some = max(1, CELLS // len(gain))  # thresholds at a time
    means = [
        torch.where(gain > taus[:, None], after, before).mean(1) for taus in thresholds.split(some)
    ]
    return torch.cat(means)


def _rounded(values: Tensor, decimals: int) -> Tensor:
    scale = 10.0**decimals
    return torch.round(values * scale) / scale  # torch rounds half to even
