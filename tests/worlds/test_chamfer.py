import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from djepa.worlds import chamfer as module
from djepa.worlds.chamfer import chamfer

# Multiples of 1/64: differences and their squares are exact.
PLACES = st.integers(-256, 256).map(lambda i: i / 64)


def points(least: int = 1):
    return st.integers(least, 9).flatmap(lambda n: arrays(np.float64, (n, 2), elements=PLACES))


def naive(p, q) -> float:
    def one_way(a, b):
        return sum(min(np.hypot(*(x - y)) for y in b) for x in a) / len(a)

    return one_way(p, q) + one_way(q, p)


def as_set(p):
    return {tuple(row) for row in p.tolist()}


def test_values_by_hand():
    # One point each, three and four apart.
    assert chamfer(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0]])) == 10.0
    # 0 and 1 against 0: there (0 + 1) / 2, back 0.
    p, q = np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 0.0]])
    assert chamfer(p, q) == 0.5
    # A unit square against its middle: each corner is sqrt(1/2) away, and so is the middle.
    square = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert chamfer(square, np.array([[0.5, 0.5]])) == pytest.approx(2 * 0.5**0.5, rel=1e-15)
    # Moved by 1/4: nearest are their own images; by a whole side: half of them fit exactly.
    assert chamfer(square, square + np.array([0.25, 0.0])) == 0.5
    assert chamfer(square, square + np.array([1.0, 0.0])) == 1.0
    # It is Euclidean and not squared.
    assert chamfer(square * 2, square * 2 + [0.5, 0.0]) == 1.0


@given(p=points(), q=points())
@settings(deadline=None)
def test_it_is_the_naive_double_loop(p, q):
    assert chamfer(p, q) == pytest.approx(naive(p, q), rel=1e-12, abs=1e-12)


@given(p=points(), q=points(), seed=st.integers(0, 99))
@settings(deadline=None)
def test_it_is_symmetric_and_blind_to_order_and_place(p, q, seed):
    rng = np.random.default_rng(seed)
    want = pytest.approx(float(chamfer(p, q)), rel=1e-12, abs=1e-12)
    assert chamfer(q, p) == want
    assert chamfer(rng.permutation(p), rng.permutation(q)) == want
    assert chamfer(p + 2.0, q + 2.0) == want
    assert chamfer(p * 4.0, q * 4.0) / 4 == want


@given(p=points(), q=points())
@settings(deadline=None)
def test_it_is_zero_for_the_same_set_and_for_no_other(p, q):
    assert chamfer(p, p) == 0.0
    assert chamfer(p, np.vstack([p[::-1], p[:1]])) == 0.0  # a point twice is the same set
    assert (chamfer(p, q) == 0.0) == (as_set(p) == as_set(q))


@given(shape=array_shapes(max_dims=3, max_side=3), seed=st.integers(0, 99))
@settings(deadline=None)
def test_batches_have_the_bits_of_each_alone(shape, seed):
    rng = np.random.default_rng(seed)
    p, q = rng.normal(size=(*shape, 11, 2)), rng.normal(size=(*shape, 7, 2))
    apart, common = chamfer(p, q), chamfer(p, q[(0,) * len(shape)])
    assert apart.shape == common.shape == shape
    for index in np.ndindex(shape):
        assert apart[index] == chamfer(p[index], q[index])
        assert common[index] == chamfer(p[index], q[(0,) * len(shape)])


def test_chunks_change_nothing(monkeypatch):
    p, q = np.random.default_rng(0).normal(size=(2, 40, 30, 2))
    want = chamfer(p, q)
    monkeypatch.setattr(module, "_PAIRS", 1)
    assert chamfer(p, q).tobytes() == want.tobytes()
    assert chamfer(p[:0], q[0]).shape == (0,)
