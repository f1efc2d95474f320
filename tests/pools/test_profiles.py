"""The presets against a second implementation written another way, and against fixed bytes."""

import hashlib
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from djepa.errors import DjepaError
from djepa.pools import PROFILES, Profile, control_pool
from djepa.pools.families import shuffled, smooth_random

SMALL = {"noisy_0.05": 8, "noisy_0.15": 8, "noisy_0.3": 8, "shuffled": 7}
SMALL |= {"smooth_random": 16, "uniform_random": 16}
LARGE = {"noisy_0.05": 32, "noisy_0.15": 32, "noisy_0.3": 32, "shuffled": 31}
LARGE |= {"smooth_random": 64, "uniform_random": 64}


def reference(width=2, dtype=np.float32, horizon=25):
    """(H, A) multiples of 1/64 in [-50/64, 50/64], five different blocks."""
    return ((np.arange(horizon * width) * 37 % 101 - 50) / 64).astype(dtype).reshape(-1, width)


def repeated(order, width=2):
    """A reference whose five blocks are those named by `order`."""
    blocks = reference(width).reshape(5, 5, width)
    return blocks[list(order)].reshape(25, width)


def sha(pool):
    return hashlib.sha256(pool.actions.tobytes()).hexdigest()


# ------------------------------------------------------------- a second implementation


def one(family, ref, rng):
    if "_0." in family:
        return (ref + float(family[6:]) * rng.standard_normal(ref.shape)).clip(-1, 1)
    if family == "shuffled":
        order = [int(i) for i in rng.permutation(5)]
        order = [4, 0, 1, 2, 3] if order == sorted(order) else order
        return np.concatenate([ref[5 * i : 5 * i + 5] for i in order])
    noise = rng.uniform(-1, 1, ref.shape)
    if family == "uniform_random":
        return noise
    rows = [noise[0]]
    for row in noise[1:]:
        rows.append(0.8 * rows[-1] + 0.2 * row)
    return np.array(rows)


def half(values):
    return np.asarray(values).astype("f4").astype("f2")


def whole_bank(ref32, seed, quotas):
    rng, ref = np.random.default_rng(seed), ref32.astype("f8")
    names = [family for family, count in quotas.items() for _ in range(count)]
    return [("reference", half(ref))] + [(name, half(one(name, ref, rng))) for name in names]


def by_stream(ref, seed):
    rng, kept = np.random.default_rng(seed), {ref.tobytes(): "reference"}
    for family, count in SMALL.items():
        while Counter(kept.values())[family] < count:
            new = one(family, ref.astype("f8"), rng).astype(ref.dtype)
            kept.setdefault(new.tobytes(), family)
    flat = np.frombuffer(b"".join(kept), ref.dtype)
    return flat.reshape(-1, *ref.shape), tuple(kept.values()), seed


def by_refill(ref, seed):
    wanted, kept, attempt = LARGE | {"reference": 1}, {}, 0
    while Counter(kept.values()) != wanted:
        for family, new in whole_bank(ref.astype("f4"), seed + attempt, LARGE):
            if Counter(kept.values())[family] < wanted[family]:
                kept.setdefault(new.tobytes(), family)
        attempt += 1
    flat = np.frombuffer(b"".join(kept), "f2")
    return flat.reshape(-1, 25, 2), tuple(kept.values()), seed


def by_restart(ref, seed):
    bank = whole_bank(ref.astype("f4") / np.float32(100), seed, SMALL)
    families, actions = zip(*bank, strict=True)
    if len(np.unique(np.stack(actions).reshape(64, -1), axis=0)) < 64:
        return by_restart(ref, seed + 1)
    return np.stack(actions).astype("f4"), families, seed


SECOND = {
    "reference-control": (by_stream, 1),
    "pusht-confirmation": (by_refill, 1),
    "visual-shape": (by_restart, 64),  # whole pixels
}


@pytest.mark.parametrize("name", SECOND)
@pytest.mark.parametrize("blocks", ["01234", "00123", "01023"])
@pytest.mark.parametrize("seed", [0, 20260902])
def test_preset_agrees_with_second_implementation(name, blocks, seed):
    implementation, scale = SECOND[name]
    ref = repeated(map(int, blocks)) * np.float32(scale)
    actions, families, recorded = implementation(ref, seed)
    pool = control_pool(ref, seed, name)
    assert pool.actions.dtype == actions.dtype
    assert pool.actions.tobytes() == actions.tobytes()
    assert pool.families == families
    assert pool.seed == recorded


