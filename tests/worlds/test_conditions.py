from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from djepa.errors import DjepaError
from djepa.worlds.conditions import (
    NOISE_SHARE,
    blur,
    darken,
    draw_condition,
    draw_look,
    salt_pepper,
)
from djepa.worlds.draw import Appearance, draw_push
from djepa.worlds.looks import CONDITIONS, LOOK_SETS, LOOKS, V2
from djepa.worlds.shapes import SHAPES

T = SHAPES["T"]
BLACK, WHITE = (0, 0, 0), (255, 255, 255)
STATE = torch.tensor([[150.0, 330, 190, 160, 0.6, 0, 0, 0, 0, 0]], dtype=torch.float64)
# The pusher on the block, the block on the marker: every part hides some of another.
PILE = torch.tensor([[262.0, 270, 250, 240, 0.3, 1, 2, 3, 4, 5]], dtype=torch.float64)
CHANGED = CONDITIONS[1:]


def some_states(count: int, seed: int = 0) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.uniform(40, 470, (count, 10)))


def share_of(part: str, states: torch.Tensor, size: int) -> torch.Tensor:
    """255 times the share of each pixel (N, size, size) on which this part is seen."""
    colours = dict.fromkeys(("block", "pusher", "goal", "background", "walls"), BLACK)
    look = Appearance(**(colours | {part: WHITE}), marker="fixed")
    return draw_push(T, states, size, appearance=look)[..., 0]


def differs(states: torch.Tensor, size: int, look: str) -> torch.Tensor:
    """Pixels (N, size, size) that are not those of clean."""
    return (draw_look(T, states, size, look) != draw_look(T, states, size, "clean")).any(-1)


def peppered(states: torch.Tensor, size: int) -> torch.Tensor:
    """Black pixels (N, size, size); a clean frame has none."""
    return (draw_look(T, states, size, "salt-pepper") == 0).all(-1)


def test_the_names():
    assert CONDITIONS == (
        "clean",
        "blur",
        "salt-pepper",
        "dark",
        "block-colour",
        "marker-colour",
        "pusher-colour",
    )
    assert LOOK_SETS["looks.v1"] == CONDITIONS  # those of the stored rows: they never change
    for looks in LOOK_SETS.values():
        assert tuple(name.removesuffix(".v2") for name in looks) == CONDITIONS
    assert set(LOOKS) == {"plain", *(name for looks in LOOK_SETS.values() for name in looks)}


@pytest.mark.parametrize("condition", CHANGED)
def test_a_severity_of_one_is_the_first_set_and_a_small_one_is_nearly_clean(condition):
    clean = draw_look(T, PILE, 64, "clean").int()
    assert draw_condition(T, PILE, 64, condition, 1.0).equal(draw_look(T, PILE, 64, condition))
    changes = [
        (draw_condition(T, PILE, 64, condition, s).int() - clean).abs().float().mean().item()
        for s in (1e-3, 0.3, 0.6, 1.0)
    ]
    assert changes == sorted(changes)
    assert changes[0] < 0.02 * changes[-1]


@pytest.mark.parametrize("condition", V2)
def test_the_second_set_has_the_severities_that_were_chosen(condition):
    drawn = draw_condition(T, PILE, 64, condition, V2[condition])
    assert drawn.equal(draw_look(T, PILE, 64, f"{condition}.v2"))


def test_an_unknown_look_is_refused_with_the_nearest():
    with pytest.raises(DjepaError, match=r"Unknown look 'block-color'.*'block-colour'\?"):
        draw_look(T, STATE, 32, "block-color")


@pytest.mark.parametrize("look", LOOKS)
def test_frames_have_their_shape_and_their_states_are_left_alone(look):
    states = some_states(3)
    frames = draw_look(SHAPES["Z"], states, 48, look)
    assert frames.shape == (3, 48, 48, 3)
    assert frames.dtype == torch.uint8
    assert states.equal(some_states(3))
    assert draw_look(T, states[:0], 48, look).shape == (0, 48, 48, 3)


