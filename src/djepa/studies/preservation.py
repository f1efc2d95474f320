"""Objective preservation: what adapting a predictor does to its prediction and to its decisions.

For every method the mean squared error of predicted against realised latents, over all candidates
and blocks, beside the success of what it chooses (App. E): a better predictor need not decide
better, and a method that decides better may predict worse.

Legend: N starts, K candidates, B blocks of five controls, D latent.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from djepa.align.controls.lessons import Supervised, futures
from djepa.align.controls.methods import SAMPLED, control_costs, control_futures
from djepa.align.plastic import Patch
from djepa.evaluate.intervals import Rate, rate_of
from djepa.evaluate.paired import Paired, bootstrap, paired
from djepa.evidence.ranks import best
from djepa.models.lewm import LeWM

NATIVE = "native"


@dataclass(frozen=True)
class Line:
    """One method on the same N starts."""

    method: str
    error: float | None  # mean squared error; of methods that decide by samples there is none
    change: tuple[float, float]  # 95 % interval of the error's difference to the native model's
    success: Rate
    against: Paired | None  # the native choice


def preservation(model: LeWM, patches: Mapping[str, Patch], test: Supervised) -> list[Line]:
    """The unchanged model first, then every patch or residual, then the two that sample."""
    starts, won = test.starts, test.outcomes.success
    base = futures(model, starts, 8)
    predicted = {NATIVE: base} | {
        name: control_futures(model, patch, starts, base) for name, patch in patches.items()
    }
    costs = {name: model.native_cost(z, starts.goal) for name, z in predicted.items()}
    if "Var-JEPA" in patches:
        sampled = control_costs(model, {"Var-JEPA": patches["Var-JEPA"]}, starts, base)
        costs |= {name: sampled[name] for name in SAMPLED}
    errors = {name: _errors(z, test.realised) for name, z in predicted.items()}
    hits = {
        name: won.gather(1, best(cost, starts.ids)[:, None])[:, 0].cpu().numpy()
        for name, cost in costs.items()
    }
    lines = []
    for name, solved in hits.items():
        own = errors.get(name)
        less = (0.0, 0.0) if own is None else bootstrap(own - errors[NATIVE])
        against = None if name == NATIVE else paired(solved, hits[NATIVE])
        error = None if own is None else float(own.mean())
        lines.append(Line(name, error, less, rate_of(solved), against))
    return lines


def preservation_table(lines: list[Line]) -> str:
    """Markdown."""
    head = "| method | prediction error | change | success | gained / lost | p |\n"
    rule = "|---|--:|--:|--:|--:|--:|\n"
    return head + rule + "".join(f"| {' | '.join(_cells(line))} |\n" for line in lines)


def _cells(line: Line) -> list[str]:
    of, success = line.against, line.success.percent(interval=True)
    low, high = line.change
    error = "-" if line.error is None else f"{line.error:.4f}"
    change = "-" if line.error is None or of is None else f"{low:+.4f} to {high:+.4f}"
    paid = ["-", "-"] if of is None else [f"{of.gains} / {of.losses}", f"{of.p:.2f}"]
    return [line.method, error, change, success, *paid]


def _errors(predicted: Tensor, realised: Tensor) -> np.ndarray:
    """(N,) float64: of each start."""
    return (predicted - realised).double().square().mean((1, 2, 3)).cpu().numpy()
