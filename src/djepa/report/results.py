"""The paper's tables, from our result rows.

Every table shows all starts; those that the written rule calls eligible stand beside them, because
on the others a decision hardly matters. The paper's figures are of its own starts, pools and
weights: they are there to be looked at, not to be tested against.
Legend: N starts, K candidates.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from djepa.errors import DjepaError, unknown_name
from djepa.evaluate import paper
from djepa.evaluate.intervals import Rate, rate_of
from djepa.evaluate.paired import RESAMPLES, SEED, paired
from djepa.evaluate.rows import Row, successes
from djepa.report.tables import Table

Bools = npt.NDArray[np.bool_]
Block = tuple[str, str, Sequence[str]]  # title, reference, methods
ORACLE = "oracle"
PAPER = "paper, %"
WILSON = "95 % intervals of shares are Wilson's"
RESAMPLED = f"those of differences come from {RESAMPLES:,} resamples of whole starts"


@dataclass(frozen=True, eq=False)
class Solved:
    """What the methods achieved on the same starts of one bank."""

    pools: str
    success: dict[str, Bools]  # method -> (N,)
    eligible: Bools  # (N,)

    def of(self, method: str, eligible: bool = False) -> Bools:
        """(N,) successes of a method, or those of the eligible starts alone."""
        if method not in self.success:
            raise unknown_name("method", method, self.success)
        return self.success[method][self.eligible] if eligible else self.success[method]

    def population(self, eligible: bool) -> str:
        """Such as `512 starts` or `256 eligible starts`."""
        return (
            f"{self.eligible.sum()} eligible starts" if eligible else f"{len(self.eligible)} starts"
        )


@dataclass(frozen=True)
class GapClosed:
    """How much of what a better choice could win over the base was won."""

    starts: int
    ours: float
    base: float
    oracle: float
    share: float  # (ours - base) / (oracle - base); negative where ours is worse than the base
    interval: tuple[float, float]  # 95 % of whole-start bootstrap resamples


@dataclass(frozen=True)
class Deployment:
    """What one deployed configuration does and takes."""

    method: str
    success: Rate  # of starts
    milliseconds: float  # per start
    files: int
    ranks: Rate | None = None  # candidates whose rank native distance gives back
    choices: Rate | None = None  # starts whose choice it gives back


def gather(rows: Iterable[Row]) -> Solved:
    """Rows of one bank, kind of pools and rule; anything mixed, doubled or missing is refused."""
    held = list(rows)
    kinds = sorted({(row.study, row.pools, row.rule, row.bank) for row in held})
    if len(kinds) != 1:
        raise DjepaError(f"A table needs rows of one study, pools, rule and bank, got {kinds}.")
    known: dict[int, tuple[str, bool]] = {}
    for row in held:
        this = (row.identity, row.eligible)
        if known.setdefault(row.start, this) != this:
            raise DjepaError(
                f"Start {row.start}: {row.method} was run on another, or by another "
                "rule of eligibility."
            )
    if len({(row.method, row.start) for row in held}) < len(held):
        raise DjepaError("A start stands twice for a method. Write its rows once.")
    eligible = np.array([known[start][1] for start in sorted(known)], bool)
    return Solved(held[0].pools, successes(held), eligible)


def success_table(rows: Iterable[Row], methods: Sequence[str]) -> Table:
    """Success of every method on all starts and on the eligible ones, beside the paper's."""
    seen = gather(rows)
    columns = ("method", "successes", "%", "95 % interval")
    lines = []
    for method in methods:
        cells = [c for flag in (False, True) for c in _rate_cells(rate_of(seen.of(method, flag)))]
        lines.append((method, *cells, _published(method)))
    return Table(
        name=f"success-{seen.pools}",
        title=f"Success on {seen.pools} pools",
        columns=(*columns, *(f"{name}, eligible" for name in columns[1:]), PAPER),
        rows=tuple(lines),
        note=f"{WILSON}. {_paper_note()}",
    )


