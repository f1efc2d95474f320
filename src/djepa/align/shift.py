"""Distribution shift between calibration starts and new starts, tested without outcomes.

A calibrated gate, and a guarantee even more so, is valid for starts exchangeable with the
calibration starts. Exchangeability cannot be proved, but it can be refuted: each of the features
below is compared by a two-sample Kolmogorov-Smirnov test over starts, and the smallest p-value is
multiplied by the number of tests (Bonferroni).

    lowest cost, and median minus lowest cost, of every model
    agreement of every two models: the correlation of their ranks in the pool
    the advantage that the gate compares with its threshold

A small p means that the guarantee does not apply. A large p means only that no shift was detected.
If a shift is detected, `admit` closes the gate, so that the base choice is made.
"""

import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import combinations
from typing import Any

import numpy.typing as npt
import torch
from scipy.stats import ks_2samp
from torch import Tensor

from djepa.align.fit import Alignment
from djepa.align.gates import NEVER
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence, start_of

LEVEL = 0.01  # one false alarm in a hundred checks
LEAST = 8  # starts; fewer cannot reach this level
Some = Evidence | Iterable[Evidence]  # at once, or in parts
Features = dict[str, npt.NDArray[Any]]  # name -> (N,)


@dataclass(frozen=True)
class Shift:
    """The result of the comparison."""

    p: float  # smallest p-value over all features, Bonferroni-corrected
    feature: str  # the one with the smallest p-value
    features: dict[str, float]  # uncorrected p-value of each
    starts: tuple[int, int]  # numbers of calibration and of new starts

    @property
    def noticed(self) -> bool:
        """Whether a shift is detected at LEVEL."""
        return self.p < LEVEL

    def __str__(self) -> str:
        old, new = self.starts
        what = f"{new} new starts against {old} of the calibration: p = {self.p:.2g}"
        if not self.noticed:
            return f"No difference of evidence was noticed ({what})."
        return (
            f"The evidence differs from that of the calibration, most in {self.feature} ({what}). "
            "Calibration and guarantee do not hold here: calibrate on starts such as these."
        )


def compare_evidence(alignment: Alignment, calibration: Some, new: Some) -> Shift:
    """Compare new evidence with that of calibration starts; no outcome is read.

    Evidence that does not fit into memory may be given in parts.
    """
    (olds, before), (news, after) = (_features(alignment, e) for e in (calibration, new))
    starts = _starts(olds), _starts(news)
    if min(starts) < LEAST:
        raise DjepaError(f"Give at least {LEAST} starts of each kind, not {starts}.")
    if before != after:
        return Shift(0.0, "the number of candidates", {"the number of candidates": 0.0}, starts)
    found = {n: float(ks_2samp(olds[n], news[n], method="asymp").pvalue) for n in olds}
    least = min(found, key=found.__getitem__)
    return Shift(min(1.0, len(found) * found[least]), least, found, starts)


def admit(alignment: Alignment, calibration: Some, window: Some) -> tuple[Alignment, Shift]:
    """The alignment to use on starts like those of `window`, and the comparison.

    If a shift from the calibration evidence is detected, the gate of the returned alignment never
    opens. No outcome is read.
    """
    found = compare_evidence(alignment, calibration, window)
    return (shut(alignment) if found.noticed else alignment), found


def shut(alignment: Alignment) -> Alignment:
    """A copy of the alignment whose gate never opens, so that it makes the base choice."""
    kept = copy.copy(alignment)
    assert alignment.gate is not None
    kept.gate = replace(alignment.gate, threshold=NEVER)
    return kept


def _starts(features: Features) -> int:
    return len(next(iter(features.values())))


def _features(alignment: Alignment, given: Some) -> tuple[Features, set[int]]:
    """Feature name -> (N,) values, one per start, and the set of pool sizes K.

    Of several rows of a start one is drawn, by a hash of its name. Not their mean: means of six
    rows and of three have different distributions even where the rows have the same.
    """
    rows, sizes, identities = list[dict[str, Tensor]](), set[int](), list[str]()
    for part in (given,) if isinstance(given, Evidence) else given:
        rows.append(_of_rows(alignment, part))
        sizes.add(part.candidates)
        identities += part.identities
    if not rows:
        raise DjepaError("There is no evidence to compare.")
    drawn = _one_each(identities)
    return {name: torch.cat([of[name] for of in rows]).numpy()[drawn] for name in rows[0]}, sizes


def _one_each(identities: list[str]) -> list[int]:
    """Positions of one row per start."""
    rows: dict[str, tuple[bytes, int]] = {}
    for row, name in enumerate(identities):
        start, drawn = start_of(name), (sha256(name.encode()).digest(), row)
        rows[start] = min(rows.get(start, drawn), drawn)
    return [row for _, row in rows.values()]


def _of_rows(alignment: Alignment, e: Evidence) -> dict[str, Tensor]:
    """Feature name -> (N,) float64, one value per row."""
    if alignment.gate is None:
        raise DjepaError("Calibrate before you compare evidence.")
    names, found = alignment.config.geometries, dict[str, Tensor]()
    for name in names:
        cost = e.cost(name)
        found[f"the lowest cost of {name}"] = cost.amin(1)
        found[f"the spread of costs of {name}"] = cost.median(1).values - cost.amin(1)
    ranks = e.ranks(names) - 0.5
    for i, j in combinations(range(len(names)), 2):
        both = (ranks[..., i] * ranks[..., j]).mean(1)
        found[f"the agreement of {names[i]} and {names[j]}"] = both
    base, refined = alignment.scores(e)
    found["the advantage at the gate"] = alignment.gate.advantage(base, refined, e.ids)
    return {name: x.double().cpu() for name, x in found.items()}
