from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from djepa.errors import DjepaError
from djepa.pools import Pool, control_pool, retain_by_cost

FAMILIES = ("reference", "b", "a", "a", "b", "c", "a", "b", "a")


def hand_pool(families=FAMILIES):
    count = len(families)
    actions = np.arange(count, dtype=np.float32).reshape(count, 1, 1)
    return Pool(np.arange(count), actions, families, np.zeros(count, dtype=int), 0)


def test_hand_worked_selection():
    # IDs        0  1  2  3  4  5  6  7  8
    # families   r  b  a  a  b  c  a  b  a
    costs = [-9, 5, 3, 3, 1, 9, 2, 8, 7]
    # top 2: 4 (1), 6 (2). Queues: a = 2, 3, 8; b = 1, 7; c = 5.
    # turns: a2 b1 c5, then a3 b7, then a8.
    assert retain_by_cost(hand_pool(), costs, keep=8, top=2).ids.tolist() == [
        4,
        6,
        2,
        1,
        5,
        3,
        7,
        8,
    ]
    assert retain_by_cost(hand_pool(), costs, keep=4, top=2).ids.tolist() == [4, 6, 2, 1]
    assert retain_by_cost(hand_pool(), costs, keep=2, top=0).ids.tolist() == [6, 4]


def test_equal_costs_go_to_smaller_ids_in_any_order():
    pool = hand_pool()
    shuffled = pool.take([8, 3, 0, 5, 1, 7, 2, 6, 4])
    expected = [1, 2, 3, 4, 5, 6, 7, 8]
    assert retain_by_cost(pool, np.zeros(9), keep=8, top=2).ids.tolist()[:2] == expected[:2]
    assert (
        retain_by_cost(shuffled, np.zeros(9), keep=8, top=2).ids.tolist()
        == retain_by_cost(pool, np.zeros(9), keep=8, top=2).ids.tolist()
    )


def test_paper_sizes():
    reference = ((np.arange(50) * 37 % 101 - 50) / 64).astype(np.float32).reshape(25, 2)
    pool = control_pool(reference, 1, "pusht-confirmation")
    costs = np.random.default_rng(0).normal(size=256).astype(np.float32)
    kept = retain_by_cost(pool, costs)
    assert len(kept) == 63
    assert kept.ids[:16].tolist() == (1 + np.argsort(costs[1:])[:16]).tolist()
    assert 0 not in kept.ids
    assert "reference" not in kept.families
    turns = kept.families[16:]
    assert turns[:6] == tuple(sorted(set(pool.families) - {"reference"}))
    assert set(Counter(turns).values()) == {7, 8}  # 47 = 5 x 8 + 7
    assert kept.hashes() == tuple(pool.hashes()[i] for i in kept.ids)


@given(
    costs=st.lists(st.integers(-50, 50), min_size=9, max_size=9),
    scale=st.integers(1, 1000),
    offset=st.integers(-1000, 1000),
)
def test_positive_affine_cost_maps_change_nothing(costs, scale, offset):
    mapped = np.array(costs) * scale + offset
    first = retain_by_cost(hand_pool(), costs, keep=6, top=2)
    assert first.ids.tolist() == retain_by_cost(hand_pool(), mapped / 8, 6, 2).ids.tolist()


@given(st.permutations(range(9)), st.lists(st.integers(0, 3), min_size=9, max_size=9))
def test_candidate_order_changes_nothing(order, costs):
    pool, values = hand_pool(), np.array(costs)
    first = retain_by_cost(pool, values, keep=6, top=2)
    second = retain_by_cost(pool.take(order), values[list(order)], keep=6, top=2)
    assert first.ids.tolist() == second.ids.tolist()


@pytest.mark.parametrize(
    "costs",
    [np.zeros(8), np.zeros((1, 9)), np.full(9, np.nan), np.full(9, np.inf), ["a"] * 9, [True] * 9],
)
def test_bad_costs_are_refused(costs):
    with pytest.raises(DjepaError, match="Costs"):
        retain_by_cost(hand_pool(), costs, keep=4, top=2)


@pytest.mark.parametrize(("keep", "top"), [(9, 2), (4, 5), (0, 0), (4, -1), (4.0, 1), (True, 1)])
def test_bad_counts_are_refused(keep, top):
    with pytest.raises(DjepaError):
        retain_by_cost(hand_pool(), np.zeros(9), keep=keep, top=top)


def test_outcomes_have_no_way_in():
    with pytest.raises(TypeError, match="success"):
        retain_by_cost(hand_pool(), np.zeros(9), success=np.ones(9, dtype=bool))
