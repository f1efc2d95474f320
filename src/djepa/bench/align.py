"""How fast alignments are fitted, decide and lift, and in how much memory.

Legend: N starts, K candidates, F token width.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from djepa.align.fit import AlignConfig, Alignment
from djepa.align.gates import Gate, calibrate
from djepa.align.presets import PAIR
from djepa.bench.align_work import (
    Problem,
    calibrate_by_loop,
    checked,
    decide_and_lift,
    futures,
    lift_inputs,
    loss_by_rows,
    problem,
)
from djepa.bench.geometry import peak, reset_peak
from djepa.bench.measure import Row, Say, check_sizes, in_child
from djepa.bench.measure import describe as measured
from djepa.bench.subject import best_seconds, figures
from djepa.errors import DjepaError
from djepa.lift.ordinal import realize
from djepa.models.graph import record

Keep = Callable[[list[Row]], None]
AT_ONCE = 16  # starts that are decided and lifted in one call on a device
CALLS = 20  # of such a call per repeat: a single one is shorter than the clock's grain


@dataclass(frozen=True)
class AlignBench:
    """What to measure."""

    device: str = "cpu"
    starts: int = 256
    candidates: int = 63
    many: int = 4096  # candidates of the single start that shows how memory grows
    fit: int = 448  # starts; a seventh as many to calibrate on
    updates: int = 1000
    latent: int = 192

    def __post_init__(self) -> None:
        least = {"starts": 1, "candidates": 2, "many": 2, "fit": 7, "updates": 0, "latent": 1}
        check_sizes(self, least)

    def problem(self, split: str, starts: int, candidates: int | None = None) -> Problem:
        """Evidence and outcomes of that population."""
        return problem(split, starts, candidates or self.candidates, self.latent, self.device)


def bench_align(config: AlignBench, say: Say, keep: Keep = lambda rows: None) -> list[Row]:
    """All measurements; `keep` is given the rows so far whenever there are more."""
    fit, calibration = config.problem("fit", config.fit), config.problem("cal", config.fit // 7)
    test = config.problem("test", config.starts)
    say(f"fit of {config.fit} starts")
    alignment, row = _fit(config, fit, calibration)
    rows = [row]
    keep(rows)
    steps: dict[str, Callable[[], list[Row]]] = {
        "gate": lambda: [_gate(alignment, fit, config.device)],
        "decide": lambda: [_decide(alignment, test, config.device)],
        f"{config.many} candidates": lambda: _many(config),
        "loss": lambda: [_loss(fit, config.device)],
        "lift": lambda: [_lift(alignment, test, config.device)],
        "decide and lift": lambda: _decide_and_lift(alignment, test, config.device),
    }
    for what, step in steps.items():
        say(what)
        rows += step()
        keep(rows)
    return rows


def describe(config: AlignBench, rows: Sequence[Row]) -> dict[str, Any]:
    """For JSON: what was measured, on what, and the rows."""
    return measured(config, rows, "starts", "candidates", "fit", "updates")


def _fit(config: AlignBench, fit: Problem, calibration: Problem) -> tuple[Alignment, Row]:
    """The published configuration; both steps end on the host."""
    alignment, began = Alignment(AlignConfig(updates=config.updates)), time.perf_counter()
    alignment.fit(*fit)
    fitted = time.perf_counter() - began
    alignment.calibrate(*calibration)
    seconds = time.perf_counter() - began
    (N, K), M = fit[0].ids.shape, len(calibration[0])
    note = f"{N} x {K}, {config.updates} updates; {figures(seconds - fitted)} s of it calibration"
    return alignment, Row("fit", "s", seconds, None, f"{note} on {M}")


def _gate(alignment: Alignment, fit: Problem, device: str) -> Row:
    (evidence, outcomes), gate = fit, Gate()
    given = (*alignment.scores(evidence), evidence.ids, outcomes.success)
    ours, plain = (partial(how, gate, *given) for how in (calibrate, calibrate_by_loop))
    if ours() != plain():
        raise DjepaError("The loop over thresholds chooses another gate.")
    fast, slow = (1 / best_seconds(work, device) for work in (ours, plain))
    note = f"calibrated on {len(evidence)} starts, against one threshold after the other"
    return Row("gate", "gates/s", fast, slow, note)


def _decide(alignment: Alignment, test: Problem, device: str) -> Row:
    """Given evidence: tokens, operator, gate, order."""
    evidence, _ = test
    (N, K), each = evidence.ids.shape, [evidence.rows([n]) for n in range(len(evidence))]
    ours = best_seconds(lambda: alignment.decide(evidence), device)
    plain = best_seconds(lambda: [alignment.decide(start) for start in each], device)
    note = f"{N} x {K} in {figures(ours)} s, against start by start"
    return Row("decide", "starts/s", N / ours, N / plain, note)


def _many(config: AlignBench) -> list[Row]:
    """A process of its own where memory is that of the process."""
    work = partial(_one_call, config)
    seconds, grown = work() if config.device == "cuda" else in_child(work)
    what = f"{config.many} candidates"
    note = f"one start in one call, {figures(seconds)} s"
    return [
        Row(what, "candidates/s", config.many / seconds, None, note),
        Row(f"memory of {what}", "MB", grown, None, "growth of the peak in that call"),
    ]


def _one_call(config: AlignBench) -> tuple[float, float]:
    """Seconds and MB of deciding one start with many candidates, by a barely fitted operator."""
    alignment = Alignment(AlignConfig(updates=1)).fit(*config.problem("fit", 7))
    alignment.calibrate(*config.problem("cal", 2))
    evidence, _ = config.problem("many", 1, config.many)
    alignment.decide(evidence.columns(evidence.ids.argsort(dim=1)[:, :2]))  # libraries set up
    before = reset_peak(config.device)
    alignment.decide(evidence)
    grown = peak(config.device) - before
    return best_seconds(lambda: alignment.decide(evidence), config.device), grown


def _loss(fit: Problem, device: str) -> Row:
    """Forward and backward of one published batch."""
    config, rows = AlignConfig(), fit[1].mixed.nonzero().flatten()[: AlignConfig().batch]
    evidence, outcomes = fit[0].rows(rows), fit[1].rows(rows)
    base = evidence.ranks(PAIR).mean(-1).float()
    delta = (0.1 * torch.cos(100 * base)).requires_grad_()
    shown = outcomes.success, outcomes.observed, evidence.ids

    def batched() -> Tensor:
        return config.loss(base + delta, delta, *shown)[0]

    def by_rows() -> Tensor:
        return loss_by_rows(config.loss, base + delta, delta, *shown)

    ours, plain = batched(), by_rows()
    if not torch.allclose(ours, plain, rtol=1e-6, atol=1e-6):
        raise DjepaError(f"The loss is {ours.item()}, that of a loop over rows {plain.item()}.")
    fast = 1 / best_seconds(lambda: torch.autograd.grad(batched(), delta), device, CALLS)
    slow = 1 / best_seconds(lambda: torch.autograd.grad(by_rows(), delta), device, CALLS)
    note = f"{len(rows)} x {evidence.candidates}, forward and backward, against a loop over starts"
    return Row("loss", "batches/s", fast, slow, note)


def _lift(alignment: Alignment, test: Problem, device: str) -> Row:
    evidence, _ = test
    given = (*futures(evidence, PAIR[0]), alignment.decide(evidence).final, evidence.ids)
    each = list(zip(*(x.split(1) for x in given), strict=True))
    ours = best_seconds(lambda: realize(*given), device)
    plain = best_seconds(lambda: [realize(*start) for start in each], device)
    N, K, B, D = given[0].shape
    note = f"{N} x {K} x {B} x {D} in {figures(ours)} s, against start by start"
    return Row("ordinal lift", "starts/s", N / ours, N / plain, note)


def _decide_and_lift(alignment: Alignment, test: Problem, device: str) -> list[Row]:
    """Tokens and futures are there: operator, gate and lift, without checks; then as one graph."""
    evidence = test[0].rows(range(min(AT_ONCE, len(test[0]))))
    given = lift_inputs(alignment, evidence)
    work, (N, K) = partial(decide_and_lift, *given), evidence.ids.shape
    seconds = best_seconds(work, device, CALLS)
    plain = best_seconds(partial(checked, *given), device, CALLS)
    note = f"{N} x {K} given tokens, {figures(1e3 * seconds)} ms a call, against one with checks"
    rows = [Row("decide and lift", "starts/s", N / seconds, N / plain, note)]
    replay = record(work, ()) if device == "cuda" else None
    if replay is not None:
        again = best_seconds(replay, device, CALLS)
        changed = (replay().choice != work().choice).float().mean().item()
        note = f"{N} x {K}, {figures(1e3 * again)} ms a call; {changed:.1%} of choices changed"
        rows.append(Row("decide and lift, recorded", "starts/s", N / again, N / seconds, note))
    return rows
