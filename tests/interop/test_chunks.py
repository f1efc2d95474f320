"""One of K chunks, unchanged: by score, by an alignment, or by controls that need neither."""

from typing import Any

import numpy as np
import pytest
import torch

from djepa.align.fit import AlignConfig, Alignment
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence
from djepa.interop.chunks import Chooser, choosing

N, K, T, A = 3, 6, 4, 2


class Policy:
    """Draws chunks of noise around what it sees, and keeps a queue as LeRobot's policies do."""

    def __init__(self, spread: float = 1.0) -> None:
        self.spread, self.queue = spread, list[torch.Tensor]()

    def predict_action_chunk(self, batch: torch.Tensor) -> torch.Tensor:
        return batch + self.spread * torch.randn(N, T, A)

    def select_action(self, batch: torch.Tensor) -> torch.Tensor:
        if not self.queue:
            self.queue += list(self.predict_action_chunk(batch).unbind(1))
        return self.queue.pop(0)


def nearest(batch: Any, chunks: torch.Tensor) -> torch.Tensor:
    return chunks.square().sum((2, 3))


def chunks_of(chooser: Chooser) -> torch.Tensor:
    """All K of the first call."""
    policy, found = Policy(), []
    for k in range(K):
        one = Chooser("score", K, lambda _, c, k=k: (torch.arange(K) != k).double().expand(N, -1))
        one.seed = chooser.seed
        found.append(choosing(Policy(), one).predict_action_chunk(torch.zeros(N, T, A)))
    assert policy.spread == 1.0
    return torch.stack(found, dim=1)


def test_the_lowest_cost_is_taken_unchanged_and_executed_whole() -> None:
    chooser = Chooser("score", K, nearest, seed=4)
    policy = choosing(Policy(), chooser)
    batch = torch.zeros(N, T, A)
    done = torch.stack([policy.select_action(batch) for _ in range(T)], dim=1)
    every = chunks_of(chooser)
    best = nearest(None, every).argmin(1)
    assert torch.equal(done, every[torch.arange(N), best])
    assert [one.choice for one in chooser.records] == best.tolist()
    assert chooser.records[0].scorers[0].name == "score"
    policy.select_action(batch)
    assert len(chooser.records) == 2 * N  # a new chunk, a new decision


def test_controls_on_the_same_chunks() -> None:
    every, batch = chunks_of(Chooser("first", K)), torch.zeros(N, T, A)
    taken = {}
    for how in ("first", "random", "consensus"):
        chooser = Chooser(how, K)  # type: ignore[arg-type]
        taken[how] = choosing(Policy(), chooser).predict_action_chunk(batch)
        at = torch.tensor([one.choice for one in chooser.records])
        assert torch.equal(taken[how], every[torch.arange(N), at])
    assert torch.equal(taken["first"], every[:, 0])
    flat = every.flatten(2)
    assert torch.equal(
        taken["consensus"], every[torch.arange(N), torch.cdist(flat, flat).sum(-1).argmin(1)]
    )
    only = Chooser("score", K, nearest, record_only=True)
    assert torch.equal(choosing(Policy(), only).predict_action_chunk(batch), every[:, 0])
    assert [one.choice for one in only.records] != [0] * N


def test_an_alignment_decides_behind_its_gate() -> None:
    rng = np.random.default_rng(0)
    costs = {n: rng.gamma(2, 1, (60, K)) for n in ("a", "b")}
    success = costs["b"] < 0.7
    ids = [range(K)] * 60
    evidence = Evidence.from_arrays(start_ids=range(60), candidate_ids=ids, costs=costs)
    config = AlignConfig((), ("a", "b"), ("a", "b"), updates=8, every=4, batch=8)
    alignment = Alignment(config).fit(evidence.rows(range(40)), success[:40])
    alignment.calibrate(evidence.rows(range(40, 60)), success[40:])

    def two(batch: Any, chunks: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"a": nearest(batch, chunks), "b": chunks.abs().amax((2, 3))}

    chooser = Chooser("score", K, two, alignment)
    taken = choosing(Policy(), chooser).predict_action_chunk(torch.zeros(N, T, A))
    every = chunks_of(chooser)
    given = {n: x.double() for n, x in two(None, every).items()}
    known = Evidence.from_arrays(start_ids=range(N), candidate_ids=[range(K)] * N, costs=given)
    wanted = alignment.decide(known)
    assert torch.equal(taken, every[torch.arange(N), wanted.position])
    assert [one.gate.opened for one in chooser.records if one.gate] == wanted.opened.tolist()


def test_what_is_wrong_is_named() -> None:
    batch = torch.zeros(N, T, A)
    with pytest.raises(DjepaError, match="gives one chunk and cannot be sampled"):
        choosing(Policy(0.0), Chooser("first", K)).predict_action_chunk(batch)
    wrong = {
        "the cost of score of start 0 holds a NaN": lambda b, c: torch.full((N, K), torch.nan),
        "the cost of score is": lambda b, c: torch.zeros(N, K + 1),
        "score gave no costs": lambda b, c: {},
    }
    for message, score in wrong.items():
        with pytest.raises(DjepaError, match=message):
            choosing(Policy(), Chooser("score", K, score)).predict_action_chunk(batch)
    with pytest.raises(DjepaError, match="nothing to choose from 1"):
        Chooser("first", 1)
    with pytest.raises(DjepaError, match="needs score="):
        Chooser("score", K)
    with pytest.raises(DjepaError, match="Did you mean 'random'"):
        Chooser("rondom", K)  # type: ignore[arg-type]
    with pytest.raises(DjepaError, match="no predict_action_chunk"):
        choosing(object(), Chooser("first", K))
    with pytest.raises(DjepaError, match="finite"):
        choosing(Policy(float("nan")), Chooser("first", K)).predict_action_chunk(batch)