def test_plain_and_clean_are_plain_drawings():
    states = torch.cat([STATE, PILE, some_states(4)])
    plain = draw_push(T, states, 64, appearance=Appearance(marker="none"))
    assert draw_look(T, states, 64, "plain").equal(plain)
    clean = draw_push(T, states, 64, appearance=Appearance(marker="fixed"))
    assert draw_look(T, states, 64, "clean").equal(clean)
    assert (plain != clean).any()


def test_no_two_looks_are_alike():
    frames = torch.cat([draw_look(T, STATE, 64, look) for look in LOOKS])
    assert len(frames.unique(dim=0)) == len(LOOKS)


@pytest.mark.parametrize("part", ["block", "marker", "pusher"])
def test_a_colour_changes_its_part_and_nothing_else(part):
    states = torch.cat([STATE, PILE, some_states(6)])
    share = share_of({"marker": "goal"}.get(part, part), states, 112)
    changed = differs(states, 112, f"{part}-colour")
    assert not changed[share == 0].any()
    assert changed[share >= 8].all()  # a smaller share may vanish in the rounding
    assert (share == 255).sum() > 100
    # Neither the background nor another part of the scene has the new colour.
    new = draw_look(T, states, 112, f"{part}-colour")[share == 255].unique(dim=0).int()
    seen = draw_look(T, states, 112, "clean")[share < 255].int()
    assert len(new) == 1
    assert (seen - new).abs().sum(-1).min() > 50


def test_dark_scales_every_level_with_halves_to_even():
    levels = torch.arange(256, dtype=torch.uint8)
    want = [round(Fraction(45 * level, 100)) for level in range(256)]
    assert darken(levels).tolist() == want
    clean = draw_look(T, STATE, 64, "clean")
    assert draw_look(T, STATE, 64, "dark").equal(torch.tensor(want, dtype=torch.uint8)[clean.int()])


@pytest.mark.parametrize("size", [8, 31, 64, 224])
@pytest.mark.parametrize("level", [0, 1, 127, 254, 255])
def test_blur_leaves_a_constant_frame(size, level):
    frames = torch.full((2, size, size, 3), level, dtype=torch.uint8)
    assert blur(frames).equal(frames)


@pytest.mark.parametrize("size", [64, 112, 224])
def test_blur_is_a_gaussian_of_4_in_224(size):
    """Against scipy, in float64; its reach is cut at 3 sigma as well."""
    from scipy.ndimage import gaussian_filter

    sigma = 4 * size / 224
    clean = draw_look(T, PILE, size, "clean")[0].numpy().astype(np.float64)
    reach = int(np.ceil(3 * sigma))
    want = gaussian_filter(clean, sigma, mode="nearest", radius=reach, axes=(0, 1))
    got = draw_look(T, PILE, size, "blur")[0].numpy()
    assert np.abs(got - want).max() < 0.5 + 1e-3
    assert abs(got.mean() - clean.mean()) < 0.5
    assert np.abs(got - clean).max() > 40


def test_blur_spreads_a_point_evenly_and_within_its_channel():
    frames = torch.zeros(1, 112, 112, 3, dtype=torch.uint8)
    frames[0, 54:57, 54:57, 1] = 255
    got = blur(frames)
    assert (got[..., [0, 2]] == 0).all()
    spot = got[0, ..., 1]
    assert spot.equal(spot.T)
    assert spot[55, 52] == spot[55, 58] == spot[52, 55] > 0
    assert spot[55, 55] == spot.max()


def test_salt_and_pepper_come_in_the_stated_shares():
    states = some_states(24)
    grey = torch.full((24, 112, 112, 3), 100, dtype=torch.uint8)
    noisy = salt_pepper(grey, states)
    assert (noisy == noisy[..., :1]).all()  # all channels together
    kinds, counts = noisy[..., 0].unique(return_counts=True)
    assert kinds.tolist() == [0, 100, 255]
    black, _, white = (counts / counts.sum()).tolist()
    # 301,056 pixels: the standard deviation of either share is 0.00026.
    assert abs(black - NOISE_SHARE / 2) < 0.0015
    assert abs(white - NOISE_SHARE / 2) < 0.0015
    per_frame = (noisy[..., 0] != 100).float().mean((1, 2))  # standard deviation 0.0017
    assert (per_frame - NOISE_SHARE).abs().max() < 0.008
    lines = torch.cat([(noisy[..., 0] != 100).float().mean((0, axis)) for axis in (1, 2)])
    assert (lines - NOISE_SHARE).abs().max() < 0.025  # no row or column stands out


