"""stable-worldmodel: a planner as its cost, a recorder of any CEM run, an aligned solver.

Two generations of its API are recognised by their modules, not by version: solvers in `.solver`
with `model=`, and in `.planning` with `cost=`. Both call `get_cost(info, candidates)` of a cost and
pass candidates and costs of every step to callbacks.

Legend: N environments, S samples, T steps of a plan, a width of a step, A of a control, D latent.
"""

import importlib
import importlib.util
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from djepa.align.fit import Alignment
from djepa.errors import DjepaError, MissingExtraError
from djepa.evidence.evidence import Evidence
from djepa.interop.population import Recorder
from djepa.lift.planner import Plan, Planner
from djepa.lift.search import SearchCost


def make_solver(kind: str, cost: Any, **options: Any) -> Any:
    """A solver of the installed generation by name, such as "CEMSolver"."""
    for place in ("planning", "solver"):
        try:
            found = getattr(importlib.import_module(f"stable_worldmodel.{place}"), kind)
        except (ImportError, AttributeError):
            continue
        word = "cost" if "cost" in inspect.signature(found).parameters else "model"
        return found(**{word: cost}, **options)
    if importlib.util.find_spec("stable_worldmodel") is None:
        raise MissingExtraError("The adapter to stable-worldmodel", "swm")
    raise DjepaError(f"stable-worldmodel has no solver '{kind}'.")


class PlannerCost:
    """A planner as Costable: the search uses the native cost of the lifted model."""

    def __init__(self, planner: Planner, limit: float = 1.0) -> None:
        self.planner, self._search = planner, SearchCost(planner, limit)

    def get_cost(self, info: Mapping[str, Any], candidates: Tensor) -> Tensor:
        """(N, S, T, a) candidates -> (N, S), `info` expanded to samples as solvers do."""
        self._check(info, self.planner.lifted)
        return self._search.get_cost(_known(info, 1), candidates)

    criterion = get_cost

    def decide(self, info: Mapping[str, Any], candidates: Tensor) -> Plan:
        """The aligned choice among (N, S, T, a); `info` as passed to a solver."""
        self._check(info, *self.planner.geometries)
        once = {name: torch.as_tensor(x)[:, None] for name, x in _known(info, 0).items()}
        return self._search.decide(once, candidates)

    def _check(self, info: Mapping[str, Any], *names: str) -> None:
        """Raise if `info` lacks proprioception that a geometry needs."""
        feels = self.planner.feeling(names)
        if feels and "djepa_proprio" not in info:
            raise DjepaError(
                f"{', '.join(feels)} reads proprioception: info lacks djepa_proprio (4, 4), which "
                "Remember adds where the environment gives proprio and goal_proprio."
            )

    def parameters(self) -> Iterator[nn.Parameter]:
        """Parameters of the geometries, from which solvers take their dtype."""
        lifted: Any = self.planner.geometries[self.planner.lifted]
        return iter(lifted.parameters())


class Decision(nn.Module):
    """An alignment as Objective of the newer generation: rolled-out info -> (N, S) scores.

    `info` holds `predicted_emb` (N, S, T, D) and `goal_emb` (N, T, D). Scores are relations within
    one population, which is all that CEM compares; MPPI compares magnitudes and must not use them.
    """

    def __init__(self, alignment: Alignment, name: str) -> None:
        super().__init__()
        self.alignment, self.name = alignment, name

    def forward(self, info: Mapping[str, Tensor]) -> Tensor:
        """(N, S) final scores."""
        end, goal = info["predicted_emb"][:, :, -1], info["goal_emb"][:, -1]
        cost = (end - goal[:, None]).square().mean(-1)
        (N, S), of = cost.shape, self.name
        ids = torch.arange(S).expand(N, -1)
        known = {"costs": {of: cost}, "latents": {of: end}, "goals": {of: goal}}
        evidence = Evidence.from_arrays(start_ids=range(N), candidate_ids=ids, **known)
        return self.alignment.decide(evidence).final.to(end.dtype)


class AlignedSolver:
    """Any solver with callbacks; its result is the planner's aligned choice of the last population.

    With `record_only` the solver's own plan is kept, and both are in `recorder` and `plans`.
    """

    def __init__(self, inner: Any, cost: PlannerCost, record_only: bool = False) -> None:
        if not hasattr(inner, "callbacks"):
            raise DjepaError(f"{type(inner).__name__} has no callbacks: use a CEM.")
        self.inner, self.cost, self.record_only = inner, cost, record_only
        self.recorder, self.plans = Recorder(), list[Plan]()
        inner.callbacks.append(self.recorder)

    def solve(self, info_dict: Mapping[str, Any], init_action: Tensor | None = None) -> Any:
        """The solver's result, with `actions` (N, T, a) replaced by the choice."""
        found = self.inner.solve(info_dict, init_action=init_action)
        candidates, _ = self.recorder.last
        chosen = self.choose(info_dict, candidates)
        if not self.record_only:
            found["actions"] = candidates[torch.arange(len(candidates)), chosen.cpu()]
        return found

    def choose(self, info: Mapping[str, Any], candidates: Tensor) -> Tensor:
        """(N,) positions of the aligned choice."""
        self.plans.append(self.cost.decide(info, candidates))
        return self.plans[-1].choice

    __call__ = solve

    def configure(self, **given: Any) -> None:
        """Set action space, environments and horizon."""
        self.inner.configure(**given)

    @property
    def n_envs(self) -> int:
        """N, the number of environments."""
        return int(self.inner.n_envs)

    @property
    def action_dim(self) -> int:
        """Width a of a step."""
        return int(self.inner.action_dim)

    @property
    def horizon(self) -> int:
        """T, the number of steps of a plan."""
        return int(self.inner.horizon)


def _known(info: Mapping[str, Any], before: int) -> dict[str, Any]:
    """Inputs under the names of `SearchCost`, without the time axis 1 at position `before` + 1."""
    missing = [name for name in ("context", "history", "goal") if name not in info]
    if missing:
        raise DjepaError(f"info lacks {', '.join(missing)}: World(extra_wrappers=[Remember]).")
    at = (slice(None),) * (before + 1)
    known = {"pixels": info["context"], "history": info["history"], "goal": info["goal"]}
    known |= {"proprio": info["djepa_proprio"]} if "djepa_proprio" in info else {}
    return {name: x[(*at, 0)] for name, x in known.items()}