# ------------------------------------------------------------------------ fixed bytes


@pytest.mark.parametrize(
    ("name", "scale", "dtype", "seed", "digest"),
    [
        (
            "reference-control",
            1,
            "float32",
            7,
            "f73deaa3455b8ec30982a11674f9ed768027ff32d4c122dd90250824e6481943",
        ),
        (
            "pusht-confirmation",
            1,
            "float16",
            7,
            "399b69918c0683da640d656e07875263232a4a40c73c2730be0a6683ae4f5bc3",
        ),
        (
            "visual-shape",
            100,
            "float32",
            8,
            "3af55860724726ef7aa72ad89b9bb5026e1e633a15aa55f0de007dee3780e1f1",
        ),
    ],
)
def test_preset_bytes_are_frozen(name, scale, dtype, seed, digest):
    pool = control_pool(reference() * np.float32(scale), 7, name)
    assert pool.actions.dtype == dtype
    assert pool.seed == seed
    assert sha(pool) == digest


@pytest.mark.parametrize(
    ("name", "quotas"),
    [("reference-control", SMALL), ("pusht-confirmation", LARGE), ("visual-shape", SMALL)],
)
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**63))
def test_pool_is_full_unique_and_in_range(name, quotas, seed):
    pool = control_pool(reference(), seed, name)
    assert Counter(pool.families) == quotas | {"reference": 1}
    assert pool.ids.tolist() == list(range(len(pool)))
    assert len({sequence.tobytes() for sequence in pool.actions}) == len(pool)
    assert np.abs(pool.actions).max() <= 1
    random = dict.fromkeys(("smooth_random", "uniform_random"), -1)
    assert pool.centres.tolist() == [random.get(family, 0) for family in pool.families]


def test_reference_is_id_0_as_stored():
    ref = reference(dtype=np.float64) / 3
    np.testing.assert_array_equal(control_pool(ref, 0).actions[0], ref)
    np.testing.assert_array_equal(
        control_pool(ref, 0, "pusht-confirmation").actions[0], ref.astype("f4").astype("f2")
    )
    shaped = (ref.astype("f4") / np.float32(100)).astype("f2").astype("f4")
    np.testing.assert_array_equal(control_pool(ref, 0, "visual-shape").actions[0], shaped)


def test_stream_keeps_any_width_and_dtype():
    for width, dtype in ((1, np.float16), (6, np.float64)):
        actions = control_pool(reference(width, dtype), 0).actions
        assert actions.shape == (64, 25, width)
        assert actions.dtype == dtype


# --------------------------------------------------------------------------- redraws


def test_refilled_family_gets_late_ids():
    families = control_pool(repeated([0, 0, 1, 2, 3]), 0, "pusht-confirmation").families
    last_uniform = max(i for i, family in enumerate(families) if family == "uniform_random")
    assert max(i for i, family in enumerate(families) if family == "shuffled") > last_uniform


def test_restart_records_a_seed_that_needs_no_restart():
    pool = control_pool(repeated([0, 0, 1, 2, 3]), 0, "visual-shape")
    assert pool.seed > 0
    again = control_pool(repeated([0, 0, 1, 2, 3]), pool.seed, "visual-shape", max_attempts=1)
    assert sha(again) == sha(pool)


@pytest.mark.parametrize("name", PROFILES)
def test_too_few_distinct_shuffles_are_refused(name):
    for order in ([0] * 5, [0, 0, 0, 0, 1]):  # 0 and 4 orders other than the reference
        with pytest.raises(DjepaError, match="distinct shuffles"):
            control_pool(repeated(order), 0, name)
    assert len(control_pool(repeated([0, 0, 0, 1, 1]), 0)) == 64  # 9 are enough for 7


def test_shuffles_are_counted_on_the_quantised_reference():
    ref = np.full((25, 2), 0.5) + np.arange(50).reshape(25, 2) * 1e-6
    assert len(control_pool(ref, 0)) == 64
    with pytest.raises(DjepaError, match="distinct shuffles"):
        control_pool(ref, 0, "pusht-confirmation")


