"""`djepa.audit`: models against model-free choices, the part that fails, and the gate's risk."""

import importlib.util
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from djepa.align.fit import Alignment, Given
from djepa.align.outcomes import Outcomes
from djepa.artefacts.claim import metadata_of
from djepa.artefacts.store import locate
from djepa.audit.choices import DENSEST, FIRST, RANDOM, Choices, compare
from djepa.audit.gap import audit as audit_costs
from djepa.audit.result import Audit, Selective
from djepa.audit.table import audit_markdown, gate_markdown
from djepa.audit.verdict import verdict
from djepa.errors import DjepaError, MissingExtraError, unknown_name
from djepa.evaluate.intervals import plain, rate_of
from djepa.evidence.evidence import Evidence, clusters, to_tensor
from djepa.evidence.ranks import best
from djepa.evidence.tokens import consensus
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
    if not shown.observed.all():
        raise DjepaError("Candidates that were not executed cannot be audited: leave them out.")
    if not len(evidence):
        raise DjepaError("An audit needs at least one start.")
    given = {"realised": realised or {}, "distances": distances or {}, "chosen": chosen or {}}
    for name in {name for arrays in given.values() for name in arrays}:
        if name not in evidence.names:
            raise unknown_name("geometry", name, evidence.names)
    models = [_audit(evidence, shown.success, name, given) for name in evidence.names]
    if alignment is None:
        return Report(tuple(models))
    decision, gate, won = alignment.decide(evidence), alignment.gate, shown.success
    assert gate is not None  # `decide` requires a gate
    ours = _numpy(won.gather(1, decision.position[:, None])[:, 0])
    gain = gate.advantage(decision.base, decision.refined, evidence.ids)
    aligned = compare_choice("alignment", ours, evidence, won, models)
    risk = selective(ours, solved(won, decision.refined, evidence.ids), gain, decision.opened)
    return Report(tuple(models), aligned, risk)


def compare_choice(
    name: str, ours: Any, evidence: Evidence, won: Tensor, models: Sequence[Audit]
) -> Choices:
    """Compare (N,) successes of a choice with those of models and of model-free choices."""
    others = _controls(evidence, won)
    others |= {one.name: np.array(one.choices.picks) for one in models if one.choices}
    ceiling, groups = _numpy(won.any(1)), clusters(evidence.identities).numpy()
    return compare(name, ours, others, ceiling, groups)


def _audit(evidence: Evidence, won: Tensor, name: str, given: Mapping[str, Arrays]) -> Audit:
    """Audit one model: its choices, and the decision-local gap."""
    cost, ids = evidence.cost(name), evidence.ids
    truth = _realised(evidence, name, given["realised"].get(name))
    arrays = (_numpy(x) for x in (cost, ids, won, truth, given["distances"].get(name)))
    found = audit_costs(name, *arrays)
    native = ours = solved(won, cost, ids)
    if name in given["chosen"]:
        ours = _taken(won, ids, given["chosen"][name])
    others = _controls(evidence, won)
    if name in evidence.latents:
        others[DENSEST] = solved(won, consensus(evidence, name), ids)
    ceiling, groups = _numpy(won.any(1)), clusters(evidence.identities).numpy()
    part = None
    if truth is not None:
        part = verdict(ours, native, solved(won, truth, ids), ceiling, groups)
    return replace(found, choices=compare(name, ours, others, ceiling, groups), verdict=part)


def _controls(evidence: Evidence, won: Tensor) -> dict[str, Any]:
    """Choices that need no model."""
    first = solved(won, evidence.ids, evidence.ids)
    return {RANDOM: _numpy(won.double().mean(1)), FIRST: first}


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


def solved(won: Tensor, scores: Tensor, ids: Tensor) -> Any:
    """(N,) bool: does the candidate with the lowest score succeed."""
    return _numpy(won.gather(1, best(scores, ids)[:, None])[:, 0])


def _taken(won: Tensor, ids: Tensor, chosen: Any) -> Any:
    """(N,) bool: do the candidates of these IDs succeed."""
    at = ids == to_tensor("chosen", chosen).reshape(-1, 1)
    if at.shape != ids.shape or not at.any(1).all():
        raise DjepaError("chosen must be one candidate ID of each start, (N,).")
    return _numpy((won & at).any(1))


def _realised(evidence: Evidence, name: str, given: Any) -> Tensor | None:
    """(N, K) costs; of (N, K, D) executed latents the mean square distance to the goals."""
    if given is None:
        return None
    truth = to_tensor(f"realised of {name}", given).double()
    if truth.ndim == 3:
        if name not in evidence.goals:
            raise DjepaError(f"Executed latents of '{name}' need its goals, or give their costs.")
        truth = (truth - evidence.goals[name].double()[:, None]).square().mean(-1)
    return truth


def _numpy(given: Any) -> Any:
    return given.cpu().numpy() if isinstance(given, Tensor) else given
