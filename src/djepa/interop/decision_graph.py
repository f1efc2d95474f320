"""A planner without the lift, as one module of tensors only, for tracing by an exporter.

It is the planner's own code, except for orders: an ONNX sort need not be stable, so ranks are
counted, which breaks ties by ID as `ranks` does.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from djepa.align.gates import Gate
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence
from djepa.evidence.fusion import Fusion, fuse
from djepa.evidence.logs import mix
from djepa.evidence.tokens import NEIGHBOURS, log_ratios
from djepa.lift.planner import Planner
from djepa.models.protocol import CONTEXT


class Known(Evidence):
    """Evidence with candidates in order of ID, and ranks by counting."""

    def ranks(self, names: Sequence[str] | None = None) -> Tensor:
        """(N, K, M) float64, as `Evidence.ranks`."""
        costs = [self.cost(name) for name in (self.names if names is None else names)]
        return torch.stack([ordinal(cost) for cost in costs], dim=-1)


class DecisionGraph(nn.Module):
    """A planner's decision in tensor operations: no checks, no loops over data."""

    def __init__(self, planner: Planner) -> None:
        super().__init__()
        alignment, report = planner.alignment, planner.alignment.report
        if alignment.gate is None or alignment.operator is None or report is None:
            raise DjepaError("Calibrate the alignment before it is exported.")
        self.names = tuple(alignment.config.geometries)
        self.nets = nn.ModuleList(_module(planner.geometries[name]) for name in self.names)
        self.operator, self.gate = alignment.operator, alignment.gate
        self.config, self.tokens, self.fusion = alignment.config, alignment.tokens, report.fusion

    def forward(
        self,
        frames: Tensor,
        history: Tensor,
        goal: Tensor,
        candidates: Tensor,
        ids: Tensor,
        proprio: Tensor,
    ) -> tuple[Tensor, ...]:
        """The outputs of `Planner.plan`, in the order of OUTPUTS."""
        ids, place = ids.sort(dim=1)
        K, back = ids.shape[1], place.sort(dim=1).indices
        candidates = candidates.gather(1, place[..., None, None].expand_as(candidates))
        known = self._known(frames, history, goal, candidates, ids, proprio)
        assert self.tokens is not None
        base = self._base(known)
        refined, _ = self.operator(self.tokens(known), base)
        i, j = (best(score)[:, None] for score in (base, refined))
        gain = advantage(self.gate, base, refined.double(), i, j)
        opened = gain > self.gate.threshold
        final = torch.where(opened[:, None], refined.double(), base)
        order = ids.gather(1, places(final).sort(dim=1).indices)
        scores = (x.gather(1, back) for x in (base, refined, final))
        costs = known.costs.gather(1, back[..., None].expand(-1, K, len(self.names)))
        return order[:, 0], order, opened, gain, costs.float(), *scores

    def _known(
        self,
        frames: Tensor,
        history: Tensor,
        goal: Tensor,
        candidates: Tensor,
        ids: Tensor,
        proprio: Tensor,
    ) -> Known:
        """Predictions of the geometries, rounded as in the planner."""
        costs, ends, goals = [], {}, {}
        both = torch.cat([frames, goal[:, None]], dim=1)
        for name, net in zip(self.names, self.nets, strict=True):
            z = _beneath(net, "encode")(both, proprio)
            futures = _beneath(net, "rollout")(z[:, :CONTEXT], history, candidates)
            costs.append(net.native_cost(futures, z[:, CONTEXT]).double())  # type: ignore[operator]
            ends[name], goals[name] = futures[:, :, -1].half(), z[:, CONTEXT].half()
        return Known((), ids, self.names, torch.stack(costs, dim=-1), ends, goals)

    def _base(self, known: Known) -> Tensor:
        """(N, K) float64 base scores of the alignment."""
        if isinstance(self.fusion, Fusion):
            return fuse(known.ranks(self.config.base), self.fusion.weights)
        costs = [known.cost(name) for name in self.fusion.names]
        costs += [neighbours(known.latents[name].float()) for name in self.fusion.density]
        parts = [log_ratios(torch.stack(costs, dim=-1))]
        if self.fusion.ranked:
            parts.append(torch.stack([ordinal(cost) for cost in costs], dim=-1))
        return mix(torch.cat(parts, dim=-1), self.fusion.weights)


def places(scores: Tensor) -> Tensor:
    """(N, K) scores of candidates by ID -> (N, K) int64 ranks: how many come before each."""
    scores = scores.double()
    mine, other = scores[:, :, None], scores[:, None]
    at = torch.arange(scores.shape[1])
    tied = (other == mine) & (at[None] < at[:, None])
    return ((other < mine) | tied).long().sum(-1)


def ordinal(scores: Tensor) -> Tensor:
    """(N, K) float64 ranks in [0, 1]."""
    return places(scores).double() / (scores.shape[1] - 1)


def best(scores: Tensor) -> Tensor:
    """(N,) positions of the best candidates."""
    return places(scores).float().argmin(1)


def neighbours(ends: Tensor) -> Tensor:
    """(N, K, D) -> (N, K) float64: `tokens.consensus`, all pairs at once."""
    far = (ends[:, :, None] - ends[:, None]).square().sum(-1).sqrt()
    return far.sort(dim=-1).values[..., 1 : 1 + NEIGHBOURS].mean(-1).double()


def advantage(gate: Gate, base: Tensor, refined: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """`Gate.advantage` for given choices `i` and `j`."""
    kept = base if gate.mode == "base_minus_refined" else refined
    gain = (kept.gather(1, i) - refined.gather(1, j))[:, 0]
    if gate.decimals is None:
        return gain
    return torch.round(gain * 10.0**gate.decimals) / 10.0**gate.decimals


def _module(geometry: Any) -> nn.Module:
    if not isinstance(geometry, nn.Module):
        raise DjepaError(f"Geometry '{geometry.name}' is not a torch module.")
    return geometry.eval()


def _beneath(net: Any, name: str) -> Any:
    """A method without `inference_mode`, which exporters cannot trace."""
    return getattr(type(net), name).__wrapped__.__get__(net)
