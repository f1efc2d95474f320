"""Gates: the base winner stays unless the aligned one is better by more than a threshold.

    i_b = argmin b,  i_s = argmin s;   take i_s iff  advantage > τ   (strictly)

Legend: N starts, K candidates.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from djepa.errors import DjepaError, unknown_name
from djepa.evidence.ranks import best

NEVER = float(torch.finfo(torch.float64).max)  # finite, so that JSON can hold it; none exceeds it
Mode = Literal["base_minus_refined", "refined_gap"]
Policy = Literal["permissive", "conservative", "preserving"]
GRID = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 1.0)


@dataclass(frozen=True)
class Gate:
    """A rule, its threshold and its rounding."""

    threshold: float = NEVER
    mode: Mode = "base_minus_refined"
    decimals: int | None = None  # half to even, before the strict comparison

    def __post_init__(self) -> None:
        if self.mode not in ("base_minus_refined", "refined_gap"):
            raise unknown_name("gate mode", self.mode, ("base_minus_refined", "refined_gap"))
        if not math.isfinite(self.threshold):
            raise DjepaError(
                "A gate's threshold must be finite; gates.NEVER keeps the base choice."
            )

    def advantage(self, base: Tensor, refined: Tensor, ids: Tensor) -> Tensor:
        """(N,) float64: b[i_b] - s[i_s], or s[i_b] - s[i_s]."""
        base, refined = base.double(), refined.double()
        i, j = best(base, ids)[:, None], best(refined, ids)[:, None]
        kept = (base if self.mode == "base_minus_refined" else refined).gather(1, i)
        gain = (kept - refined.gather(1, j))[:, 0]
        return gain if self.decimals is None else _rounded(gain, self.decimals)

    def opens(self, base: Tensor, refined: Tensor, ids: Tensor) -> Tensor:
        """(N,) bool."""
        return self.advantage(base, refined, ids) > self.threshold

    def choose(self, base: Tensor, refined: Tensor, ids: Tensor) -> Tensor:
        """(N,) positions of the winners."""
        opened = self.opens(base, refined, ids)
        return torch.where(opened, best(refined, ids), best(base, ids))

    def final(self, base: Tensor, refined: Tensor, ids: Tensor) -> Tensor:
        """(N, K) float64: the score that orders the whole pool, aligned or base."""
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
) -> Gate:
    """The threshold with the most successes on calibration starts; the policy settles ties.

    permissive: more starts that use the aligned choice, then the smaller threshold (published for
    push); conservative: the smaller mean `cost` of what is chosen, then the larger threshold
    (published for Reacher); preserving: fewer starts that use the aligned choice. Winners are
    chosen among `observed` candidates.
    """
    if policy not in ("permissive", "conservative", "preserving"):
        raise unknown_name("policy", policy, ("permissive", "conservative", "preserving"))
    if policy == "conservative" and cost is None:
        raise DjepaError("Conservative calibration settles ties by cost: give the task costs.")
    _some(ids)
    if observed is not None:
        base, refined, success = *among(observed, base, refined), success & observed
    gain = gate.advantage(base, refined, ids)
    before, after = (success.gather(1, best(x, ids)[:, None])[:, 0].long() for x in (base, refined))
    spent = torch.zeros(2, len(ids), dtype=torch.float64, device=ids.device)
    if cost is not None:
        spent = torch.stack([cost.gather(1, best(x, ids)[:, None])[:, 0] for x in (base, refined)])
    keys = []
    thresholds = _thresholds(gain, policy)
    for tau in thresholds:
        opened = gain > tau
        hits = int(torch.where(opened, after, before).sum())
        used, paid = int(opened.sum()), float(torch.where(opened, spent[1], spent[0]).mean())
        keys.append(
            {
                "permissive": (hits, used, -tau),
                "conservative": (hits, -paid, tau),
                "preserving": (hits, -used, tau),
            }[policy]
        )
    chosen = thresholds[max(range(len(keys)), key=keys.__getitem__)]
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
    """The task-local choice: eight thresholds; most successes, least cost, the larger threshold."""
    _some(ids)
    if observed is not None:
        base, refined, success = *among(observed, base, refined), success & observed
    keys = []
    for tau in GRID:
        at = Gate(tau, gate.mode, gate.decimals).choose(base, refined, ids)[:, None]
        keys.append((int(success.gather(1, at).sum()), -float(cost.gather(1, at).mean()), tau))
    return Gate(max(keys)[-1], gate.mode, gate.decimals)


def among(observed: Tensor, base: Tensor, refined: Tensor) -> tuple[Tensor, Tensor]:
    """Both scores as float64, in which only observed candidates can win."""
    hidden = ~observed
    return base.double().masked_fill(hidden, 1e300), refined.double().masked_fill(hidden, 1e300)


def _some(ids: Tensor) -> None:
    if not len(ids):
        raise DjepaError("There is no start to calibrate on.")


def _thresholds(gain: Tensor, policy: Policy) -> list[float]:
    """Every threshold that tells calibration starts apart, and "never"."""
    values = gain.unique().tolist()  # ascending
    if policy == "conservative":
        step = max(1e-9, 1e-6 * (values[-1] - values[0]))
        return sorted({values[0] - step, *values, values[-1] + step})
    between = [(a + b) / 2 for a, b in pairwise(values)]
    return [NEVER, *between, math.nextafter(values[0], -math.inf)]


def _rounded(values: Tensor, decimals: int) -> Tensor:
    scale = 10.0**decimals
    return torch.round(values * scale) / scale  # torch rounds half to even