@pytest.mark.parametrize("name", PROFILES)
def test_exhausted_attempts_are_an_error(name):
    with pytest.raises(DjepaError, match="raise max_attempts"):
        control_pool(repeated([0, 0, 1, 2, 3]), 0, name, max_attempts=1)


# ------------------------------------------------------------------ profiles of one's own


def test_replaced_preset_takes_other_horizon_width_and_sigma():
    quotas = (("reference", 1), ("noisy_0.7", 3), ("shuffled", 2))
    profile = replace(
        PROFILES["reference-control"], name="mine", horizon=12, blocks=3, width=4, quotas=quotas
    )
    pool = control_pool(reference(4, horizon=12), np.int64(5), profile)
    assert pool.actions.shape == (6, 12, 4)
    assert pool.families == ("reference", *["noisy_0.7"] * 3, *["shuffled"] * 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"horizon": 24}, "does not divide"),
        ({"horizon": 0}, "at least 1"),
        ({"blocks": 0}, "at least 1"),
        ({"width": 0}, "at least 1"),
        ({"scale": 0.0}, "positive"),
        ({"stored": "int8"}, "Unknown dtype"),
        ({"seed_mode": "restrat"}, "Did you mean 'restart'"),
        ({"quotas": ()}, "begin with"),
        ({"quotas": (("shuffled", 2),)}, "begin with"),
        ({"quotas": (("reference", 1), ("shufled", 2))}, "Did you mean 'shuffled'"),
        ({"quotas": (("reference", 1), ("noisy_x", 2))}, "positive sigma"),
        ({"quotas": (("reference", 1), ("noisy_-1", 2))}, "positive sigma"),
        ({"quotas": (("reference", 1), ("shuffled", 2.0))}, "integer"),
        ({"quotas": (("reference", 1), ("shuffled", 1), ("shuffled", 1))}, "twice"),
    ],
)
def test_bad_profiles_are_refused(changes, message):
    with pytest.raises(DjepaError, match=message):
        replace(PROFILES["reference-control"], **changes)


def test_horizon_is_free_without_shuffles():
    profile = Profile("noise", (("reference", 1), ("noisy_0.1", 2)), horizon=7)
    assert len(control_pool(reference(horizon=7), 0, profile)) == 3


# --------------------------------------------------------------------------- bad input


def test_unknown_profile_gets_a_suggestion():
    with pytest.raises(DjepaError, match="Did you mean 'visual-shape'"):
        control_pool(reference(), 0, "visual_shape")


@pytest.mark.parametrize("seed", [True, 1.0, -1, "1", None, np.float64(2), np.bool_(True)])
def test_bad_seeds_are_refused(seed):
    with pytest.raises(DjepaError, match="seed"):
        control_pool(reference(), seed)


@pytest.mark.parametrize(
    ("ref", "name", "message"),
    [
        (reference().astype(np.int64), "reference-control", "float32"),
        (reference()[:24], "reference-control", "shape"),
        (reference()[None], "reference-control", "shape"),
        (reference(3), "pusht-confirmation", "shape"),
        (reference(3), "visual-shape", "shape"),
        (reference() * np.nan, "reference-control", "NaN"),
        (reference() * 2, "reference-control", "within ±1"),
        (reference() * 200, "visual-shape", "within ±1"),
        (reference(dtype=np.float64) * 1e300, "pusht-confirmation", "within ±1"),
    ],
)
def test_bad_references_are_refused(ref, name, message):
    with pytest.raises(DjepaError, match=message):
        control_pool(ref, 0, name)


def test_bad_max_attempts_is_refused():
    with pytest.raises(DjepaError, match="max_attempts"):
        control_pool(reference(), 0, max_attempts=0)


# ---------------------------------------------------------------------- single families


class Fixed:
    """A generator whose draws are known."""

    def permutation(self, count):
        return np.arange(count)

    def uniform(self, low, high, shape):
        return np.array([[1.0], [-1.0], [0.5]])


def test_identity_shuffle_becomes_a_roll_by_one_block():
    centre = np.arange(10.0).reshape(10, 1)
    assert shuffled(centre, Fixed(), 5).ravel().tolist() == [8, 9, 0, 1, 2, 3, 4, 5, 6, 7]


def test_smooth_random_by_hand():
    np.testing.assert_allclose(smooth_random((3, 1), Fixed()).ravel(), [1.0, 0.6, 0.58])
