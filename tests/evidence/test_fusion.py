"""The base score: its grid, its tie rules, and a brute-force loop that must agree."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from djepa.align.fusion import finest, fit_fusion, simplex
from djepa.errors import DjepaError
from djepa.evidence.fusion import fuse

Problem = tuple[Tensor, Tensor, Tensor, Tensor]


def problem(seed: int, N: int, K: int, M: int, sparse: bool = False) -> Problem:
    """Ranks, IDs, success, observed."""
    rng = np.random.default_rng(seed)
    ranks = rng.random((N, M, K)).argsort(-1).transpose(0, 2, 1) / (K - 1)
    ids = rng.random((N, K)).argsort(-1) + 1
    success = rng.random((N, K)) < 0.4
    observed = rng.random((N, K)) < (0.6 if sparse else 1.1)
    observed[:, 0] = True
    return tuple(map(torch.from_numpy, (ranks, ids, success, observed)))  # type: ignore[return-value]


def by_hand(case: Problem, parts: int, rows: list[int]) -> tuple[tuple[int, ...], int]:
    """Every mixture in turn, in whole numbers: best key wins.

    Weights are whole parts and ranks whole places, so that scores and their ties are exact.
    """
    ids, success, observed = (x.tolist() for x in case[1:])
    K, M = case[0].shape[1:]
    places = (case[0] * (K - 1)).round().long().tolist()
    found = []
    for shares in product(range(parts + 1), repeat=M):
        if sum(shares) != parts:
            continue
        wins, gaps = 0, []
        for n in rows:
            score = [sum(s * r for s, r in zip(shares, v, strict=True)) for v in places[n]]
            seen = [i for i in range(len(score)) if observed[n][i]]
            winner = min(seen, key=lambda i: (score[i], ids[n][i]))
            wins += success[n][winner]
            good = [score[i] for i in seen if success[n][i]]
            bad = [score[i] for i in seen if not success[n][i]]
            if good and bad:
                gaps.append(min(bad) - min(good))
        gap = Fraction(sum(gaps), max(len(gaps), 1))
        found.append((wins, gap, sum(s * s for s in shares), shares))
    best = max(found)
    return best[-1], best[0]


@pytest.mark.parametrize(("M", "parts"), [(2, 100), (3, 20), (4, 8)])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_brute_force_choice(M: int, parts: int, sparse: bool, seed: int) -> None:
    case = problem(seed, 7, 6, M, sparse)
    fitted = fit_fusion(*case[:3], parts=parts, observed=case[3])
    shares, wins = by_hand(case, parts, list(range(7)))
    assert fitted.weights == tuple(s / parts for s in shares)
    assert fitted.successes == wins
    held_out = 0
    for k in range(5):
        rest = [n for n in range(7) if n % 5 != k]
        shares, _ = by_hand(case, parts, rest)
        assert fitted.folds[k] == tuple(s / parts for s in shares)
        for n in range(k, 7, 5):
            one = [x[n : n + 1] for x in case]
            score = fuse(one[0], fitted.folds[k])[0].masked_fill(~one[3][0], torch.inf).tolist()
            winner = min(range(6), key=lambda i: (score[i], int(one[1][0, i])))
            held_out += bool(one[2][0, winner])
    assert fitted.held_out == held_out


def test_default_grids() -> None:
    two = simplex(2, 100)
    assert len(two) == 101
    assert two[29].tolist() == [0.29, 0.71]
    assert len(simplex(3, 20)) == 231
    assert len(simplex(4, 20)) == 1771
    assert simplex(1, 20).tolist() == [[1.0]]
    for grid in (two, simplex(3, 20), simplex(4, 20)):
        assert len({tuple(w) for w in grid.tolist()}) == len(grid)
        assert grid.min() == 0
        torch.testing.assert_close(grid.sum(1), torch.ones(len(grid), dtype=torch.float64))
    step = fit_fusion(*problem(0, 9, 5, 2)[:3]).weights[0] * 100
    assert step == pytest.approx(round(step))


def test_one_geometry_is_its_own_rank() -> None:
    ranks, ids, success, _ = problem(3, 6, 5, 1)
    fitted = fit_fusion(ranks, ids, success)
    assert fitted.weights == (1.0,)
    assert torch.equal(fuse(ranks, fitted.weights), ranks[..., 0])


def test_ties_prefer_separation_then_concentration_then_leading_weights() -> None:
    ids, success = torch.tensor([[1, 2, 3]]), torch.tensor([[True, False, False]])
    good, other = [0.0, 0.5, 1.0], [0.5, 0.0, 1.0]
    # Both solve it up to w_2 = 1/2; the gap is largest when the first has all the weight.
    ranks = torch.tensor([good, other]).T[None].double()
    assert fit_fusion(ranks, ids, success).weights == (1.0, 0.0)
    # Twins: every mixture is the same; the corner with the larger leading weight wins.
    twins = torch.tensor([good, good, good]).T[None].double()
    assert fit_fusion(twins, ids, success).weights == (1.0, 0.0, 0.0)
    # The useless one first: the next corner.
    late = torch.tensor([other, good, good]).T[None].double()
    assert fit_fusion(late, ids, success).weights == (0.0, 1.0, 0.0)


def test_mixtures_of_the_same_parts_are_equally_concentrated() -> None:
    """0.65² + 0.2² + 0.15² must not depend on the order in which floats are added up.

    Every start stands twice, with the second and the third geometry swapped: so may their weights.
    """
    for seed in (20, 58, 59):
        ranks, *rest = problem(seed, 6, 4, 3)
        mirrored = torch.cat([ranks, ranks[..., [0, 2, 1]]])
        case = (mirrored, *(torch.cat([x, x]) for x in rest))
        shares, _ = by_hand(case, 20, list(range(12)))  # type: ignore[arg-type]
        assert fit_fusion(*case[:3], parts=20).weights == tuple(s / 20 for s in shares)


def test_shares_that_tie_tie_exactly() -> None:
    """2/6 and (1/6 + 3/6) / 2 are the same score; the smaller ID wins, not the rounding."""
    for K in range(4, 80):
        place = torch.arange(K).double()
        ranks = torch.stack([place, (K - 1) - place], dim=-1)[None] / (K - 1)
        assert fuse(ranks, (0.5, 0.5)).unique().tolist() == [0.5]
        thirds = torch.stack([place, (K - 1) - place, place[[1, 0, *range(2, K)]]], -1)[None]
        score = fuse(thirds / (K - 1), (0.35, 0.35, 0.3))
        assert len(score.unique()) == K


def test_thirds_stay_thirds() -> None:
    for seed in range(5):
        weights = fit_fusion(*problem(seed, 4, 5, 3)[:3], parts=3).weights
        assert all(w in (0.0, 1 / 3, 2 / 3, 1.0) for w in weights)


def test_unobserved_outcomes_have_no_effect() -> None:
    ranks, ids, success, observed = problem(5, 12, 8, 3, sparse=True)
    first = fit_fusion(ranks, ids, success, parts=10, observed=observed)
    assert fit_fusion(ranks, ids, success ^ ~observed, parts=10, observed=observed) == first


def test_no_mixed_start_is_no_error() -> None:
    ranks, ids, success, _ = problem(0, 4, 5, 2)
    assert fit_fusion(ranks, ids, torch.zeros_like(success)).weights == (1.0, 0.0)
    assert fit_fusion(ranks, ids, torch.ones_like(success)).successes == 4


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 80), st.integers(1, 4), st.integers(1, 20))
def test_candidate_order_changes_no_bit(seed: int, K: int, M: int, parts: int) -> None:
    rng = np.random.default_rng(seed)
    ranks, ids, success, _ = problem(seed, 3, K, M)
    p = torch.from_numpy(rng.permutation(K))
    grid = simplex(M, parts)
    weights = tuple(grid[rng.integers(len(grid))].tolist())
    assert torch.equal(fuse(ranks[:, p], weights), fuse(ranks, weights)[:, p])
    assert torch.equal(fuse(ranks[1:2], weights), fuse(ranks, weights)[1:2])
    if K < 12:
        small = min(parts, 4)
        again = fit_fusion(ranks[:, p], ids[:, p], success[:, p], parts=small)
        assert again == fit_fusion(ranks, ids, success, parts=small)


def test_start_order_changes_no_weight() -> None:
    ranks, ids, success, _ = problem(1, 20, 9, 2)
    p = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    first, second = fit_fusion(ranks, ids, success), fit_fusion(ranks[p], ids[p], success[p])
    assert (first.weights, first.successes) == (second.weights, second.successes)


def test_a_weight_per_geometry() -> None:
    with pytest.raises(DjepaError, match="2 weights for 3 geometries"):
        fuse(torch.zeros(1, 4, 3), (0.5, 0.5))


def test_the_grid_stays_small_for_many_geometries() -> None:
    assert [finest(M) for M in (2, 3, 4)] == [100, 20, 20]
    for M in (5, 8, 30):
        assert len(simplex(M, finest(M))) <= 2000


def test_quality_weighs_where_successes_only_count() -> None:
    """Two starts are a little better by the first rank, one is much better by the second."""
    first, second = [0.0, 1.0], [1.0, 0.0]
    ranks = torch.tensor([first, second]).T.double().repeat(3, 1, 1)
    ids = torch.tensor([[1, 2]]).repeat(3, 1)
    quality = torch.tensor([[0.6, 0.5], [0.6, 0.5], [0.1, 1.0]], dtype=torch.float64)
    won = quality == quality.amax(1, keepdim=True)
    assert fit_fusion(ranks, ids, won).weights == (1.0, 0.0)  # two of three
    graded = fit_fusion(ranks, ids, won, quality=quality)
    assert graded.weights == (0.49, 0.51)  # 2.0 against 1.3; the widest gap of those
    assert graded.successes == 2_000_000
    as_won = fit_fusion(ranks, ids, won, quality=won.double())
    assert as_won.weights == (1.0, 0.0)
