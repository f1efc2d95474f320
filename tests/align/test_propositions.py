"""The paper's propositions about decisions, as properties of what the code computes.

Base scores stand on the grid that fusions have, whole parts of 1 / (100 (K - 1)): there a gap above
2ε exceeds it by far more than float32 rounds, so that the propositions hold to the letter.
Arbitrary base scores are given the rounding of one float32 sum.
"""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from djepa.align.gates import Gate, Mode
from djepa.align.operator import OperatorConfig, RelationalOperator
from djepa.evidence.fusion import fuse
from djepa.evidence.ranks import best, ordinal_ranks, strict_ranks

SETTINGS = settings(max_examples=100, deadline=None)
SEEDS, SIZES = st.integers(0, 2**32), st.integers(2, 80)


def aligned(seed: int, K: int, grid: bool, epsilon: float = 0.2) -> tuple[Tensor, Tensor, Tensor]:
    """IDs, base scores and the scores of an operator whose weights are anything."""
    rng = np.random.default_rng(seed)
    ids = torch.from_numpy(rng.choice(5 * K, (1, K), replace=False))
    if grid:
        costs = torch.from_numpy(rng.integers(0, K, (1, K, 2)).astype(float))
        ranks = torch.stack([ordinal_ranks(costs[..., m], ids) for m in range(2)], dim=-1)
        share = int(rng.integers(101))
        base = fuse(ranks, (share / 100, (100 - share) / 100))
    else:
        base = torch.from_numpy(rng.normal(size=(1, K)) * rng.choice([1e-3, 0.3, 1.0]))
    random = torch.Generator().manual_seed(seed % 2**31)
    operator = RelationalOperator(OperatorConfig(inputs=3, epsilon=epsilon), random)
    spread = float(rng.choice([0.1, 1.0, 100.0]))
    torch.nn.init.normal_(operator.up.weight, std=spread, generator=random)
    with torch.no_grad():
        scores, _ = operator(torch.from_numpy(rng.normal(size=(1, K, 3))).float(), base)
    return ids, base, scores.double()


@SETTINGS
@given(SEEDS, SIZES, st.booleans(), st.sampled_from([0.2, 0.05, 0.1]))
def test_margins_above_two_epsilon_are_preserved(
    seed: int, K: int, grid: bool, epsilon: float
) -> None:
    _, base, scores = aligned(seed, K, grid, epsilon)
    room = 2 * epsilon + 1e-6 * max(1.0, float(base.abs().max()))
    wide = base[0][None] - base[0][:, None] > room  # b_j - b_i
    assert (scores[0][:, None] < scores[0][None])[wide].all()


@SETTINGS
@given(SEEDS, SIZES, st.booleans())
def test_the_choice_lies_within_two_epsilon_of_the_base_minimum(
    seed: int, K: int, grid: bool
) -> None:
    ids, base, scores = aligned(seed, K, grid)
    chosen = [best(scores, ids)]
    modes: tuple[Mode, ...] = ("base_minus_refined", "refined_gap")
    for mode in modes:
        chosen += [Gate(tau, mode).choose(base, scores, ids) for tau in (-1.0, 0.0, 0.05)]
    rounding = 1e-9 if grid else 1e-6 * max(1.0, float(base.abs().max()))
    for position in chosen:
        assert base[0, position] - base.min() <= 2 * 0.2 + rounding


@SETTINGS
@given(SEEDS, SIZES)
def test_a_base_winner_ahead_by_more_than_two_epsilon_stays(seed: int, K: int) -> None:
    ids, base, _ = aligned(seed, K, grid=True)
    torch.manual_seed(seed % 2**31)
    delta = 0.2 * torch.empty(1, K, dtype=torch.float64).uniform_(-1, 1).sign()  # the worst case
    winner = best(base, ids)
    base[0, winner] = base[0, torch.arange(K) != winner].min() - 0.4 - 1e-9
    delta[0, winner] = 0.2
    assert best(base + delta, ids) == winner


@SETTINGS
@given(SEEDS, SIZES, st.floats(1e-9, 1e3))
def test_bounded_cost_error_bounds_regret(seed: int, K: int, eta: float) -> None:
    """|c - q| <= η: the choice costs at most 2η more, and is unique when the margin is larger.

    Costs are whole multiples of η / 8, so that ties are exact.
    """
    rng = np.random.default_rng(seed)
    ids = torch.from_numpy(rng.choice(5 * K, (1, K), replace=False))
    q = torch.from_numpy(rng.integers(0, 60, (1, K)))
    c = q + torch.from_numpy(rng.integers(-8, 9, (1, K)))
    chosen = best(c * (eta / 8), ids)
    assert q[0, chosen] - q.min() <= 16
    star = int(rng.integers(K))
    q[0, star] = -17
    c[0, star] = q[0, star] + int(rng.integers(-8, 9))
    assert best(c * (eta / 8), ids) == star


@SETTINGS
@given(SEEDS, SIZES, st.sampled_from([1e-6, 1.0, 1e6]))
def test_global_agreement_and_a_wrong_decision(seed: int, K: int, gap: float) -> None:
    """The paper's construction: two neighbours swapped at the top, everything else right."""
    q = gap * torch.cat([torch.zeros(1), 1 + torch.arange(K - 1) / (K - 1)]).double()[None]
    c = q.clone()
    c[0, :2] = q[0, [1, 0]]
    p = torch.from_numpy(np.random.default_rng(seed).permutation(K))
    q, c, ids = q[:, p], c[:, p], 1 + torch.arange(K)[None]
    torch.testing.assert_close((c - q).square().mean().item(), 2 * gap**2 / K)
    apart = (strict_ranks(c, ids) - strict_ranks(q, ids)).square().sum().item()
    rho = 1 - 6 * apart / (K * (K**2 - 1))
    assert abs(rho - (1 - 12 / (K * (K**2 - 1)))) < 1e-12
    assert q[0, best(c, ids)].item() - q.min().item() == gap


@SETTINGS
@given(SEEDS, SIZES)
def test_each_source_may_be_mapped_by_an_increasing_function(seed: int, K: int) -> None:
    """Ranks, and so the base score, are those of the unmapped costs, ties included."""
    rng = np.random.default_rng(seed)
    ids = torch.from_numpy(rng.choice(5 * K, (1, K), replace=False))
    costs = torch.from_numpy(rng.integers(-K // 2, K // 2 + 1, (1, K, 2)).astype(float))
    mapped = torch.stack([(costs[..., 0] / 8).exp(), 5 * costs[..., 1] ** 3 - 2], dim=-1)
    plain, other = (
        fuse(torch.stack([ordinal_ranks(x[..., m], ids) for m in range(2)], -1), (0.42, 0.58))
        for x in (costs, mapped)
    )
    assert torch.equal(plain, other)
