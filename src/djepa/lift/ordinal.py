"""Exact ordinal realization: move last latents so that native distance gives the final order.

    z̃_{i,H} = z_g + π_i / (K + 1) · u_i,   z̃_{i,t} = ẑ_{i,t} for t < H            (Eq. 4)

π_i in 1, ..., K is the rank of candidate i in the final order, and u_i the direction from the goal
to its last latent, of unit root mean square. Its native mean squared distance to the goal becomes
(π_i / (K + 1))² (Proposition 4).
"""

import torch
from torch import Tensor

from djepa.errors import DjepaError
from djepa.evidence.ranks import check_pools, check_values, strict_ranks

STILL = 1e-12  # a shorter displacement has no direction: u_i is then all ones


def realize(futures: Tensor, goal: Tensor, score: Tensor, ids: Tensor) -> Tensor:
    """(N, K, B, D) futures, (N, D) goals, (N, K) final scores and IDs -> lifted futures.

    The dtype is kept and earlier steps are unchanged. Raises if the native distances of the result
    have another order, for example after rounding to half precision.
    """
    _check(futures, goal, score, ids)
    lifted, ordered = lift(futures, goal, score, ids)
    if not ordered.all():
        raise DjepaError(
            f"{ids.shape[1]} ranks cannot be kept apart in {futures.dtype} around these goals. "
            "Store the lifted futures in float32."
        )
    return lifted


def lift(futures: Tensor, goal: Tensor, score: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """As `realize` without checks: lifted futures, and (N,) bool: distances have the final order.

    No host synchronisation, so that a CUDA graph can record it.
    """
    K = ids.shape[1]
    place = strict_ranks(score, ids)  # π - 1
    away = futures[:, :, -1].double() - goal.double()[:, None]
    length = away.square().mean(-1, keepdim=True).sqrt()
    unit = torch.where(length > STILL, away / length.clamp(min=STILL), torch.ones_like(away))
    radius = (place + 1).double()[..., None] / (K + 1)
    last = goal.double()[:, None] + radius * unit
    lifted = torch.cat([futures[:, :, :-1], last[:, :, None].to(futures.dtype)], dim=2)
    read = native_distance(lifted, goal).gather(1, place.argsort(dim=1))
    return lifted, (read.diff(dim=1) > 0).all(1)  # strict, so ties need no rule


def native_distance(futures: Tensor, goal: Tensor) -> Tensor:
    """(N, K) float32: mean squared distance of the last latent to the goal."""
    return (futures[:, :, -1].float() - goal.float()[:, None]).square().mean(-1)


def _check(futures: Tensor, goal: Tensor, score: Tensor, ids: Tensor) -> None:
    check_pools(ids, scores=score)
    check_values(ids, futures=futures)
    if (
        futures.ndim != 4
        or 0 in futures.shape[2:]
        or goal.shape != (len(futures), futures.shape[-1])
    ):
        raise DjepaError(f"futures are {tuple(futures.shape)}, goals {tuple(goal.shape)}.")
    if not goal.isfinite().all():
        raise DjepaError("A goal holds a NaN or an infinity.")
