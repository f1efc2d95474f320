"""A planner as the cost function of a library's sampling search.

It fits any search that calls `get_cost(info, candidates)`, such as stable-worldmodel's CEM, iCEM
and MPPI. Ranks are defined within one population and are not comparable between populations. So the
search uses the native cost of the lifted geometry, and `decide` aligns the final population.

Legend: N starts, S samples, H controls, A action width.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from djepa.errors import DjepaError
from djepa.lift.planner import Plan, Planner

NEEDED = ("pixels", "history", "goal")  # context frames, history controls, goal frame


@dataclass(frozen=True, eq=False)
class SearchCost:
    """The model object that a sampling search expects."""

    planner: Planner
    limit: float = 1.0  # candidates are clipped to ± limit, as in execution

    def get_cost(self, info: Mapping[str, Any], candidates: Tensor) -> Tensor:
        """(N, S, T, a) candidates -> (N, S) native costs.

        `info` holds the observations, repeated per sample as such searches do: `pixels`
        (N, S, 3, px, px, 3) uint8, `history` (N, S, 10, A), `goal` (N, S, px, px, 3) and, where
        a geometry takes it, `proprio` (N, S, 4, 4). A step may be a block of five controls,
        a = 5 A; blocks are split into controls.
        """
        frames, history, goal, proprio = self._known(info)
        controls = self.controls(candidates, history.shape[-1])
        return self.planner.search_cost(frames, history, goal, controls, proprio)

    criterion = get_cost  # the name that some searches call

    def decide(
        self, info: Mapping[str, Any], candidates: Tensor, ids: Tensor | None = None
    ) -> Plan:
        """Plan within the final population; IDs default to the positions."""
        frames, history, goal, proprio = self._known(info)
        controls = self.controls(candidates, history.shape[-1])
        if ids is None:
            count = torch.arange(controls.shape[1], device=controls.device)
            ids = count.expand(len(controls), -1).contiguous()
        return self.planner.plan(frames, history, goal, controls, ids, proprio)

    def controls(self, candidates: Tensor, width: int) -> Tensor:
        """(N, S, T, a) -> (N, S, H, A), clipped to the limit."""
        if candidates.ndim != 4 or candidates.shape[-1] % width:
            raise DjepaError(
                f"Candidates must be (N, S, T, a) with a multiple of {width}, "
                f"got {tuple(candidates.shape)}."
            )
        return (
            candidates.float().flatten(2).unflatten(2, (-1, width)).clamp(-self.limit, self.limit)
        )

    def _known(self, info: Mapping[str, Any]) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        missing = [name for name in NEEDED if name not in info]
        if missing:
            raise DjepaError(f"The search's info lacks {', '.join(missing)}: see SearchCost.")
        known = {name: torch.as_tensor(info[name])[:, 0] for name in NEEDED}
        proprio = torch.as_tensor(info["proprio"])[:, 0].float() if "proprio" in info else None
        return known["pixels"], known["history"].float(), known["goal"], proprio
