import hashlib
import math
import struct
from collections import Counter

import numpy as np
import pytest

from djepa.errors import DjepaError
from djepa.pools import granular_pool


def replay():
    """(20, 4) irregular pushes, well inside the bound."""
    return (np.arange(80) * 37 % 101 - 50).reshape(20, 4) / 32


def candidate(number, **options):
    """Candidate `number` (IDs from 1) of the pool at offset 3."""
    return granular_pool(replay(), "s1", "g2", 3, **options).actions[number - 1]


def test_order_ids_and_families():
    pool = granular_pool(replay(), "s1", "g2", 3)
    assert pool.ids.tolist() == list(range(1, 64))
    names = ["scale_rotate"] * 35 + ["time_shift"] * 8 + ["endpoint"] * 16 + ["hash"] * 4
    assert pool.families == tuple(names)
    assert pool.actions.shape == (63, 5, 4)
    assert pool.actions.dtype == np.float32
    assert Counter(pool.centres.tolist()) == {0: 63}


def test_anchor_is_candidate_1():
    np.testing.assert_array_equal(candidate(1), replay()[3:8].astype(np.float32))


def test_offset_endpoint_candidates():
    rows = replay()[3:8]
    half = 0.15 / math.sqrt(2)
    for number, move in ((44, (0.15, 0)), (45, (half, half)), (46, (0, 0.15)), (52, (0.3, 0))):
        np.testing.assert_allclose(
            candidate(number), rows + np.array([0, 0, *move]), rtol=0, atol=1e-6
        )
    np.testing.assert_allclose(
        candidate(44, difficulty="broad"), rows + np.array([0, 0, 0.1875, 0]), rtol=0, atol=1e-6
    )


def test_time_shift_candidates():
    rows = replay()[3:8]
    # 36 is shift -1.75: row 0 reads position 1.75; 42 is shift +1.25: row 0 reads position 3.75.
    expected = {36: 0.25 * rows[1] + 0.75 * rows[2], 42: 0.25 * rows[3] + 0.75 * rows[4]}
    for number, row in expected.items():
        np.testing.assert_array_equal(candidate(number)[0], row.astype(np.float32))
    # Position 4.75 of candidate 36's row 3 wraps from the last row to the first.
    wrapped = 0.25 * rows[4] + 0.75 * rows[0]
    np.testing.assert_array_equal(candidate(36)[3], wrapped.astype(np.float32))


def test_scale_and_rotation_candidates():
    starts, moves = replay()[3:8, :2], replay()[3:8, 2:] - replay()[3:8, :2]
    # 8 is the first of scale 0.7; 3 turns by +10 degrees; 35 is scale 1.3, +30 degrees.
    for number, scale, degrees in ((8, 0.7, 0), (3, 1.0, 10), (2, 1.0, -10), (35, 1.3, 30)):
        phase = scale * np.exp(1j * np.deg2rad(degrees))
        turned = (moves[:, 0] + 1j * moves[:, 1]) * phase
        ends = starts + np.stack((turned.real, turned.imag), axis=1)
        np.testing.assert_allclose(candidate(number)[:, 2:], ends, rtol=0, atol=1e-6)
        np.testing.assert_array_equal(candidate(number)[:, :2], starts.astype(np.float32))


@pytest.mark.parametrize(("difficulty", "m"), [("conservative", 0.75), ("broad", 1.25)])
def test_hash_candidates_against_complex_arithmetic(difficulty, m):
    rows = replay()[3:8]
    starts, ends = rows[:, 0] + 1j * rows[:, 1], rows[:, 2] + 1j * rows[:, 3]
    for number, letter in zip((60, 61, 62, 63), "abcd", strict=True):
        text = f"dajepa-granular-formal-pool-v1:s1:g2:hash-{letter}:0"
        words = struct.unpack(">4Q", hashlib.sha256(text.encode()).digest())
        u = [word / 2.0**64 for word in words]
        at = (np.arange(5) - m * (2 * u[2] - 1) * 2.5) % 5
        begin, finish = (np.interp(at, np.arange(6), [*col, col[0]]) for col in (starts, ends))
        turn = np.exp(1j * np.deg2rad(m * (2 * u[1] - 1) * 18)) * (1 + m * (2 * u[0] - 1) * 0.2)
        offset = m * 0.12 * (0.5 + 0.5 * u[0]) * np.exp(2j * np.pi * u[3])
        finish = begin + turn * (finish - begin) + offset
        expected = np.stack((begin.real, begin.imag, finish.real, finish.imag), axis=1)
        made = candidate(number, difficulty=difficulty)
        np.testing.assert_allclose(made, expected, rtol=0, atol=1e-6)


def test_bytes_are_frozen():
    actions = granular_pool(replay(), "s1", "g2", 3).actions
    assert (
        hashlib.sha256(actions.tobytes()).hexdigest()
        == "edc6a913fdd1e56a1ad7e14564ddff453a36f7ac9e28ddae0a0cf5b37f82373b"
    )


def test_only_the_hash_family_depends_on_the_names():
    first = granular_pool(replay(), "s1", "g2", 3).actions
    second = granular_pool(replay(), "s1", "g3", 3).actions
    assert (first != second).any(axis=(1, 2)).tolist() == [False] * 59 + [True] * 4


def test_controls_are_clipped():
    actions = granular_pool(replay() * 3, "s", "g", 0).actions
    assert np.abs(actions).max() == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"replay": replay()[:19]}, "shape"),
        ({"replay": np.zeros((20, 4), dtype=int)}, "float32"),
        ({"replay": np.full((20, 4), np.inf)}, "infinity"),
        ({"replay": np.zeros((20, 4))}, "identical"),
        ({"offset": 16}, "0..15"),
        ({"offset": -1}, "at least 0"),
        ({"offset": 1.0}, "integer"),
        ({"start_id": 3}, "start_id"),
        ({"goal_id": None}, "goal_id"),
        ({"difficulty": "standart"}, "Did you mean 'standard'"),
    ],
)
def test_bad_input_is_refused(changes, message):
    fields = {"replay": replay(), "start_id": "s", "goal_id": "g", "offset": 0}
    with pytest.raises(DjepaError, match=message):
        granular_pool(**(fields | changes))
