"""How often a choice succeeds, compared with choices that need no model.

    RANDOM    expected success of a candidate drawn from the same pool, the mean of y_i: exact
    FIRST     the smallest candidate ID
    DENSEST   the predicted end with the nearest neighbours in its pool (evidence/tokens.py)
    BEST      whether any candidate of the pool succeeds
    closed    (choice - other) / (best - other): the gap closed

Intervals are 95 % over 10,000 resamples of whole starts, the same resamples for all choices.

Legend: N starts, K candidates, G groups of rows that are one start.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from djepa.align.registry import label
from djepa.seeds import generator

Floats = npt.NDArray[np.floating[Any]]
RANDOM, FIRST = label("random"), label("first")
DENSEST, BEST = label("consensus native"), label("oracle")
RESAMPLES, CELLS = 10_000, 2**22


class Share(NamedTuple):
    """A share or a difference of shares, with its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.value:.1f} % ({100 * self.low:.1f} to {100 * self.high:.1f})"


@dataclass(frozen=True)
class Choices:
    """One way to choose, compared with the others."""

    picks: tuple[bool, ...]  # start by start: does this choice succeed
    success: dict[str, Share]  # of this choice, by the name it has, and of every other
    over: dict[str, Share]  # this choice minus every other, in shares of starts
    closed: dict[str, Share]  # gap closed with every other as the base, where there is a gap


def compare(
    name: str, ours: Floats, others: Mapping[str, Floats], best: Floats, groups: Floats
) -> Choices:
    """(N,) success of a choice, of others and of the best candidate -> shares and intervals."""
    names = (name, *others, BEST)
    values = np.stack([np.asarray(v, float) for v in (ours, *others.values(), best)], axis=1)
    mean, drawn = values.mean(0), resampled(values, groups)
    over, closed = {}, {}
    for i, other in enumerate(others, start=1):
        over[other] = share_of(mean[0] - mean[i], drawn[:, 0] - drawn[:, i])
        if mean[-1] > mean[i]:
            room = np.maximum(drawn[:, -1] - drawn[:, i], 1e-12)
            closed[other] = share_of(
                (mean[0] - mean[i]) / (mean[-1] - mean[i]), (drawn[:, 0] - drawn[:, i]) / room
            )
    success = {key: share_of(mean[i], drawn[:, i]) for i, key in enumerate(names)}
    return Choices(tuple(map(bool, ours)), success, over, closed)


def resampled(values: Floats, groups: Floats) -> Floats:
    """(N, C) values -> (10,000, C) their means over resampled groups."""
    _, at, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    G, rng, found = len(sizes), generator("audit"), []
    sums = np.stack([np.bincount(at, weights=column) for column in values.T], axis=1)
    for rows in np.array_split(np.arange(RESAMPLES), -(-RESAMPLES * G // CELLS)):
        drawn = rng.integers(G, size=(len(rows), G)) + G * np.arange(len(rows))[:, None]
        counts = np.bincount(drawn.ravel(), minlength=len(rows) * G).reshape(len(rows), G)
        found.append((counts @ sums) / (counts @ sizes)[:, None])
    return np.concatenate(found)


def share_of(value: float, drawn: Floats) -> Share:
    """A value, with the interval of its resamples."""
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Share(float(value), float(low), float(high))
