import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from djepa.errors import DjepaError
from djepa.pools import density, density_pick, density_scores


def test_hand_worked_scores():
    points = np.array([[0.0], [1.0], [3.0], [7.0]])
    # two nearest: 0 -> 1, 3; 1 -> 1, 2; 3 -> 2, 3; 7 -> 4, 6
    assert density_scores(points, neighbours=2).tolist() == [2.0, 1.5, 2.5, 5.0]
    assert density_pick(points, [9, 8, 7, 6], neighbours=2) == 8
    assert density_scores(points, neighbours=1).tolist() == [1.0, 1.0, 2.0, 4.0]
    assert density_pick(points, [9, 8, 7, 6], neighbours=1) == 8  # tie to the smaller ID


def test_neighbours_are_capped():
    points = np.array([[0.0], [1.0], [3.0]])
    assert density_scores(points, 99).tolist() == density_scores(points, 2).tolist()


def test_batch_equals_one_by_one():
    points = np.random.default_rng(0).normal(size=(5, 12, 3)).astype(np.float32)
    ids = np.arange(60).reshape(5, 12)[:, ::-1]
    picks = density_pick(points, ids, 4)
    assert picks.shape == (5,)
    assert picks.tolist() == [int(density_pick(p, i, 4)) for p, i in zip(points, ids, strict=True)]
    shared = density_pick(points, np.arange(12), 4)
    np.testing.assert_array_equal(shared, density_scores(points, 4).argmin(axis=1))


def test_chunks_change_no_bit(monkeypatch):
    points = np.random.default_rng(1).normal(size=(2, 17, 5))
    whole = density_scores(points)
    monkeypatch.setattr(density, "CHUNK", 17 * 5 * 3)
    np.testing.assert_array_equal(density_scores(points), whole)


@settings(max_examples=60)
@given(data=st.data(), count=st.integers(2, 20), width=st.integers(1, 40))
def test_permuting_candidates_changes_no_choice(data, count, width):
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    points = generator.normal(size=(count, width))
    if data.draw(st.booleans()):
        points = np.round(points)  # many ties
    ids = generator.permutation(100)[:count]
    order = data.draw(st.permutations(range(count)))
    neighbours = data.draw(st.integers(1, 10))
    scores = density_scores(points, neighbours)
    np.testing.assert_array_equal(density_scores(points[order], neighbours), scores[order])
    assert density_pick(points, ids, neighbours) == density_pick(
        points[order], ids[order], neighbours
    )


@pytest.mark.parametrize(
    ("points", "ids", "neighbours"),
    [
        (np.zeros((1, 3)), [0], 1),
        (np.zeros(3), [0, 1, 2], 1),
        (np.zeros((3, 0)), [0, 1, 2], 1),
        (np.full((3, 2), np.nan), [0, 1, 2], 1),
        (np.array([["a"], ["b"]]), [0, 1], 1),
        (np.zeros((3, 2)), [0, 1], 1),
        (np.zeros((3, 2)), [0, 1, 1], 1),
        (np.zeros((3, 2)), [0.0, 1.0, 2.0], 1),
        (np.zeros((3, 2)), [0, 1, 2], 0),
        (np.zeros((3, 2)), [0, 1, 2], True),
        (np.zeros((3, 2)), [0, 1, 2], 2.0),
    ],
)
def test_bad_input_is_refused(points, ids, neighbours):
    with pytest.raises(DjepaError):
        density_pick(points, ids, neighbours)
