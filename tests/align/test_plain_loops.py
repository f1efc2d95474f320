"""The loss and the gate's calibration are those of plain loops."""

import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from djepa.align.gates import NEVER, Gate, Mode, calibrate
from djepa.align.objectives import RelationalLoss
from djepa.evidence.ranks import best, order


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


@pytest.mark.parametrize("tail", [1, 3, 16])
@pytest.mark.parametrize("observed", [0.6, 1.1])
def test_the_loss_is_that_of_a_loop_over_rows(tail: int, observed: float) -> None:
    loss, g = RelationalLoss(tail=tail), torch.Generator().manual_seed(tail)
    scores, seen = torch.rand(8, 12, generator=g), torch.rand(8, 12, generator=g) < observed
    success, ids = torch.rand(8, 12, generator=g) < 0.3, torch.rand(8, 12, generator=g).argsort(1)
    seen[:, :2], success[:, 0], success[:, 1] = True, True, False
    delta = torch.rand(8, 12, generator=g, requires_grad=True)
    ours = loss(scores + delta, delta, success, seen, ids)[0]
    plain = loss_by_rows(loss, scores + delta, delta, success, seen, ids)
    torch.testing.assert_close(ours, plain, rtol=1e-6, atol=1e-6)
    here, there = (torch.autograd.grad(value, delta)[0] for value in (ours, plain))
    torch.testing.assert_close(here, there, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("mode", ["base_minus_refined", "refined_gap"])
@pytest.mark.parametrize("decimals", [None, 1])
def test_the_gate_is_that_of_a_loop_over_thresholds(mode: Mode, decimals: int | None) -> None:
    g, gate = torch.Generator().manual_seed(0), Gate(mode=mode, decimals=decimals)
    for N in (1, 2, 7, 30, 64):
        for coarse in (5, 1000):
            base, refined = (torch.randint(0, coarse, (N, 6), generator=g) / 10 for _ in range(2))
            ids, success = (torch.rand(N, 6, generator=g) for _ in range(2))
            given = base, refined, ids.argsort(1), success < 0.4
            assert calibrate(gate, *given) == calibrate_by_loop(gate, *given)
