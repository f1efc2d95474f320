"""An audit of many starts, block by block: what it keeps of a start are a few numbers.

Legend: N starts, n starts of a block, K candidates.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

from djepa.align.fit import Alignment
from djepa.align.outcomes import Outcomes
from djepa.audit.choices import DENSEST, FIRST, RANDOM, Choices, compare
from djepa.audit.gap import Columns, audit_of, columns, stack, together
from djepa.audit.result import Audit
from djepa.audit.verdict import verdict
from djepa.errors import DjepaError
from djepa.evidence.blocks import in_blocks
from djepa.evidence.evidence import Evidence, clusters, start_names
from djepa.evidence.ranks import best
from djepa.evidence.tokens import consensus

Array = npt.NDArray[Any]
UNCHOSEN = "chosen must be one candidate ID of each start, (N,)."


class Part(NamedTuple):
    """A block of starts."""

    evidence: Evidence
    outcomes: Outcomes
    given: Mapping[str, Mapping[str, Tensor]]  # realised, distances and chosen: name -> rows


class Free(NamedTuple):
    """Successes that need no model."""

    random: Array  # (N,) expected, of a random candidate
    first: Array  # (N,) of the smallest ID
    ceiling: Array  # (N,) of the best candidate


class Picks(NamedTuple):
    """(N,) successes of a model's choices."""

    ours: Array  # of the planner that uses it, by default of the lowest cost
    native: Array  # of the lowest cost
    densest: Array | None
    realised: Array | None  # of the lowest realised cost


class Decided(NamedTuple):
    """What an alignment decided on N starts."""

    ours: Array  # (N,) whether the choice succeeds
    refined: Array  # (N,) whether the aligned winner succeeds
    gain: Array  # (N,) advantage at the gate
    opened: Array  # (N,)


class Audited(NamedTuple):
    """The audits of all models, and an alignment's choices and decisions."""

    models: tuple[Audit, ...]
    aligned: Choices | None = None
    decided: Decided | None = None


def audit_parts(parts: Iterable[Part], alignment: Alignment | None = None) -> Audited:
    """Audit every model of the evidence, and the alignment where one is given."""
    blocks = list(map(partial(_block, alignment), parts))  # each part is freed before the next
    identities = start_names(name for block in blocks for name in block.identities)
    groups, free = clusters(identities).numpy(), Free(*_stacked([of.free for of in blocks]))
    models = []
    for name in list(blocks[0].models):
        found, picks = zip(*(block.models.pop(name) for block in blocks), strict=True)
        one = audit_of(name, together(found), blocks[0].candidates)
        models.append(_judged(one, Picks(*_stacked(picks)), free, groups))
    decided = [block.decided for block in blocks if block.decided is not None]
    if not decided:
        return Audited(tuple(models))
    of = Decided(*_stacked(decided))
    return Audited(tuple(models), compared("alignment", of.ours, free, groups, models), of)


def compared(
    name: str, ours: Array, free: Free, groups: Array, models: Sequence[Audit] = ()
) -> Choices:
    """Compare (N,) successes of a choice with those of models and of model-free choices."""
    others = {RANDOM: free.random, FIRST: free.first}
    others |= {one.name: np.array(one.choices.picks) for one in models if one.choices}
    return compare(name, ours, others, free.ceiling, groups)


def model_free(ids: Tensor, won: Tensor) -> Free:
    """Successes of choices that need no model, from (N, K) IDs and successes."""
    random = in_blocks(lambda some: some.double().mean(1), won)
    return Free(numpy_of(random), solved(won, ids, ids), numpy_of(won.any(1)))


def solved(won: Tensor, scores: Tensor, ids: Tensor) -> Array:
    """(N,) bool: does the candidate with the lowest score succeed."""
    return numpy_of(won.gather(1, best(scores, ids)[:, None])[:, 0])


def numpy_of(given: Tensor) -> Array:
    """The values in the memory of this machine."""
    return given.cpu().numpy()


class _Block(NamedTuple):
    """What is kept of a block."""

    identities: tuple[str, ...]
    candidates: int
    free: Free
    models: dict[str, tuple[Columns, Picks]]
    decided: Decided | None


def _block(alignment: Alignment | None, part: Part) -> _Block:
    evidence, won = part.evidence, part.outcomes.success
    if not part.outcomes.observed.all():
        raise DjepaError("Candidates that were not executed cannot be audited: leave them out.")
    return _Block(
        evidence.identities,
        evidence.candidates,
        model_free(evidence.ids, won),
        {name: _model(part, name) for name in evidence.names},
        None if alignment is None else _decided(alignment, evidence, won),
    )


def _model(part: Part, name: str) -> tuple[Columns, Picks]:
    """What is kept of one model on a block."""
    evidence, won = part.evidence, part.outcomes.success
    ids, cost = evidence.ids, evidence.costs[..., evidence.names.index(name)]
    truth, distances, chosen = (
        part.given.get(kind, {}).get(name) for kind in ("realised", "distances", "chosen")
    )
    native = solved(won, cost, ids)
    picks = Picks(
        native if chosen is None else _taken(won, ids, chosen),
        native,
        solved(won, consensus(evidence, name), ids) if name in evidence.latents else None,
        None if truth is None else solved(won, truth, ids),
    )
    truth_of = None if truth is None else numpy_of(truth)
    away = None if distances is None else numpy_of(distances)
    return columns(numpy_of(cost), numpy_of(ids), numpy_of(won), truth_of, away), picks


def _taken(won: Tensor, ids: Tensor, chosen: Tensor) -> Array:
    """(N,) bool: do the candidates of these IDs succeed."""
    at = ids == chosen[:, None]
    if not at.any(1).all():
        raise DjepaError(UNCHOSEN)
    return numpy_of((won & at).any(1))


def _decided(alignment: Alignment, evidence: Evidence, won: Tensor) -> Decided:
    decision, gate = alignment.decide(evidence), alignment.gate
    assert gate is not None  # `decide` requires a gate
    gain = gate.advantage(decision.base, decision.refined, evidence.ids)
    ours = won.gather(1, decision.position[:, None])[:, 0]
    refined = solved(won, decision.refined, evidence.ids)
    return Decided(numpy_of(ours), refined, numpy_of(gain), numpy_of(decision.opened))


def _judged(one: Audit, picks: Picks, free: Free, groups: Array) -> Audit:
    """The audit of a model with its choices and, where realised costs are known, the verdict."""
    others = {RANDOM: free.random, FIRST: free.first}
    if picks.densest is not None:
        others[DENSEST] = picks.densest
    choices = compare(one.name, picks.ours, others, free.ceiling, groups)
    if picks.realised is None:
        return replace(one, choices=choices)
    part = verdict(picks.ours, picks.native, picks.realised, free.ceiling, groups)
    return replace(one, choices=choices, verdict=part)


def _stacked(blocks: Sequence[tuple[Array | None, ...]]) -> list[Any]:
    """Every column over all blocks."""
    return [stack(column) for column in zip(*blocks, strict=True)]
