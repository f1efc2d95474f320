"""`djepa.audit`: models against model-free choices, the part that fails, and the gate's risk."""

import importlib.util
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from djepa.align.fit import Alignment, Given, at_once
from djepa.align.outcomes import Outcomes
from djepa.artefacts.claim import metadata_of
from djepa.artefacts.store import locate
from djepa.audit.checks import check_arrays
from djepa.audit.choices import Choices
from djepa.audit.parts import UNCHOSEN, Part, audit_parts, compared, model_free, numpy_of
from djepa.audit.result import Audit, Selective
from djepa.audit.table import audit_markdown, gate_markdown
from djepa.errors import DjepaError, MissingExtraError, unknown_name
from djepa.evaluate.intervals import plain, rate_of
from djepa.evidence.blocks import block_size
from djepa.evidence.evidence import Evidence, clusters, to_tensor
from djepa.evidence.ranks import check_pools, check_values
from djepa.files import write_atomically

COVERAGES = (1.0, 0.75, 0.5, 0.25)
FIGURES = (".png", ".svg")
Arrays = Mapping[str, Any]


@dataclass(frozen=True, repr=False)
class Report:
    """Audits of several models on the same starts, and of an alignment where one is given."""

    models: tuple[Audit, ...]
    aligned: Choices | None = None
    gate: Selective | None = None

    def __iter__(self) -> Iterator[Audit]:
        return iter(self.models)

    def table(self) -> str:
        """Markdown, one column per model; then the alignment."""
        found = audit_markdown(self.models)
        if self.aligned is not None:
            found += "\n" + gate_markdown(self.aligned, self.gate)
        return found

    def __repr__(self) -> str:
        return self.table()

    def as_rows(self) -> list[dict[str, Any]]:
        """For JSON, start by start."""
        rows = [one.as_dict(each=True) for one in self.models]
        if self.aligned is not None:
            name = next(iter(self.aligned.success))
            rows.append({"name": name, **plain({"choices": self.aligned, "gate": self.gate})})
        return rows

    def plot(self, path: str | Path | None = None) -> Any:
        """Success of every choice with its interval, one panel per model; a matplotlib figure.

        Written to `path` too, a .png or .svg.
        """
        if path is not None:
            check_figure(path)
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise MissingExtraError("Drawing an audit", "report") from None
        shown = [(one.name, one.choices) for one in self.models if one.choices]
        shown += [(next(iter(self.aligned.success)), self.aligned)] if self.aligned else []
        figure = Figure(figsize=(3.2 * len(shown) + 1.5, 3.2), layout="constrained")
        panels = figure.subplots(1, len(shown), sharex=True, squeeze=False)[0]
        for axes, (name, choices) in zip(panels, shown, strict=True):
            for y, (label, share) in enumerate(reversed(choices.success.items())):
                axes.plot([100 * share.low, 100 * share.high], [y, y], color="#888888")
                axes.plot(100 * share.value, y, "o", color="C1" if label == name else "C0")
            axes.set_yticks(range(len(choices.success)), list(reversed(choices.success)))
            axes.set(title=name, xlabel="successful starts, %", xlim=(-2, 102))
        if path is not None:
            data, file = io.BytesIO(), locate(path)
            figure.savefig(data, format=file.suffix[1:], metadata=metadata_of(file.suffix))
            write_atomically(file, data.getvalue())
        return figure


def check_figure(path: str | Path) -> None:
    """Raise early for a path that `plot` could not write."""
    if locate(path).suffix not in FIGURES:
        raise DjepaError(f"A figure needs a name ending in {' or '.join(FIGURES)}, got {path}.")
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError("Drawing an audit", "report")