def paired_table(rows: Iterable[Row], ours: str, references: Sequence[str]) -> Table:
    """Ours against every reference, start by start, on all starts and on the eligible ones."""
    seen = gather(rows)
    lines = []
    for reference in references:
        printed = paper.PAIRED.get((ours, reference))
        for flag in (False, True):
            a, b = seen.of(ours, flag), seen.of(reference, flag)
            if not len(a):
                continue
            p = paired(a, b)
            lines.append(
                (
                    reference,
                    seen.population(flag),
                    _signed(p.difference),
                    _to(p.difference_interval),
                    str(p.gains),
                    str(p.losses),
                    f"{p.p:.2g}",
                    f"{printed.difference:+.2f}" if printed else "",
                )
            )
    return Table(
        name=f"paired-{seen.pools}-{_slug(ours)}",
        title=f"{ours} against others on {seen.pools} pools",
        columns=(
            "against",
            "on",
            "difference, points",
            "95 % interval",
            "gains",
            "losses",
            "McNemar p",
            "paper, points",
        ),
        rows=tuple(lines),
        note=f"A gain is a start that only {ours} solves, a loss one that only the other solves. "
        f"Intervals: {RESAMPLES:,} resamples of whole starts. p is exact and two-sided.",
    )


def ablation_table(rows: Iterable[Row], blocks: Sequence[Block], eligible: bool = False) -> Table:
    """Blocks of methods against the block's own reference, which stands first if not listed."""
    seen = gather(rows)
    lines = []
    for title, reference, listed in blocks:
        methods = listed if reference in listed else (reference, *listed)
        for method in methods:
            a, b = seen.of(method, eligible), seen.of(reference, eligible)
            if not len(a):
                raise DjepaError(f"No start of the {seen.pools} pools is eligible.")
            p = paired(a, b)
            against = (
                ("0", "")
                if method == reference
                else (
                    _signed(p.difference),
                    _to(p.difference_interval),
                )
            )
            printed = paper.ABLATION.get(reference, {}).get(method)
            cells = _rate_cells(rate_of(a))
            lines.append((title, method, *cells, *against, _figure(printed)))
    return Table(
        name=f"ablation-{seen.pools}{'-eligible' if eligible else ''}",
        title=f"Ablations on {seen.population(eligible)} of the {seen.pools} pools",
        columns=(
            "block",
            "method",
            "successes",
            "%",
            "95 % interval",
            "difference, points",
            "its 95 % interval",
            PAPER,
        ),
        rows=tuple(lines),
        note=f"Differences are to the reference of the block, itself 0. {WILSON}; {RESAMPLED}. "
        f"{_paper_note()}",
    )


def budget_table(budget: Mapping[str, Mapping[int, Sequence[float]]], pools: str = "") -> Table:
    """Method -> candidates K -> success shares by subset seed, as mean (smallest-largest)."""
    sizes = sorted({k for of in budget.values() for k in of})
    lines = []
    for method, of in budget.items():
        if sorted(of) != sizes or not all(len(of[k]) for k in sizes):
            raise DjepaError(f"{method} was not run with every budget of {sizes}.")
        lines.append((method, "ours", *(_spread(of[k]) for k in sizes)))
        printed = paper.BUDGET.get(method, {})
        if any(k in printed for k in sizes):
            lines.append((method, "paper", *(_figure(printed.get(k)) for k in sizes)))
    seeds = sorted({len(of[k]) for of in budget.values() for k in sizes})
    return Table(
        name=f"budget-{pools}" if pools else "budget",
        title=f"Success by number of candidates{_on(pools)}, %",
        columns=("method", "from", *(f"K = {k}" for k in sizes)),
        rows=tuple(lines),
        note=f"Mean (smallest-largest) over subset seeds ({_listed(seeds)} of them); the methods "
        "share the subsets.",
    )


def deployment_table(entries: Sequence[Deployment], pools: str = "") -> Table:
    """Success and cost of deployed configurations, and what native distance gives back."""
    lines = []
    for entry in entries:
        printed = paper.DEPLOYMENT.get(entry.method)
        lines.append(
            (
                entry.method,
                *_rate_cells(entry.success)[:2],
                f"{entry.milliseconds:.2f}",
                str(entry.files),
                *(_counted(rate) for rate in (entry.ranks, entry.choices)),
                f"{printed.success:.2f}" if printed else "",
                f"{printed.milliseconds:.2f}" if printed else "",
                str(printed.files) if printed else "",
            )
        )
    ours = ("method", "successes", "%", "ms per start", "files", "ranks", "choices")
    return Table(
        name=f"deployment-{pools}" if pools else "deployment",
        title=f"Deployment through native distance{_on(pools)}",
        columns=(*ours, PAPER, "paper, ms", "paper, files"),
        rows=tuple(lines),
        note="ranks and choices: how many of them native latent distance gives back after the "
        "lift. Milliseconds depend on the machine; compare them within a column.",
    )


