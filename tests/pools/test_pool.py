import hashlib

import numpy as np
import pytest

from djepa.errors import DjepaError
from djepa.pools import Pool


def small_pool(**changes):
    fields = {
        "ids": np.array([0, 4, 2]),
        "actions": np.arange(12, dtype=np.float32).reshape(3, 2, 2),
        "families": ("reference", "noisy_0.3", "uniform_random"),
        "centres": np.array([0, 0, -1]),
        "seed": 3,
    }
    return Pool(**(fields | changes))


def test_hash_is_sha256_of_little_endian_float32():
    zeros = "374708fff7719dd5979ec875d56cd2286f6d3cf7ec317a3b25632aab28ec37bb"  # 16 zero bytes
    ones = hashlib.sha256(bytes.fromhex("0000803f" * 4)).hexdigest()
    actions = np.stack([np.zeros((2, 2)), np.ones((2, 2))])
    for dtype in ("<f2", "<f4", ">f4", "<f8", ">f8"):
        pool = Pool([1, 0], actions.astype(dtype), ("a", "a"), [0, 0], 0)
        assert pool.hashes() == (zeros, ones)


def test_hash_ignores_memory_layout():
    pool = small_pool()
    assert small_pool(actions=np.asfortranarray(pool.actions)).hashes() == pool.hashes()


def test_take_keeps_ids_families_centres_and_hashes():
    pool = small_pool()
    taken = pool.take([2, 0])
    assert taken.ids.tolist() == [2, 0]
    assert taken.families == ("uniform_random", "reference")
    assert taken.centres.tolist() == [-1, 0]
    assert taken.hashes() == (pool.hashes()[2], pool.hashes()[0])
    assert (taken.seed, len(taken)) == (3, 2)


def test_without_removes_the_reference_and_is_idempotent():
    once = small_pool().without()
    assert once.ids.tolist() == [4, 2]
    assert once.without().ids.tolist() == [4, 2]
    assert small_pool().without("noisy_0.3").ids.tolist() == [0, 2]


def test_without_refuses_misspelling_and_emptying():
    with pytest.raises(DjepaError, match=r"Did you mean 'noisy_0\.3'"):
        small_pool().without("noisy_0.33")
    with pytest.raises(DjepaError, match="nothing would be left"):
        small_pool().take([0]).without()


def test_arrays_are_copied_and_read_only():
    actions = np.zeros((1, 2, 2))
    pool = Pool(np.array([1]), actions, ("a",), np.array([0]), 0)
    actions += 1
    assert not pool.actions.any()
    with pytest.raises(ValueError, match="read-only"):
        pool.actions[0, 0, 0] = 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ids": np.array([0, 1, 1])}, "unique"),
        ({"ids": np.array([0, -1, 1])}, "at least 0"),
        ({"ids": np.array([0.0, 1.0, 2.0])}, "integers"),
        ({"ids": np.array([0, 1])}, "one entry per candidate"),
        ({"families": ("a", "b")}, "one entry per candidate"),
        ({"families": ("a", "b", 3)}, "strings"),
        ({"centres": np.array([0, 0, -2])}, "at least -1"),
        ({"actions": np.zeros((3, 2, 2), dtype=np.int64)}, "float32"),
        ({"actions": np.zeros((3, 4))}, "shape"),
        ({"actions": np.zeros((0, 2, 2))}, "empty"),
        ({"actions": np.full((3, 2, 2), np.nan)}, "NaN"),
        ({"seed": True}, "integer"),
        ({"seed": -1}, "at least 0"),
    ],
)
def test_bad_fields_are_refused(changes, message):
    with pytest.raises(DjepaError, match=message):
        small_pool(**changes)


@pytest.mark.parametrize("positions", [[3], [-1], [], [0.0], [True, False, True], [1, 1]])
def test_bad_positions_are_refused(positions):
    with pytest.raises(DjepaError):
        small_pool().take(positions)
