"""The one rule by which a study calls a method better or worse than another.

A study declares its primary comparisons beforehand. Each is made on the same starts, by
    1. the paired difference of success with its 95 % interval, 10,000 resamples of whole starts,
    2. an exact two-sided p: McNemar's test. Where several rows are looks of one start (appearance:
       seven of each), rows are not independent: then it is the exact sign-flip test of the starts'
       net gains, which with one row per start is McNemar's. Where outcomes are graded (driving),
       the difference is of mean quality, resampled by whole logs (evaluate/graded.py),
    3. Holm's adjustment of p over all primary comparisons of the study.
A method is better if the adjusted p is below 0.05 and the whole interval above 0, worse if it is
below 0.05 and the whole interval below 0; otherwise there is no significant difference. Only
primary comparisons get these words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from djepa.align.registry import label
from djepa.errors import DjepaError
from djepa.evaluate.graded import paired_quality, qualities
from djepa.evaluate.paired import Paired, paired, with_ends
from djepa.evaluate.rows import Row, successes

LEVEL = 0.05
Word = Literal["better", "worse", "no significant difference"]
_THAN: dict[Word, str] = {
    "better": "is better than",
    "worse": "is worse than",
    "no significant difference": "is not significantly different from",
}


@dataclass(frozen=True)
class Comparison:
    """Ours against another method, or against the one of several with the most successes.

    Choosing the strongest on the test starts themselves can only be to our disadvantage.
    """

    ours: str
    theirs: tuple[str, ...]

    @classmethod
    def of(cls, ours: str, *theirs: str) -> "Comparison":
        """Ours against one method, or against the best of several, such as of all geometries."""
        if not theirs or ours in theirs:
            raise DjepaError(f"{ours} must be compared with one or more other methods.")
        return cls(ours, theirs)


@dataclass(frozen=True)
class Verdict:
    """One primary comparison and its result by the rule."""

    where: str  # kind of pools, shape, look, or cases counted together
    ours: str
    theirs: str
    pair: Paired
    adjusted: float  # p after Holm

    @property
    def word(self) -> Word:
        """Better, worse or no significant difference, by the rule above."""
        low, high = self.pair.difference_interval
        if self.adjusted >= LEVEL or low <= 0 <= high:
            return "no significant difference"
        return "better" if low > 0 else "worse"

    @property
    def points(self) -> str:
        """Such as `+3.1 points (+1.0 to +5.2), adjusted p = 0.004`."""
        p = f"= {self.adjusted:.2g}" if self.adjusted >= 1e-4 else "< 0.0001"
        gain = with_ends(self.pair.difference, *self.pair.difference_interval, " points")
        return f"{gain}, adjusted p {p}"

    @property
    def than(self) -> str:
        """The word in a sentence, such as `is better than`."""
        return _THAN[self.word]

    @property
    def phrase(self) -> str:
        """Such as `is better than fusion of two models: +3.1 points (+1.0 to +5.2), ...`."""
        return f"{self.than} {label(self.theirs)}: {self.points}"

    @property
    def sentence(self) -> str:
        """The phrase with our method in front."""
        return f"{label(self.ours)} {self.phrase}"


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's adjusted p values: with p ascending, max over j <= i of min(1, (m - j + 1) p_j)."""
    found, largest = [0.0] * len(ps), 0.0
    for place, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        largest = max(largest, min(1.0, (len(ps) - place) * ps[i]))
        found[i] = largest
    return found


def judge(
    rows: Mapping[str, Sequence[Row]],
    primary: Sequence[Comparison],
    units: Mapping[str, Sequence[str]] | None = None,
    clustered: bool = False,
    graded: bool = False,
) -> list[Verdict]:
    """Every primary comparison in every unit, in that order.

    `rows`: case -> rows. `units`: name -> cases that are counted together; each case alone unless
    given. `clustered`: the cases of a unit are looks of the same starts. `graded`: qualities are
    compared, not successes. A comparison whose methods were not run in a unit is left out of it,
    and of Holm's count.
    """
    found = list[tuple[str, str, str, Paired]]()
    for unit, cases in (units or {case: [case] for case in rows}).items():
        some = {case: rows[case] for case in cases if case in rows}
        for comparison in primary:
            pair = compare(some, comparison, clustered, graded)
            if pair is not None:
                found.append((unit, comparison.ours, *pair))
    adjusted = holm([pair.p for *_, pair in found])
    return [Verdict(*of, p) for of, p in zip(found, adjusted, strict=True)]


def compare(
    rows: Mapping[str, Sequence[Row]],
    comparison: Comparison,
    clustered: bool = False,
    graded: bool = False,
) -> tuple[str, Paired] | None:
    """The other method and the pair over all cases together; None where a method was not run."""
    run = [{row.method for row in case} for case in rows.values()]
    others = [name for name in comparison.theirs if all(name in of for of in run)]
    if not others or not all(comparison.ours in of for of in run):
        return None
    hits: dict[str, list[float]] = {name: [] for name in (comparison.ours, *others)}
    starts = list[str]()
    for case in rows.values():
        some = [row for row in case if row.method in hits]
        known: Mapping[str, Any] = qualities(some) if graded else successes(some)
        for name, of in known.items():
            hits[name] += of.tolist()
        own = {row.start: row.identity for row in some if row.method == comparison.ours}
        starts += [own[start] for start in sorted(own)]
    if not starts:
        return None
    theirs = max(others, key=lambda name: sum(hits[name]))
    a, b = np.array(hits[comparison.ours]), np.array(hits[theirs])
    if graded:
        return theirs, paired_quality(a, b, np.array(starts))
    return theirs, paired(a, b, np.array(starts) if clustered else None)
