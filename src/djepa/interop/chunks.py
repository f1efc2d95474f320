"""Choose one of K action chunks that a policy samples, with a gate.

    chooser = Chooser("score", samples=8, score=my_costs)       # or "random", "first", "consensus",
                                                                # "planner"
    policy = choosing(policy, chooser)                          # any LeRobot policy that samples

The policy keeps its own queues and processing: only its call for one chunk returns the chosen one
of K.

Legend: N rows of a batch, K chunks, T steps, A action width.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor

from djepa.align.fit import Alignment
from djepa.errors import DjepaError, check_name
from djepa.evidence.evidence import Evidence
from djepa.evidence.ranks import check_pools, order
from djepa.interop.decide import record
from djepa.interop.record import DecisionRecord, Scorer
from djepa.seeds import seed_for

if TYPE_CHECKING:
    from djepa.interop.planner_score import PlannerScore

How = Literal["score", "planner", "random", "first", "consensus"]
Costs = Mapping[str, Tensor] | Tensor  # (N, K), lower is better; or several by name
Score = Callable[[Any, Tensor], Costs]  # batch, (N, K, T, A) chunks


@dataclass
class Chooser:
    """How one of K chunks is chosen; every decision is recorded.

    "score": the lowest cost, or with an `alignment` of these costs its gated choice. "planner": the
    choice of a planner file (`planner_score`). "consensus": the chunk nearest to the others.
    "first" and "random" are baselines. With `record_only` the first chunk is executed, and the
    choice only recorded.
    """

    how: How = "score"
    samples: int = 8
    score: Score | None = None
    alignment: Alignment | None = None
    planner: "PlannerScore | None" = None  # for how = planner; also observes every action
    record_only: bool = False
    seed: int = 0
    records: list[DecisionRecord] = field(default_factory=list)
    calls: int = 0

    def __post_init__(self) -> None:
        check_name("way to choose", self.how, get_args(How))
        if self.samples < 2:
            raise DjepaError(f"There is nothing to choose from {self.samples} chunk; sample 2.")
        if self.how == "score" and self.score is None:
            raise DjepaError("Choosing by score needs score=, a function of batch and chunks.")
        if self.how == "planner" and self.planner is None:
            raise DjepaError("Choosing by planner needs planner=PlannerScore(load_planner(FILE)).")

    def __call__(self, batch: Any, draw: Callable[[], Tensor]) -> Tensor:
        """One of the chunks from `draw`, (N, T, A), unchanged."""
        chunks = self._drawn(draw)
        found = self._decide(batch, chunks)
        self.records += found
        self.calls += 1
        at = [0 if self.record_only else one.choice for one in found]
        return chunks[torch.arange(len(chunks)), torch.tensor(at)]

    def _drawn(self, draw: Callable[[], Tensor]) -> Tensor:
        """(N, K, T, A), each from its own generator: the k-th is the same for any K."""
        parts = []
        for k in range(self.samples):
            with torch.random.fork_rng():
                torch.manual_seed(seed_for("chunk", self.seed, self.calls, k) % 2**31)
                parts.append(draw())
        chunks = torch.stack(parts, dim=1)
        if chunks.ndim != 4 or not chunks.isfinite().all():
            raise DjepaError(f"A policy must give finite (N, T, A) chunks, got {parts[0].shape}.")
        if (chunks == chunks[:, :1]).all():
            raise DjepaError(
                f"All {self.samples} chunks are the same: this policy gives one chunk and cannot "
                "be sampled. Use one that draws, such as a diffusion policy."
            )
        return chunks

    def _decide(self, batch: Any, chunks: Tensor) -> list[DecisionRecord]:
        N, K = chunks.shape[:2]
        names = [f"{self.calls}.{n}" for n in range(N)]
        if self.how == "planner":
            assert self.planner is not None
            return self.planner.decide(batch, chunks, names)
        ids = torch.arange(K).expand(N, -1).contiguous()
        costs = self._costs(batch, chunks, ids)
        evidence = Evidence.from_arrays(start_ids=names, candidate_ids=ids, costs=costs)
        if self.how == "score" and self.alignment is not None:
            assert self.alignment.gate is not None  # required for a decision
            return record(evidence, self.alignment.decide(evidence), self.alignment.gate)
        known = {name: evidence.cost(name) for name in evidence.names}
        places = order(known[evidence.names[0]], ids).tolist()
        return [
            DecisionRecord(
                name,
                tuple(range(K)),
                places[n][0],
                tuple(places[n]),
                tuple(Scorer(of, tuple(cost[n].tolist())) for of, cost in known.items()),
            )
            for n, name in enumerate(names)
        ]

    def _costs(self, batch: Any, chunks: Tensor, ids: Tensor) -> dict[str, Tensor]:
        N, K = ids.shape
        if self.how == "first":
            return {"first": ids.double()}
        if self.how == "random":
            random = torch.Generator().manual_seed(seed_for("pick", self.seed, self.calls) % 2**31)
            return {"random": torch.rand(N, K, generator=random, dtype=torch.float64)}
        if self.how == "consensus":
            flat = chunks.flatten(2).double().cpu()
            return {"consensus": torch.cdist(flat, flat).sum(-1) / (K - 1)}
        assert self.score is not None
        given = self.score(batch, chunks)
        costs = dict(given) if isinstance(given, Mapping) else {"score": given}
        if not costs:
            raise DjepaError("score gave no costs.")
        known = {f"the cost of {n}": torch.as_tensor(x).detach().cpu() for n, x in costs.items()}
        check_pools(ids, **{n: x.double() for n, x in known.items()})
        return {n: torch.as_tensor(x).detach().cpu().double() for n, x in costs.items()}


def choosing(policy: Any, chooser: Chooser) -> Any:
    """The same policy, changed so that it executes chosen chunks."""
    inner = getattr(policy, "predict_action_chunk", None)
    if inner is None:
        raise DjepaError(f"{type(policy).__name__} has no predict_action_chunk to sample from.")

    def predict_action_chunk(batch: Any, **more: Any) -> Tensor:
        return chooser(batch, lambda: inner(batch, **more))

    policy.predict_action_chunk = predict_action_chunk
    if chooser.planner is not None:
        _watched(policy, chooser.planner)
    return policy


def _watched(policy: Any, planner: "PlannerScore") -> None:
    """Let a planner see every batch and every action; both must be in the world's units."""
    mapping = getattr(getattr(policy, "config", None), "normalization_mapping", {})
    if str(getattr(mapping.get("ACTION"), "value", "IDENTITY")) != "IDENTITY":
        raise DjepaError(
            "This policy's chunks are normalised, and a planner costs controls as they are "
            "executed: train it with normalization_mapping ACTION = IDENTITY."
        )
    select, reset = policy.select_action, policy.reset

    def select_action(batch: Any, **more: Any) -> Tensor:
        planner.see(batch)
        action: Tensor = select(batch, **more)
        planner.did(action)
        return action

    def begin() -> None:
        planner.reset()
        reset()

    policy.select_action, policy.reset = select_action, begin
