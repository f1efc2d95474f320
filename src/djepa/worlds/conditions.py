"""Appearance conditions of the push world: other renderings of the same states.

Legend: N frames, S side of a frame in pixels.

A frame depends on its own state, the size and the look, and on nothing else: not on the batch, nor
on any random generator. Every change is a fixed chain of elementwise operations, so devices differ
by no more than the frames they start from.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from djepa.errors import unknown_name
from djepa.worlds.draw import RGB, Appearance, draw_push
from djepa.worlds.looks import LOOKS, PLAIN, SEVERITIES
from djepa.worlds.shapes import Shape

# At severity 1:
BLUR_SIGMA = 4.0  # of the Gaussian, in 1/224 of the side: the same picture at every size
DARK_FACTOR = 0.45  # every level is multiplied by it
NOISE_SHARE = 0.04  # of the pixels, half of them black and half white
COLOURS: dict[str, tuple[str, RGB]] = {  # condition -> the part that changes, and its colour
    "block-colour": ("block", (218, 150, 32)),  # amber
    "marker-colour": ("goal", (205, 130, 250)),  # violet
    "pusher-colour": ("pusher", (220, 20, 60)),  # crimson
}

_CLEAN = Appearance(marker="fixed")
# Pixels changed at a time, which bounds memory.
_CPU_PIXELS = 1 << 18  # 3 MB of float image stay in cache; measured fastest at 112 and 224 px
_GPU_PIXELS = 1 << 24  # 0.2 GB of float image

# The constants of splitmix64, as signed numbers: torch has no arithmetic on unsigned ones.
_STEP = 0x9E3779B97F4A7C15 - (1 << 64)
_MIX_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_2 = 0x94D049BB133111EB - (1 << 64)
_ROW = 1 << 16  # a pixel's number is row * _ROW + column, whatever the size of the frame


def draw_look(shape: Shape, states: Tensor, size: int, look: str) -> Tensor:
    """(N, 10) states -> uint8 (N, size, size, 3) on their device. `look` is one of LOOKS."""
    if look not in SEVERITIES:
        raise unknown_name("look", look, LOOKS)
    return draw_condition(shape, states, size, *SEVERITIES[look])


def draw_condition(
    shape: Shape, states: Tensor, size: int, condition: str, severity: float
) -> Tensor:
    """`draw_look` for a condition at any severity above 0; 1 is that of the first set of looks."""
    frames = draw_push(shape, states, size, appearance=_appearance(condition, severity))
    if condition in _CHANGES:
        step = max(1, (_GPU_PIXELS if states.is_cuda else _CPU_PIXELS) // size**2)
        for part, own in zip(frames.split(step), states.split(step), strict=True):
            part.copy_(_CHANGES[condition](part, own, severity))
    return frames


def _appearance(condition: str, severity: float) -> Appearance:
    """Colours of a condition: the new colour is mixed with that of the part, per channel."""
    if condition == PLAIN:
        return Appearance(marker="none")
    if condition not in COLOURS:
        return _CLEAN
    part, new = COLOURS[condition]
    own = getattr(_CLEAN, part)
    mixed = tuple(round(a + severity * (b - a)) for a, b in zip(own, new, strict=True))
    changed: dict[str, Any] = {part: mixed}
    return replace(_CLEAN, **changed)


def blur(frames: Tensor, severity: float = 1.0) -> Tensor:
    """Gaussian blur of uint8 (N, S, S, 3), edges replicated; its width grows with the severity."""
    weights = _gaussian(severity * BLUR_SIGMA / 224 * frames.shape[1])
    return _to_levels(_smooth(_smooth(frames.float(), 1, weights), 2, weights))


def darken(frames: Tensor, severity: float = 1.0) -> Tensor:
    """Less light on uint8 frames of any shape: levels times DARK_FACTOR to the severity."""
    return _to_levels(frames.float() * DARK_FACTOR**severity)


def salt_pepper(frames: Tensor, states: Tensor, severity: float = 1.0) -> Tensor:
    """Black and white pixels in uint8 (N, S, S, 3), at pixels hashed from the states (N, 10).

    The numbers are compared as float64: a state rounded to float32 is another state here.
    """
    place = torch.arange(frames.shape[1], device=frames.device)
    pixel = (place[:, None] * _ROW + place + 1) * _STEP
    chance = _mix(_key(states)[:, None, None] + pixel)
    # The upper 31 bits choose the pixels, the lowest one the colour.
    hit = _shift(chance, 33) < round(severity * NOISE_SHARE * (1 << 31))
    level = ((chance & 1) * 255).to(torch.uint8)
    return torch.where(hit[..., None], level[..., None], frames)


def _smooth(image: Tensor, axis: int, weights: tuple[float, ...]) -> Tensor:
    """Weighted sum of neighbours along one axis of float (N, S, S, 3).

    Shifted images are added, because a convolution may sum in another order for another batch. Each
    product is rounded before it is added, so that CPU and CUDA give the same bits.
    """
    side, reach = image.shape[axis], len(weights) // 2
    near = torch.arange(-reach, side + reach, device=image.device).clamp_(0, side - 1)
    wide = image.index_select(axis, near)
    total = torch.zeros_like(image)
    for first, weight in enumerate(weights):
        total += wide.narrow(axis, first, side) * weight
    return total


@lru_cache(maxsize=16)
def _gaussian(sigma: float) -> tuple[float, ...]:
    """Weights of the pixels up to 3 sigma away, with sum 1."""
    reach = max(1, math.ceil(3 * sigma))
    weights = [math.exp(-0.5 * (k / sigma) ** 2) for k in range(-reach, reach + 1)]
    return tuple(weight / sum(weights) for weight in weights)


def _to_levels(image: Tensor) -> Tensor:
    """Float levels -> uint8, halves to even."""
    return image.round().clamp_(0, 255).to(torch.uint8)


def _key(states: Tensor) -> Tensor:
    """One int64 per state: states (N, 10) -> (N,)."""
    numbers = states.detach().double() + 0.0  # turns -0.0 into 0.0
    column = torch.arange(1, states.shape[1] + 1, device=states.device) * _STEP
    # Integer sums wrap and are exact in any order.
    return _mix(_mix(numbers.contiguous().view(torch.int64) + column).sum(-1))


def _mix(value: Tensor) -> Tensor:
    """The finaliser of splitmix64 on int64, whose products wrap: each bit depends on all bits."""
    value = (value ^ _shift(value, 30)) * _MIX_1
    value = (value ^ _shift(value, 27)) * _MIX_2
    return value ^ _shift(value, 31)


def _shift(value: Tensor, bits: int) -> Tensor:
    """Logical right shift; that of int64 is arithmetic."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)


_CHANGES: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "blur": lambda frames, states, severity: blur(frames, severity),
    "dark": lambda frames, states, severity: darken(frames, severity),
    "salt-pepper": salt_pepper,
}