def test_salt_and_pepper_spare_all_other_pixels():
    states = some_states(4)
    noisy, clean = (draw_look(T, states, 96, look) for look in ("salt-pepper", "clean"))
    salt, pepper = (noisy == 255).all(-1), (noisy == 0).all(-1)
    assert noisy[~salt & ~pepper].equal(clean[~salt & ~pepper])
    assert pepper.sum() > 500
    assert (salt & (clean != 255).any(-1)).sum() > 50


def test_the_noise_is_that_of_the_state():
    states = some_states(6)
    first = peppered(states, 64)
    assert first.equal(peppered(states.clone(), 64))
    assert len(first.unique(dim=0)) == 6
    for column in range(10):  # velocities count, although they are not drawn
        near = STATE.clone()
        near[0, column] = np.nextafter(STATE[0, column].item(), np.inf)
        both = peppered(near, 64) & peppered(STATE, 64)
        assert both.sum() < 12  # 1.6 of 82 by chance
    swapped = STATE[:, [1, 0, *range(2, 10)]]
    assert not peppered(swapped, 64).equal(peppered(STATE, 64))
    assert peppered(STATE.float(), 64).equal(peppered(STATE.float().double(), 64))
    negative = torch.where(STATE == 0, -0.0, STATE)
    assert peppered(negative, 64).equal(peppered(STATE, 64))


def test_the_noise_is_splitmix64_of_bits_and_pixel():
    """Against whole numbers without a width, so that wraps and shifts are those of 64 bits."""
    whole, step = (1 << 64) - 1, 0x9E3779B97F4A7C15

    def mix(value: int) -> int:
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & whole
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & whole
        return value ^ (value >> 31)

    for state in some_states(3) - 250:
        bits = state.numpy().view(np.uint64).tolist()
        mixed = [mix((b + (c + 1) * step) & whole) for c, b in enumerate(bits)]
        key = mix(sum(mixed) & whole)
        want = torch.full((16, 16), 100, dtype=torch.uint8)
        for row, column in np.ndindex(16, 16):
            chance = mix((key + (row * 65536 + column + 1) * step) & whole)
            if chance >> 33 < round(0.04 * 2**31):
                want[row, column] = 255 * (chance & 1)
        grey = torch.full((1, 16, 16, 3), 100, dtype=torch.uint8)
        assert salt_pepper(grey, state[None])[0, ..., 2].equal(want)


@given(
    seed=st.integers(0, 1000),
    count=st.integers(1, 9),
    size=st.integers(8, 70),
    look=st.sampled_from(LOOKS),
)
@settings(max_examples=60, deadline=None)
def test_a_frame_does_not_depend_on_its_batch(seed, count, size, look):
    states = some_states(count, seed)
    whole = draw_look(T, states, size, look)
    single = [draw_look(T, state[None], size, look) for state in states]
    assert whole.equal(torch.cat(single))
    assert whole.flip(0).equal(draw_look(T, states.flip(0), size, look))


@pytest.mark.parametrize("look", CHANGED)
def test_a_batch_of_several_chunks_is_no_different(look):
    states = some_states(12)  # five frames of 224 px are changed at a time
    whole = draw_look(T, states, 224, look)
    for i in (0, 4, 5, 11):
        assert whole[i].equal(draw_look(T, states[i : i + 1], 224, look)[0])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_changes_frames_as_the_cpu_does():
    states = some_states(5)
    frames = draw_look(T, states, 112, "clean")
    assert blur(frames.cuda()).cpu().equal(blur(frames))
    assert darken(frames.cuda()).cpu().equal(darken(frames))
    assert salt_pepper(frames.cuda(), states.cuda()).cpu().equal(salt_pepper(frames, states))
    for look in LOOKS:
        here, there = (draw_look(T, s, 112, look).cpu().int() for s in (states, states.cuda()))
        assert (here - there).abs().max() <= 1
