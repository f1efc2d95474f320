"""Results of an audit. Legend: N starts, K candidates, k <= K a shortlist."""

from dataclasses import dataclass
from typing import Any

from djepa.audit.choices import Choices
from djepa.audit.verdict import Verdict
from djepa.evaluate.intervals import Rate, plain

Each = tuple[float | None, ...]  # start by start; None where the start does not count


@dataclass(frozen=True)
class Gap:
    """The distance gap g = (d_s - d_f) / (d_s + d_f), see `djepa.audit.gap.distance_gap`."""

    positive: Rate  # starts that prefer a failure to every success, of those with both outcomes
    median: float | None
    quartiles: tuple[float, float] | None
    each: Each


@dataclass(frozen=True)
class Inversions:
    """Success-failure pairs of a shortlist in which the failure is predicted strictly cheaper."""

    shortlist: int
    starts: int  # with both outcomes among the k
    pairs: int  # of all these starts
    mean: float | None  # of their shares, each start counted once
    each: Each


@dataclass(frozen=True)
class Correlation:
    """Spearman's rank correlation of predicted and realised cost in a shortlist."""

    shortlist: int
    starts: int  # whose correlation exists
    undefined: int  # all costs equal, predicted or realised
    within: float | None  # mean over `starts`
    pooled: float | None  # one correlation over the shortlists of all N starts, put together
    each: Each


@dataclass(frozen=True)
class Selective:
    """How often choices fail where an alignment's gate opens, and where it abstains."""

    opened: Rate  # failures of the aligned choice on starts where the gate opens
    shut: Rate  # failures of the base choice on the other starts
    by_coverage: dict[float, Rate]  # of the aligned choice, on the starts of largest advantage


@dataclass(frozen=True)
class Audit:
    """One model on N starts."""

    name: str
    starts: int
    candidates: int
    gap: Gap | None  # None where there are no distances
    inversions: tuple[Inversions, ...]  # longest shortlist first
    correlations: tuple[Correlation, ...]  # likewise; empty without realised costs
    choices: Choices | None = None  # what comes first: success beside choices without a model
    verdict: Verdict | None = None  # which part fails, where realised costs are known

    def as_dict(self, each: bool = False) -> dict[str, Any]:
        """For JSON; the start-by-start columns only on demand."""
        entry: dict[str, Any] = plain(self)
        for part in ("choices", "verdict"):
            if entry[part] is None:
                entry.pop(part)
        for part in ("inversions", "correlations"):
            entry[part] = [plain(one) for one in entry[part]]
        if not each:
            entry.get("choices", {}).pop("picks", None)
            for one in (entry["gap"] or {}, *entry["inversions"], *entry["correlations"]):
                one.pop("each", None)
        return entry
