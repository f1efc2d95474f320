import hashlib
from collections import Counter

import numpy as np
import pytest

from djepa.errors import DjepaError
from djepa.pools import control_pool, decoy_pool, density_pick


def exact_centres(count=4, dtype=np.float32):
    """(C, 25, 2) multiples of 1/64, all different."""
    values = np.arange(count * 50) * 37 % 101 - 50
    return (values / 64).astype(dtype).reshape(count, 25, 2)


def random_centres(generator, count=4):
    """(C, 25, 2) independent smooth segments of one behaviour."""
    steps = generator.uniform(-0.3, 0.3, (count, 25, 2))
    return np.clip(steps.cumsum(axis=1), -0.9, 0.9)


def sequences(pool, centre):
    return {pool.actions[i].tobytes() for i in np.flatnonzero(pool.centres == centre)}


def test_every_centre_gets_the_same_families_in_the_same_numbers():
    pool = decoy_pool(exact_centres(), 5)
    pairs = Counter(zip(pool.centres.tolist(), pool.families, strict=True))
    counts = {"noisy_0.05": 5, "noisy_0.15": 4, "noisy_0.3": 4, "shuffled": 3}
    assert pairs == {(c, family): n for c in range(4) for family, n in counts.items()}
    assert pool.ids.tolist() == list(range(1, 65))
    assert len({sequence.tobytes() for sequence in pool.actions}) == 64
    assert pool.actions.dtype == np.float32
    assert pool.seed == 5


def test_bytes_are_frozen():
    actions = decoy_pool(exact_centres(), 5).actions
    assert (
        hashlib.sha256(actions.tobytes()).hexdigest()
        == "d9b82bf8a39cdc2a806a259a626f555925becc13d174841149755b4986775d89"
    )


def test_candidates_lie_around_their_own_centre():
    centres = exact_centres()
    pool = decoy_pool(centres, 5)
    distances = np.square(pool.actions[:, None] - centres[None]).sum(axis=(2, 3))
    noisy = np.array(pool.families) != "shuffled"
    assert (distances.argmin(axis=1) == pool.centres)[noisy].all()
    for i in np.flatnonzero(~noisy):  # the blocks of its centre, in another order
        blocks = centres[pool.centres[i]].reshape(5, -1)
        mixed = pool.actions[i].reshape(5, -1)
        assert sorted(map(tuple, mixed)) == sorted(map(tuple, blocks))


def test_draws_of_a_centre_do_not_depend_on_the_others():
    centres = exact_centres(5)
    first, second = decoy_pool(centres[:4], 5), decoy_pool(centres[[0, 1, 4, 3]], 5)
    for centre in (0, 1, 3):
        assert sequences(first, centre) == sequences(second, centre)
    assert not sequences(first, 2) & sequences(second, 2)


def test_keep_is_the_beginning_of_the_whole():
    whole, kept = decoy_pool(exact_centres(), 5), decoy_pool(exact_centres(), 5, keep=63)
    assert kept.ids.tolist() == list(range(1, 64))
    assert kept.hashes() == whole.hashes()[:63]


def test_order_does_not_tell_the_centre():
    # Mean ID of the reference's candidates over many pools: 32.5, each with variance 65 * 48 / 192.
    means = [
        pool.ids[pool.centres == 0].mean()
        for pool in (decoy_pool(exact_centres(), seed) for seed in range(300))
    ]
    assert abs(np.mean(means) - 32.5) < 4 * np.sqrt(65 * 48 / 192 / 300)
    assert np.std(means) < 5  # 4.03 expected; 17.9 if each centre kept its candidates together


def test_dropped_candidates_come_from_all_centres():
    dropped = Counter(
        int(np.argmin(np.bincount(decoy_pool(exact_centres(), seed, keep=63).centres)))
        for seed in range(200)
    )
    assert all(25 <= dropped[centre] <= 77 for centre in range(4))  # 50 ± 4.4 sd


def test_no_centre_is_a_candidate_even_as_a_shuffle_of_another():
    blocks = np.array([0.1, 0.2, 0.3], dtype=np.float32)
    orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2]]
    centres = np.stack([blocks[order] for order in orders])[:, :, None]
    for seed in range(20):
        pool = decoy_pool(centres, seed, (("shuffled", 1),), blocks=3)
        made = {sequence.tobytes() for sequence in pool.actions}
        assert len(made) == 3
        assert not made & {centre.tobytes() for centre in centres}
    with pytest.raises(DjepaError, match="raise max_attempts"):  # 6 orders, 3 of them centres
        decoy_pool(centres, 0, (("shuffled", 2),), blocks=3, max_attempts=200)


def test_contested_sequences_favour_no_index():
    # The two centres share all their shuffles, and all 4 free orders are taken. A centre that
    # always drew first would keep its likeliest one in 70 % of pools, one that drew last in 57 %.
    blocks = np.array([0.1, 0.2, 0.3], dtype=np.float32)
    first = np.stack([blocks, blocks[[1, 0, 2]]])[:, :, None]
    likeliest = blocks[[2, 0, 1]].tobytes()  # the identity is replaced by it
    rates = [
        np.mean(
            [
                likeliest in sequences(decoy_pool(centres, s, (("shuffled", 2),), blocks=3), own)
                for s in range(800)
            ]
        )
        for own, centres in enumerate((first, first[::-1]))
    ]
    assert abs(rates[0] - rates[1]) < 0.07  # 3 standard deviations


def test_density_finds_the_reference_of_a_control_pool_but_not_among_decoys():
    generator = np.random.default_rng(11)
    count = 240
    told = hit = 0
    for seed in range(count):
        centres = random_centres(generator)
        pool = decoy_pool(centres, seed, keep=63)
        pick = density_pick(pool.actions.reshape(63, -1), pool.ids)
        hit += int(pool.centres[pool.ids == pick][0]) == 0
        if seed < 60:
            pool = control_pool(centres[0], seed).without()
            pick = density_pick(pool.actions.reshape(63, -1), pool.ids)
            told += pool.families[int(np.flatnonzero(pool.ids == pick)[0])] == "noisy_0.05"
    chance = count / 4
    assert abs(hit - chance) < 4 * np.sqrt(chance * 3 / 4)
    assert told >= 58


def test_random_families_belong_to_no_centre():
    pool = decoy_pool(exact_centres(2), 0, (("uniform_random", 3), ("noisy_0.1", 2)))
    assert Counter(pool.centres.tolist()) == {-1: 6, 0: 2, 1: 2}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"centres": exact_centres()[0]}, "shape"),
        ({"centres": exact_centres().astype(int)}, "float32"),
        ({"centres": exact_centres() * 2}, "within ±1"),
        ({"centres": exact_centres()[[0, 1, 0]]}, "identical"),
        ({"centres": exact_centres() * np.nan}, "NaN"),
        ({"seed": True}, "seed"),
        ({"seed": -3}, "seed"),
        ({"keep": 65}, "only 64"),
        ({"keep": 0}, "at least 1"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"per_centre": ()}, "must name families"),
        ({"per_centre": (("reference", 1),)}, "never a candidate"),
        ({"per_centre": (("noisy_0.1", 0),)}, "at least 1"),
        ({"per_centre": (("smooth", 1),)}, "Did you mean 'smooth_random'"),
        ({"per_centre": (("shuffled", 1),), "blocks": 4}, "does not divide"),
        ({"per_centre": (("shuffled", 120),)}, "distinct shuffles"),
    ],
)
def test_bad_input_is_refused(changes, message):
    fields = {"centres": exact_centres(), "seed": 0}
    with pytest.raises(DjepaError, match=message):
        decoy_pool(**(fields | changes))
