"""Weights of the likelihood mixture (evidence/logs.py), fitted on outcomes of the fitting starts.

    w = argmin  mean over starts of -log Σ_{y_i = 1} softmax(-b / T)_i  +  λ |w|²,   w ≥ 0

Where outcomes are graded, the sum is over all candidates, weighted by their quality q_i: the
expected quality of a choice drawn from softmax(-b / T), so a collision is worse than a slow drive.

softmax(-b / T) is thus a probability fitted to outcomes, with the temperature T of the operator's
objective. Five-fold cross-validation on the fitting starts selects the inputs.

Legend: N starts, K candidates, M inputs.
"""

from collections.abc import Sequence
from itertools import product

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize
from torch import Tensor

from djepa.evidence.blocks import in_blocks
from djepa.evidence.evidence import Evidence, clusters
from djepa.evidence.logs import LogMixture, mix, mixture_inputs
from djepa.evidence.ranks import best

RIDGE, FOLDS = 1e-4, 5
AT_ONCE = 2**14  # starts
Floats = npt.NDArray[np.float64]


def fit_logs(
    evidence: Evidence,
    success: Tensor,
    observed: Tensor,
    names: Sequence[str],
    density: Sequence[str] = (),
    ranked: bool = False,
) -> LogMixture:
    """Fit one mixture per allowed set of inputs; return the one with the most held-out successes.

    A set holds the geometries, with or without their density, with or without ranks beside the
    logarithms; ties go to the first. `success` (N, K) is bool, or a quality in [0, 1].
    """
    # Of all starts, in float64: every step of the minimiser reads them again, and density is slow.
    every = mixture_inputs(evidence, names, density, ranked)
    M, D = len(names), len(density)
    found = []
    for also, extra in product((False, True) if ranked else (False,), (0, D) if D else (0,)):
        first = [*range(M), *range(M, M + extra)]
        columns = [*first, *(M + D + i for i in first)] if also else first
        known = tuple(names), tuple(density[:extra])
        found.append(_fit(evidence, success, observed, every, columns, *known, also))
    return max(found, key=lambda mixture: mixture.held_out)


def _fit(
    evidence: Evidence,
    success: Tensor,
    observed: Tensor,
    inputs: Tensor,
    columns: Sequence[int],
    names: tuple[str, ...],
    density: tuple[str, ...],
    ranked: bool,
) -> LogMixture:
    """Maximum-likelihood weights for `columns` of the inputs, and successes on held-out folds."""
    ids = evidence.ids
    fold = clusters(evidence.identities).to(ids.device) % FOLDS

    def judge(weights: Sequence[float], rows: Tensor) -> int:
        worth = []
        for some in rows.nonzero().flatten().split(AT_ONCE):
            score = mix(inputs[some][..., columns], weights).masked_fill(~observed[some], torch.inf)
            at = best(score, ids[some])[:, None]
            worth.append((success[some] * observed[some]).gather(1, at))
        hits = torch.cat(worth).sum()
        return int(hits) if success.dtype == torch.bool else round(1000 * float(hits))

    held_out = 0
    for k in range(FOLDS):
        rest = fold != k
        if rest.any() and not rest.all():
            held_out += judge(likeliest(inputs, success, observed, rest, columns), ~rest)
    weights = likeliest(inputs, success, observed, None, columns)
    return LogMixture(names, density, weights, judge(weights, fold >= 0), held_out, ranked)


def likeliest(
    inputs: Tensor,
    success: Tensor,
    observed: Tensor,
    among: Tensor | None = None,
    columns: Sequence[int] | None = None,
) -> tuple[float, ...]:
    """(N, K, M) inputs and outcomes -> M maximum-likelihood weights, by L-BFGS-B in float64.

    `among` (N,) bool selects starts, `columns` selects inputs; by default all are used. Starts of
    one class are left out.
    """
    columns = list(range(inputs.shape[-1]) if columns is None else columns)
    M = len(columns)
    counts = in_blocks(_differ, success, observed)
    mixed = (counts if among is None else counts & among).nonzero().flatten()
    if not len(mixed):
        return (1.0,) * M

    def loss(weights: Floats) -> tuple[float, Floats]:
        w = torch.from_numpy(weights).to(inputs.device).requires_grad_()
        total = RIDGE * w.square().sum()
        total.backward()
        value = total.item()
        for rows in mixed.split(AT_ONCE):  # in parts, to bound the memory
            good = success[rows].double() * observed[rows]
            logits = -(inputs[rows][..., columns] @ w).masked_fill(~observed[rows], torch.inf)
            mass = logits.logsumexp(1) - (logits + good.log()).logsumexp(1)
            part = mass.mean() * (len(rows) / len(mixed))
            part.backward()
            value += part.item()
        assert w.grad is not None
        return value, w.grad.cpu().numpy()

    with torch.enable_grad():
        found = minimize(loss, np.ones(M), jac=True, method="L-BFGS-B", bounds=[(0, None)] * M)
    return tuple(round(float(w), 9) for w in found.x)


def _differ(success: Tensor, observed: Tensor) -> Tensor:
    """(N,) bool: starts whose observed candidates are not all equally good, and not all bad."""
    good = success.double() * observed
    worst = good.masked_fill(~observed, torch.inf).amin(1)
    return (good.amax(1) > 0) & (worst < good.amax(1))
