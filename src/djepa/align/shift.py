"""Do new starts look like those on which a gate was calibrated? A check without outcomes.

A calibrated gate, and a guarantee even more so, hold for starts drawn as the calibration starts
were: exchangeable with them. That cannot be proved, but often refuted: numbers that need no outcome
are compared start by start, each by a two-sample Kolmogorov-Smirnov test, and the smallest p-value
is multiplied by how many there are (Bonferroni).

    lowest cost, and median minus lowest cost, of every model
    agreement of every two models: the correlation of their ranks in the pool
    the advantage that the gate compares with its threshold

A small p says that the guarantee is void. A large one says only that nothing was noticed.

Legend: N starts, K candidates.
"""

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import ks_2samp
from torch import Tensor

from djepa.align.fit import Alignment
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence, clusters

LEVEL = 0.01  # one false alarm in a hundred checks
LEAST = 8  # starts; on fewer nothing can be noticed at this level


@dataclass(frozen=True)
class Shift:
    """What the comparison found."""

    p: float  # that starts drawn alike differ as much, over all features
    feature: str  # that differs most
    features: dict[str, float]  # p of each, not corrected
    starts: tuple[int, int]  # calibration, new

    @property
    def noticed(self) -> bool:
        """Whether to warn."""
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


def compare_evidence(alignment: Alignment, calibration: Evidence, new: Evidence) -> Shift:
    """Compare new evidence with that of calibration starts; no outcome is read."""
    (old_of, olds), (new_of, news) = (_features(alignment, e) for e in (calibration, new))
    starts = len(old_of[0]), len(new_of[0])
    if min(starts) < LEAST:
        raise DjepaError(f"Give at least {LEAST} starts of each kind, not {starts}.")
    if calibration.candidates != new.candidates:
        return Shift(0.0, "the number of candidates", {"the number of candidates": 0.0}, starts)
    assert olds == news
    pairs = zip(olds, old_of, new_of, strict=True)
    found = {name: float(ks_2samp(a, b, method="asymp").pvalue) for name, a, b in pairs}
    least = min(found, key=found.__getitem__)
    return Shift(min(1.0, len(found) * found[least]), least, found, starts)


def _features(alignment: Alignment, e: Evidence) -> tuple[list[npt.NDArray[Any]], list[str]]:
    """One number of every start for each feature; looks of one start are averaged."""
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
    same = clusters(e.identities).to(e.ids.device)
    counts = torch.bincount(same)
    means = [torch.bincount(same, weights=x.double()) / counts for x in found.values()]
    return [np.asarray(mean.cpu()) for mean in means], list(found)
