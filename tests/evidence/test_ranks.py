"""Strict orders: hand-worked ties, what may not change them, what is refused."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from djepa.errors import DjepaError
from djepa.evidence.ranks import best, check_pools, check_values, order, ordinal_ranks, strict_ranks

Pool = tuple[Tensor, Tensor, Tensor]


@st.composite
def pools(draw: st.DrawFn) -> Pool:
    """Scores with many exact ties and extremes, IDs in any order, and a permutation."""
    K = draw(st.integers(2, 80))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    spread = draw(st.sampled_from([1, 3, K, 10**6]))
    scores = rng.integers(-spread, spread + 1, K) * draw(st.sampled_from([1.0, 1e-300, 1e300, 0.1]))
    ids = rng.choice(10 * K, K, replace=False)
    return (
        torch.from_numpy(scores)[None],
        torch.from_numpy(ids)[None],
        torch.from_numpy(rng.permutation(K)),
    )


def test_hand_worked() -> None:
    scores, ids = torch.tensor([[2.0, 1.0, 1.0]]), torch.tensor([[7, 9, 2]])
    assert ordinal_ranks(scores, ids).tolist() == [[1.0, 0.5, 0.0]]
    assert order(scores, ids).tolist() == [[2, 1, 0]]
    assert strict_ranks(scores, ids).tolist() == [[2, 1, 0]]
    assert best(scores, ids).tolist() == [2]


def test_positive_and_negative_zero_tie() -> None:
    scores = torch.tensor([[0.0, -0.0, 0.0, -0.0]])
    assert strict_ranks(scores, torch.tensor([[3, 4, 1, 2]])).tolist() == [[2, 3, 0, 1]]


def test_float16_and_float32_scores_keep_their_ties() -> None:
    ids = torch.tensor([[5, 3, 4]])
    for dtype in (torch.float16, torch.float32, torch.float64):
        assert strict_ranks(torch.tensor([[1, 1, 0]], dtype=dtype), ids).tolist() == [[2, 1, 0]]


def test_rows_are_apart() -> None:
    scores, ids = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[1, 2], [1, 2]])
    assert order(scores, ids).tolist() == [[1, 0], [0, 1]]


@settings(max_examples=100, deadline=None)
@given(pools())
def test_it_is_the_sort_by_score_then_id(pool: Pool) -> None:
    scores, ids, _ = pool
    expected = sorted(range(ids.shape[1]), key=lambda i: (float(scores[0, i]), int(ids[0, i])))
    assert order(scores, ids)[0].tolist() == expected
    assert best(scores, ids)[0] == expected[0]
    count = [  # the pairwise definition: how many stand before
        int(((scores[0] < s) | ((scores[0] == s) & (ids[0] < i))).sum())
        for s, i in zip(scores[0], ids[0], strict=True)
    ]
    assert strict_ranks(scores, ids)[0].tolist() == count


@settings(max_examples=100, deadline=None)
@given(pools())
def test_ranks_fill_the_unit_interval(pool: Pool) -> None:
    scores, ids, _ = pool
    K = ids.shape[1]
    ranks = ordinal_ranks(scores, ids)
    assert ranks.dtype == torch.float64
    assert ranks[0].sort().values.tolist() == [k / (K - 1) for k in range(K)]


@settings(max_examples=100, deadline=None)
@given(pools())
def test_candidate_order_changes_nothing(pool: Pool) -> None:
    scores, ids, p = pool
    assert torch.equal(ordinal_ranks(scores[:, p], ids[:, p]), ordinal_ranks(scores, ids)[:, p])
    assert ids[:, p][0, best(scores[:, p], ids[:, p])] == ids[0, best(scores, ids)]


@settings(max_examples=100, deadline=None)
@given(pools(), st.sampled_from(["affine", "cube", "exp", "atan"]))
def test_monotone_maps_change_no_rank(pool: Pool, kind: str) -> None:
    """Ties of the source stay ties, whatever the increasing map (Prop. ordinal invariance).

    The scores are first put on a grid on which the maps are strictly increasing in float64 too.
    """
    scores, ids, _ = pool
    grid = (scores / scores.abs().max().clamp(min=1e-300) * 1000).round() / 100
    maps = {
        "affine": lambda x: 3 * x - 7,
        "cube": lambda x: x**3 + x,
        "exp": torch.exp,
        "atan": torch.atan,
    }
    assert torch.equal(ordinal_ranks(maps[kind](grid), ids), ordinal_ranks(grid, ids))


def test_infinities_sort_last_and_tie_by_id() -> None:
    scores = torch.tensor([[torch.inf, 1.0, torch.inf]])
    assert order(scores, torch.tensor([[3, 9, 1]])).tolist() == [[1, 2, 0]]
    assert best(torch.full((1, 3), torch.inf), torch.tensor([[3, 9, 1]])).tolist() == [2]


GOOD = torch.tensor([[4, 2, 7]])


@pytest.mark.parametrize(
    ("ids", "match"),
    [
        (torch.tensor([[1]]), "at least 2"),
        (torch.tensor([1, 2]), "at least 2"),
        (torch.tensor([[[1, 2]]]), "at least 2"),
        (torch.tensor([[1.0, 2.0]]), "integers"),
        (torch.tensor([[True, False]]), "integers"),
        (torch.tensor([[1, -2]]), "negative"),
        (torch.tensor([[1, 2], [3, 3]]), "start 1 has a candidate ID twice"),
    ],
)
def test_bad_ids(ids: Tensor, match: str) -> None:
    with pytest.raises(DjepaError, match=match):
        check_pools(ids)


@pytest.mark.parametrize(
    ("score", "match"),
    [
        (torch.zeros(1, 2), "score is"),
        (torch.zeros(3), "score is"),
        (torch.zeros(1, 3, 1), "score is"),
        (torch.zeros(1, 3, dtype=torch.int64), "floating point"),
        (torch.tensor([[0.0, torch.nan, 0.0]]), "score of start 0 holds a NaN"),
        (torch.tensor([[0.0, torch.inf, 0.0]]), "NaN or an infinity"),
    ],
)
def test_bad_scores(score: Tensor, match: str) -> None:
    with pytest.raises(DjepaError, match=match):
        check_pools(GOOD, score=score)


def test_good_pools_pass() -> None:
    check_pools(GOOD, a=torch.zeros(1, 3), b=torch.zeros(1, 3, dtype=torch.float16))
    check_pools(GOOD.int())
    check_values(GOOD, ends=torch.zeros(1, 3, 5))
    with pytest.raises(DjepaError, match="ends of start 0"):
        check_values(GOOD, ends=torch.full((1, 3, 5), torch.nan))
    with pytest.raises(DjepaError, match="ends is"):
        check_values(GOOD, ends=torch.zeros(1, 2, 5))


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_the_largest_id_can_win(kind: torch.dtype) -> None:
    last = torch.iinfo(kind).max
    ids = torch.tensor([[3, last], [last, 3], [last, last - 1]], dtype=kind)
    scores = torch.tensor([[2.0, 1.0], [1.0, 2.0], [1.0, 1.0]])
    assert best(scores, ids).tolist() == [1, 0, 1]
