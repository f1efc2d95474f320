"""Number formats and recorded calls: how much faster, and how many choices they change.

Legend: N starts, K candidates.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from djepa.bench.measure import Say
from djepa.bench.subject import GeometryRow, Subject, best_seconds, figures
from djepa.models.fast import Fast, Inputs

CALLS = 10  # per repeat: a single one would be shorter than the clock's grain


@dataclass(frozen=True)
class Variant:
    """One way to run a decision."""

    precision: str
    record: bool = False
    compiled: bool = False

    @property
    def label(self) -> str:
        """For the table."""
        parts = (self.precision, "compiled" * self.compiled, "recorded" * self.record)
        return " + ".join(filter(None, parts))


PLAIN = Variant("float32")
VARIANTS = (
    Variant("tf32"),
    Variant("bf16"),
    Variant("float32", record=True),
    Variant("tf32", record=True),
    Variant("bf16", record=True),
)


@dataclass(frozen=True)
class Timing:
    """What one variant took, and what it changed against plain float32."""

    variant: Variant
    seconds: float  # per start
    ranks: float  # share of candidates whose rank within their start changed
    choices: float  # share of starts whose cheapest candidate changed
    as_said: bool  # recorded if it was to be


def precision_rows(
    subject: Subject, given: Inputs, compiled: Sequence[str], device: str, say: Say
) -> list[GeometryRow]:
    """One row per variant, each against plain float32."""
    tried = (*VARIANTS, *(Variant(name, record=True, compiled=True) for name in compiled))
    exact = Fast(subject.model, device, record=False).decide_costs(*given)
    rows: list[GeometryRow] = []
    for variant in (PLAIN, *tried):
        say(f"{subject.title}, {variant.label}")
        try:
            timing = _time(subject, variant, given, exact, device)
        except Exception as error:  # a compiler may fail in many ways; the other rows still count
            if not variant.compiled:
                raise
            say(f"{variant.label} does not work here: {str(error).splitlines()[0]}")
            continue
        rows.append(_row(subject, timing, rows[0].ours if rows else None))
    return rows


def drift(cost: Tensor, exact: Tensor) -> tuple[float, float]:
    """(N, K) costs and exact ones -> share of changed ranks, share of changed choices."""
    ours, theirs = (x.argsort(dim=1, stable=True) for x in (cost, exact))
    ranks = (ours.argsort(dim=1) != theirs.argsort(dim=1)).float().mean()
    return ranks.item(), (ours[:, 0] != theirs[:, 0]).float().mean().item()


def combined(rows: Sequence[GeometryRow]) -> list[GeometryRow]:
    """One row per variant: every geometry of the rows in turn, as a decision that asks them all."""
    names = list(dict.fromkeys(row.geometry for row in rows))
    label = {row.what: row.what.split(", ", 1)[1] for row in rows}
    sums = {}
    for variant in dict.fromkeys(label.values()):
        mine = [row for row in rows if label[row.what] == variant]
        if len(mine) == len(names) > 1:
            sums[variant] = sum(row.details["ms_per_start"] for row in mine)
    together, weights = " + ".join(names), ", ".join(dict.fromkeys(row.weights for row in rows))
    out: list[GeometryRow] = []
    for variant, ms in sums.items():
        plain = out[0].ours if out else None
        what, note = f"{together} {rows[0].size}, {variant}", f"{figures(ms)} ms a start; {weights}"
        about = (together, rows[0].size, weights, {"ms_per_start": ms})
        out.append(GeometryRow(what, "starts/s", 1e3 / ms, plain, note, *about))
    return out


def _time(subject: Subject, variant: Variant, given: Inputs, exact: Tensor, device: str) -> Timing:
    fast = Fast(subject.model, device, variant.precision, variant.record, variant.compiled)
    ranks, choices = drift(fast.decide_costs(*given), exact)
    calls = CALLS if device == "cuda" else 1
    seconds = best_seconds(lambda: fast.decide_costs(*given), device, calls)
    if variant.compiled:
        torch.compiler.reset()
    as_said = fast.recorded or not variant.record
    return Timing(variant, seconds / len(given.frames), ranks, choices, as_said)


def _row(subject: Subject, timing: Timing, plain: float | None) -> GeometryRow:
    ms = 1e3 * timing.seconds
    note = (
        f"{figures(ms)} ms a start; {timing.ranks:.1%} of ranks, {timing.choices:.1%} of choices "
        f"changed{'' if timing.as_said else '; could not be recorded'}"
    )
    return subject.row(
        timing.variant.label,
        "starts/s",
        1 / timing.seconds,
        plain,
        note,
        ms_per_start=ms,
        ranks_changed=timing.ranks,
        choices_changed=timing.choices,
    )