def gap_closed(rows: Iterable[Row], ours: str, base: str, eligible: bool = False) -> GapClosed:
    """(ours - base) / (oracle - base) over the same starts.

    Resamples draw whole starts; one without a start that the oracle wins over the base has no
    such share and is left out.
    """
    seen = gather(rows)
    a, b, best = (seen.of(name, eligible) for name in (ours, base, ORACLE))
    if ((a | b) & ~best).any():
        raise DjepaError("A method solves a start that the oracle does not: not the same pools.")
    if not (best & ~b).any():
        raise DjepaError(f"{base} solves all that the oracle solves: there is no gap to close.")
    won, open_ = a.astype(int) - b, best.astype(int) - b
    kinds, counts = np.unique(np.stack([won, open_], 1), axis=0, return_counts=True)
    drawn = np.random.default_rng(SEED).multinomial(len(a), counts / len(a), RESAMPLES) @ kinds
    shares = drawn[drawn[:, 1] > 0, 0] / drawn[drawn[:, 1] > 0, 1]
    low, high = np.quantile(shares, [0.025, 0.975])
    return GapClosed(
        starts=len(a),
        ours=float(a.mean()),
        base=float(b.mean()),
        oracle=float(best.mean()),
        share=float(won.sum() / open_.sum()),
        interval=(float(low), float(high)),
    )


def across_table(rows_by_kind: Mapping[str, Iterable[Row]], methods: Sequence[str]) -> Table:
    """Success of every method on kinds of pools side by side; blank where it was not run."""
    kinds = {kind: gather(rows) for kind, rows in rows_by_kind.items()}
    for method in methods:
        if not any(method in seen.success for seen in kinds.values()):
            raise unknown_name("method", method, {n for s in kinds.values() for n in s.success})
    views = [(kind, seen, flag) for kind, seen in kinds.items() for flag in (False, True)]
    lines = []
    for method in methods:
        cells = [
            _short(rate_of(seen.of(method, flag))) if method in seen.success else ""
            for _, seen, flag in views
        ]
        lines.append((method, *cells, _published(method)))
    return Table(
        name="across",
        title="Success by kind of pools, % (95 % interval)",
        columns=(
            "method",
            *(f"{kind}, {seen.population(flag)}" for kind, seen, flag in views),
            PAPER,
        ),
        rows=tuple(lines),
        note=f"{WILSON}. {_paper_note()}",
    )


def _rate_cells(rate: Rate) -> tuple[str, str, str]:
    """Successes of starts, percent, interval."""
    if not rate.of:
        return "0/0", "", ""
    return f"{rate.hits}/{rate.of}", f"{100 * rate.share:.1f}", _range(rate.interval)


def _short(rate: Rate) -> str:
    return f"{100 * rate.share:.1f} ({_range(rate.interval)})" if rate.of else ""


def _counted(rate: Rate | None) -> str:
    return f"{100 * rate.share:.1f} % of {rate.of:,}" if rate is not None and rate.of else ""


def _spread(shares: Sequence[float]) -> str:
    """Mean and ends of shares in percent; the mean alone where all are equal."""
    values = np.asarray(shares, float)
    if not ((values >= 0) & (values <= 1)).all():
        raise DjepaError(f"Success shares lie between 0 and 1, got {values.tolist()}.")
    ends = (float(values.min()), float(values.max()))
    mean = f"{100 * values.mean():.1f}"
    return mean if ends[0] == ends[1] else f"{mean} ({_range(ends)})"


def _range(ends: tuple[float, float]) -> str:
    return f"{100 * ends[0]:.1f}-{100 * ends[1]:.1f}"


def _to(ends: tuple[float, float]) -> str:
    return f"{_signed(ends[0])} to {_signed(ends[1])}"


def _signed(share: float) -> str:
    return f"{100 * share:+.1f}"


def _published(method: str) -> str:
    """The paper's success; of a method that it gives on other starts only, with their number."""
    found = paper.SUCCESS.get(method)
    others = (of[method] for of in paper.ABLATION.values() if method in of)
    return _figure(found or next(others, None))


def _figure(printed: paper.Published | None) -> str:
    if printed is None:
        return ""
    other = "" if printed.starts == paper.CONFIRMATION else f" ({printed.starts} starts)"
    return f"{printed.value:.2f}{other}"


def _paper_note() -> str:
    return (
        f"The paper's figures are of its own starts and pools, {paper.CONFIRMATION} starts unless "
        "another number stands beside."
    )


def _on(pools: str) -> str:
    return f", {pools} pools" if pools else ""


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(str(n) for n in numbers)


def _slug(method: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in method.lower()).split())
