"""Expected-value and tail-risk planning: 16 futures per candidate, drawn from the prior.

    u_s ~ p(u | h_i),   c_{i,s} = native cost of ẑ_i + Dec(h_i, u_s),   s = 1, ..., 16
    expected value  c_i = mean over s of c_{i,s}
    CVaR            c_i = mean of the ⌈(1 - 0.9) 16⌉ = 2 largest c_{i,s}

(App. A; after Enwerem et al., IROS 2026, and Ni et al., ICML 2024.) The prior is that of a fitted
Var-JEPA. Draws are seeded by start and candidate, so that no order changes them.

Legend: N starts, K candidates, S futures of a candidate, B blocks, D latent, U code.
"""

import math

import numpy as np
import torch
from torch import Tensor

from djepa.align.controls.trajectory import TrajectoryCode, each_start, to_given_order
from djepa.align.plastic_fit import Encoded
from djepa.models.lewm import LeWM
from djepa.seeds import generator

FUTURES, LEVEL = 16, 0.9
TAIL = math.ceil((1 - LEVEL) * FUTURES)


@torch.no_grad()
def sampled_costs(model: LeWM, code: TrajectoryCode, starts: Encoded, frozen: Tensor) -> Tensor:
    """(N, K, S) float64 native costs of futures from the prior."""
    parts = []
    each = zip(starts.identities, each_start(model, starts, frozen), strict=True)
    for identity, (known, base, ids, goal) in each:
        noise = draws(identity, ids, FUTURES, code.code).to(known.device)
        codes = code.prior(known[:, None]).at(noise)  # (K, S, U)
        change = code.residual(known[:, None].expand(-1, FUTURES, -1), codes)
        cost = model.native_cost(base[:, None] + change, goal.expand(len(ids), -1))
        parts.append(cost.double())
    return to_given_order(parts, starts.ids)


def draws(identity: str, ids: Tensor, samples: int, width: int) -> Tensor:
    """(K, S, U) standard normal numbers, seeded by start and candidate ID."""
    named = [generator("prior", 0, identity, int(i)) for i in ids.tolist()]
    each = [rng.standard_normal((samples, width), dtype=np.float32) for rng in named]
    return torch.from_numpy(np.stack(each))


def expected_value(costs: Tensor) -> Tensor:
    """(N, K, S) -> (N, K) mean."""
    return _mean(costs)


def cvar(costs: Tensor) -> Tensor:
    """(N, K, S) -> (N, K) mean of the worst share, 1 - LEVEL."""
    return _mean(costs.topk(TAIL, dim=-1).values)


def _mean(costs: Tensor) -> Tensor:
    """Mean over the last axis, summed in ascending order; exact for equal costs."""
    least = costs.amin(-1, keepdim=True)
    return (least + (costs - least).mean(-1, keepdim=True))[..., 0]
