"""What the align bench measures: problems drawn from a generator, the plain ways, a fast path.

Legend: N starts, K candidates, F token width, B blocks, D latent.
"""

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from djepa.align.fit import Alignment
from djepa.align.gates import NEVER, Gate
from djepa.align.objectives import RelationalLoss
from djepa.align.operator import RelationalOperator
from djepa.align.outcomes import Outcomes
from djepa.align.presets import PAIR
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence
from djepa.evidence.ranks import best, order
from djepa.lift.ordinal import lift, realize
from djepa.seeds import generator

BLOCKS = 5
Problem = tuple[Evidence, Outcomes]
LiftInputs = tuple[RelationalOperator, Gate, Tensor, Tensor, Tensor, Tensor, Tensor]


class Lifted(NamedTuple):
    """What `decide_and_lift` gives."""

    choice: Tensor  # (N,) candidate IDs
    final: Tensor  # (N, K) float64: the score that orders
    futures: Tensor  # (N, K, B, D) lifted
    ordered: Tensor  # (N,) bool: whether native distance on the lifted futures gives the order


@torch.no_grad()
def decide_and_lift(
    operator: RelationalOperator,
    gate: Gate,
    tokens: Tensor,
    base: Tensor,
    ids: Tensor,
    futures: Tensor,
    goal: Tensor,
) -> Lifted:
    """Operator, gate and lift; tensors alone, the host waits for nothing.

    (N, K, F) tokens, (N, K) base scores and IDs, (N, K, B, D) futures, (N, D) goals, all checked
    before; the operator is in eval mode.
    """
    final = gate.final(base, operator(tokens, base)[0], ids)
    choice = ids.gather(1, best(final, ids)[:, None])[:, 0]
    return Lifted(choice, final, *lift(futures, goal, final, ids))


@torch.no_grad()
def checked(
    operator: RelationalOperator,
    gate: Gate,
    tokens: Tensor,
    base: Tensor,
    ids: Tensor,
    futures: Tensor,
    goal: Tensor,
) -> Tensor:
    """The plain way: the same by `realize`, which looks at what it is given and at what it made."""
    return realize(futures, goal, gate.final(base, operator(tokens, base)[0], ids), ids)


def lift_inputs(alignment: Alignment, evidence: Evidence) -> LiftInputs:
    """What `decide_and_lift` takes, by the operator."""
    if alignment.tokens is None or alignment.gate is None or alignment.operator is None:
        raise DjepaError("Fit and calibrate first.")
    base, _ = alignment.scores(evidence)
    tokens, operator = alignment.tokens(evidence), alignment.operator.eval()
    way, goal = futures(evidence, PAIR[0])
    return operator, alignment.gate, tokens, base, evidence.ids, way, goal


def problem(split: str, starts: int, candidates: int, latent: int, device: str) -> Problem:
    """Two geometries that predict candidates nearer to or farther from the goal than they end.

    About one candidate in eight succeeds. Predicted ends of failures share a direction, which is
    what there is to learn.
    """
    rng = generator("bench-align", split)
    shape, axis = (starts, candidates), (-1.0) ** np.arange(latent)
    error = rng.gamma(2.0, 1.0, shape)  # in units of some tolerance
    success = error < 0.6
    ids = np.argsort(rng.random(shape), axis=1)
    costs, ends, goals = {}, {}, {}
    for name in PAIR:
        goal = rng.normal(size=(starts, 1, latent))
        away = rng.normal(size=(*shape, latent)) + 0.1 * ~success[..., None] * axis
        predicted = error * np.exp(1.2 * rng.normal(size=shape))
        away *= (predicted / np.sqrt((away**2).mean(-1)))[..., None]
        costs[name] = (away**2).mean(-1)
        ends[name], goals[name] = (goal + away).astype(np.float16), goal[:, 0].astype(np.float16)
    names = [f"{split}-{start}" for start in range(starts)]
    evidence = Evidence.from_arrays(
        start_ids=names, candidate_ids=ids, costs=costs, latents=ends, goals=goals
    )
    outcome, seen = torch.from_numpy(success), torch.ones(shape, dtype=torch.bool)
    outcomes = Outcomes(evidence.identities, outcome, seen, torch.from_numpy(error))
    return evidence.to(device), outcomes.to(device)


def futures(evidence: Evidence, name: str) -> tuple[Tensor, Tensor]:
    """(N, K, B, D) futures on a straight way to where one geometry predicts, (N, D) its goals."""
    end = evidence.latents[name]
    way = torch.linspace(1 / BLOCKS, 1, BLOCKS, device=end.device).to(end.dtype)
    return end[:, :, None] * way[:, None], evidence.goals[name]


def loss_by_rows(
    loss: RelationalLoss,
    scores: Tensor,
    delta: Tensor,
    success: Tensor,
    observed: Tensor,
    ids: Tensor,
) -> Tensor:
    """The plain way: the published loss one start after the other; all of them must be mixed."""
    T, terms = loss.temperature, []
    for score, won, seen, names in zip(scores, success, observed, ids, strict=True):
        s, y, i = score[seen], won[seen], names[seen]
        mass = -(-s / T).softmax(0)[y].sum().log()
        low = order(s.detach()[None], i[None])[0, : loss.tail]
        good, bad = s[low][y[low]], s[low][~y[low]]
        if not (len(good) and len(bad)):
            good, bad = s[y], s[~y]
        pairs = F.softplus((loss.margin + good[:, None] - bad) / T).mean()
        terms.append(mass + loss.local * pairs)
    return torch.stack(terms).mean() + loss.trust * delta[observed].square().mean()


def calibrate_by_loop(
    gate: Gate, base: Tensor, refined: Tensor, ids: Tensor, success: Tensor
) -> Gate:
    """The plain way: permissive calibration, one threshold after the other."""
    gain = gate.advantage(base, refined, ids)
    before, after = (success.gather(1, best(x, ids)[:, None])[:, 0] for x in (base, refined))
    values, keys = gain.unique().tolist(), []
    between = [(a + b) / 2 for a, b in pairwise(values)]
    for tau in (NEVER, *between, math.nextafter(values[0], -math.inf)):
        opened = gain > tau
        hits = int(torch.where(opened, after, before).sum())
        keys.append((hits, int(opened.sum()), -tau))
    return Gate(-max(keys)[2], gate.mode, gate.decimals)