def audit(
    evidence: Evidence,
    outcomes: Given,
    *,
    realised: Arrays | None = None,
    distances: Arrays | None = None,
    chosen: Arrays | None = None,
    alignment: Alignment | None = None,
) -> Report:
    """Audit every model of the evidence against the outcomes of all its candidates.

    `realised` name -> (N, K) the model's cost of the executed latents, or (N, K, D) these latents,
    whose cost is then the mean squared distance to the goals; `distances` name -> (N, K) to the
    goal, by default √cost; `chosen` name -> (N,) candidate IDs that a planner chose, by default
    those of the lowest cost. With a calibrated `alignment`, its choices and gate are audited too.
    """
    shown = Outcomes.of(evidence, outcomes)
    if not len(evidence):
        raise DjepaError("An audit needs at least one start.")
    arrays = {"realised": realised or {}, "distances": distances or {}, "chosen": chosen or {}}
    for name in {name for of in arrays.values() for name in of}:
        if name not in evidence.names:
            raise unknown_name("geometry", name, evidence.names)
    given = {kind: _given(evidence, kind, of) for kind, of in arrays.items()}
    check_pools(evidence.ids)
    check_values(evidence.ids, costs=evidence.costs)
    for kind in ("realised", "distances"):
        for scores in given[kind].values():
            known = numpy_of(evidence.ids), numpy_of(shown.success)
            check_arrays(*known, **{kind: numpy_of(scores)})

    def parts() -> Iterator[Part]:
        # Whole batches of the operator, so that its scores are rounded as in `decide`.
        some = at_once(evidence.candidates)
        some *= max(1, block_size(evidence.candidates) // some)
        for rows in torch.arange(len(evidence), device=evidence.ids.device).split(some):
            known = {k: {n: x[rows] for n, x in of.items()} for k, of in given.items()}
            yield Part(evidence.rows(rows), shown.rows(rows), known)

    return report_parts(parts(), alignment)


def report_parts(parts: Iterable[Part], alignment: Alignment | None = None) -> Report:
    """The audit of starts that come block by block, whose arrays are checked."""
    models, aligned, of = audit_parts(parts, alignment)
    if of is None:
        return Report(models)
    gain, opened = torch.from_numpy(of.gain), torch.from_numpy(of.opened)
    return Report(models, aligned, selective(of.ours, of.refined, gain, opened))


def compare_choice(
    name: str, ours: Any, evidence: Evidence, won: Tensor, models: Sequence[Audit]
) -> Choices:
    """Compare (N,) successes of a choice with those of models and of model-free choices."""
    groups = clusters(evidence.identities).numpy()
    return compared(name, ours, model_free(evidence.ids, won), groups, models)


def selective(ours: Any, refined: Any, gain: Tensor, opened: Tensor) -> Selective:
    """(N,) success of gated and of aligned choice, advantages, open gates -> selective risks.

    Coverage c is the share c of starts with the largest advantage; ties by their order.
    """
    order, at = gain.argsort(descending=True, stable=True).numpy(), opened.numpy()
    failed = [~refined[order[: max(1, round(c * len(order)))]] for c in COVERAGES]
    return Selective(
        opened=rate_of(~ours[at]),
        shut=rate_of(~ours[~at]),
        by_coverage={c: rate_of(one) for c, one in zip(COVERAGES, failed, strict=True)},
    )


def _given(evidence: Evidence, kind: str, arrays: Arrays) -> dict[str, Tensor]:
    """Arrays of a kind as tensors, one row per start; of executed latents their costs."""
    found = {}
    for name, array in arrays.items():
        given = to_tensor(f"{kind} of {name}", array)
        if kind == "realised":
            given = _costs(evidence, name, given)
        if kind == "chosen":
            given = given.reshape(-1)
            if given.shape != (len(evidence),):
                raise DjepaError(UNCHOSEN)
        found[name] = given
    return found


def _costs(evidence: Evidence, name: str, truth: Tensor) -> Tensor:
    """(N, K) costs; of (N, K, D) executed latents the mean square distance to the goals."""
    truth = truth if truth.dtype == torch.float32 else truth.double()
    if truth.ndim == 3:
        if name not in evidence.goals:
            raise DjepaError(f"Executed latents of '{name}' need its goals, or give their costs.")
        away = truth.double() - evidence.goals[name].double()[:, None]
        truth = away.square().mean(-1)
    return truth
