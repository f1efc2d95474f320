"""Exact ordinal realization: native distance reads the final order back, strictly."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from djepa.errors import DjepaError
from djepa.evidence.ranks import order, strict_ranks
from djepa.lift.ordinal import native_distance, realize

Case = tuple[Tensor, Tensor, Tensor, Tensor]


def case(seed: int, K: int = 9, D: int = 16, dtype: torch.dtype = torch.float32) -> Case:
    """Futures, goals, scores with ties, IDs."""
    rng = np.random.default_rng(seed)
    futures = torch.from_numpy(rng.normal(size=(2, K, 5, D))).to(dtype)
    goal = torch.from_numpy(rng.normal(size=(2, D))).to(dtype)
    scores = torch.from_numpy(rng.integers(0, max(2, K // 2), (2, K)) / 7)
    ids = torch.from_numpy(np.stack([rng.choice(9 * K, K, replace=False) for _ in range(2)]))
    return futures, goal, scores, ids


def test_three_candidates_by_hand() -> None:
    """K + 1 = 4: radii 1/4, 2/4, 3/4; the third has the tied score and the smaller ID."""
    goal = torch.tensor([[1.0, -1.0]])
    ends = goal[:, None] + torch.tensor([[[3.0, 3.0], [0.0, -7.0], [-2.0, 2.0]]])
    futures = torch.stack([torch.full_like(ends, 5.0), ends], dim=2)
    lifted = realize(futures, goal, torch.tensor([[2.0, 1.0, 1.0]]), torch.tensor([[7, 9, 2]]))
    distance = native_distance(lifted, goal)[0].tolist()
    assert distance == pytest.approx([(3 / 4) ** 2, (2 / 4) ** 2, (1 / 4) ** 2])
    # unit root mean square: (3, 3) -> (1, 1), (0, -7) -> (0, -√2), (-2, 2) -> (-1, 1)
    away = (lifted[0, :, -1] - goal).tolist()
    assert away[0] == pytest.approx([0.75, 0.75])
    assert away[1] == pytest.approx([0.0, -(2**0.5) / 2])
    assert away[2] == pytest.approx([-0.25, 0.25])
    assert torch.equal(lifted[:, :, 0], futures[:, :, 0])


def test_no_displacement_goes_along_all_ones() -> None:
    goal = torch.tensor([[0.5, 2.0, -1.0]])
    futures = goal.expand(1, 2, 1, 3).clone()
    lifted = realize(futures, goal, torch.tensor([[1.0, 0.0]]), torch.tensor([[1, 2]]))
    torch.testing.assert_close(lifted[0, :, 0] - goal, torch.tensor([[2 / 3] * 3, [1 / 3] * 3]))
    # Below 1e-12 a displacement counts as none; above, it is a direction.
    zero = torch.zeros(1, 2, dtype=torch.float64)
    for size, direction in ((1e-13, [1.0, 1.0]), (1e-11, [-(2**0.5), 0.0])):
        tiny = torch.tensor([-size, 0.0], dtype=torch.float64).expand(1, 2, 1, 2)
        lifted = realize(tiny, zero, torch.tensor([[0.0, 1.0]]), torch.tensor([[1, 2]]))
        assert lifted[0, 0, 0].tolist() == pytest.approx([x / 3 for x in direction])


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(2, 80),
    st.integers(1, 200),
    st.sampled_from([torch.float32, torch.float16]),
)
def test_native_distance_is_the_squared_place(
    seed: int, K: int, D: int, dtype: torch.dtype
) -> None:
    """Proposition: D⁻¹‖z̃ - z_g‖² = (π / (K + 1))², and the order is read back exactly."""
    futures, goal, scores, ids = case(seed, K, D, dtype)
    futures[0, 0, -1] = goal[0]  # one candidate has no direction
    try:
        lifted = realize(futures, goal, scores, ids)
    except DjepaError:
        assert dtype == torch.float16  # few numbers far from 0 may be too coarse
        assert D < 8
        return
    place = strict_ranks(scores, ids)
    distance = native_distance(lifted, goal)
    wanted = ((place + 1).double() / (K + 1)) ** 2
    grain = 4 * torch.finfo(dtype).eps * goal.abs().max().double().clamp(min=1)
    assert ((distance.double().sqrt() - wanted.sqrt()).abs() <= grain).all()
    assert torch.equal(distance.argsort(dim=1), order(scores, ids))  # no tie is left to break
    assert torch.equal(distance.argmin(1), place.argmin(1))
    assert lifted.dtype == dtype
    bits = torch.int32 if dtype == torch.float32 else torch.int16
    assert torch.equal(lifted[:, :, :-1].view(bits), futures[:, :, :-1].view(bits))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_published_size_in_both_precisions(dtype: torch.dtype) -> None:
    futures, goal, scores, ids = case(0, 63, 192, dtype)
    lifted = realize(3 * futures, 3 * goal, scores, ids)
    assert torch.equal(
        strict_ranks(native_distance(lifted, 3 * goal), ids), strict_ranks(scores, ids)
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 80))
def test_candidate_order_permutes_the_futures_bit_for_bit(seed: int, K: int) -> None:
    futures, goal, scores, ids = case(seed, K)
    p = torch.from_numpy(np.random.default_rng(seed).permutation(K))
    lifted = realize(futures, goal, scores, ids)
    mixed = realize(futures[:, p], goal, scores[:, p], ids[:, p])
    assert torch.equal(mixed, lifted[:, p])


def test_the_direction_and_its_sign_stay() -> None:
    futures, goal, scores, ids = case(4)
    lifted = realize(futures, goal, scores, ids)
    before, after = (x[:, :, -1] - goal[:, None] for x in (futures, lifted))
    cosine = torch.nn.functional.cosine_similarity(before, after, dim=-1)
    torch.testing.assert_close(cosine, torch.ones_like(cosine))


def test_what_cannot_be_kept_apart_is_refused() -> None:
    futures, goal, scores, ids = case(1, 300, 2, torch.float16)
    with pytest.raises(DjepaError, match=r"300 ranks cannot be kept apart in torch\.float16"):
        realize(futures + 2000, goal + 2000, scores, ids)
    with pytest.raises(DjepaError, match="cannot be kept apart"):
        realize(futures.float() + 1e9, goal.float() + 1e9, scores, ids)
    with pytest.raises(DjepaError, match="cannot be kept apart"):  # beyond what float16 holds
        realize(futures, goal.float() + 1e6, scores, ids)


def test_a_tie_that_ids_happen_to_break_right_is_refused_too() -> None:
    """Both land on the goal: read by plain argmin, the winner would be whoever stands first."""
    goal = torch.full((1, 2), 1e9)
    futures = goal.expand(1, 2, 1, 2).clone()
    with pytest.raises(DjepaError, match="cannot be kept apart"):
        realize(futures, goal, torch.tensor([[1.0, 0.0]]), torch.tensor([[2, 1]]))


def test_three_hundred_candidates() -> None:
    futures, goal, scores, ids = case(2, 300, 64)
    place = strict_ranks(native_distance(realize(futures, goal, scores, ids), goal), ids)
    assert torch.equal(place, strict_ranks(scores, ids))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"futures": torch.zeros(2, 9, 16)}, "futures are"),
        ({"futures": torch.zeros(2, 8, 5, 16)}, "futures is"),
        ({"futures": torch.zeros(2, 9, 0, 16)}, "futures are"),
        ({"futures": torch.full((2, 9, 5, 16), torch.nan)}, "futures of start 0"),
        ({"futures": torch.zeros(2, 9, 5, 16, dtype=torch.int64)}, "floating point"),
        ({"goal": torch.zeros(2, 15)}, "goals"),
        ({"goal": torch.full((2, 16), torch.inf)}, "goal holds"),
        ({"score": torch.zeros(2, 9, 1)}, "scores is"),
        ({"score": torch.full((2, 9), torch.nan)}, "scores of start 0"),
        ({"ids": torch.zeros(2, 9, dtype=torch.int64)}, "twice"),
        ({"ids": torch.arange(2)[:, None]}, "at least 2"),
    ],
)
def test_refused(change: dict[str, Tensor], match: str) -> None:
    futures, goal, score, ids = case(0)
    given = {"futures": futures, "goal": goal, "score": score, "ids": ids, **change}
    with pytest.raises(DjepaError, match=match):
        realize(**given)
