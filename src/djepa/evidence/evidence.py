"""Evidence: what geometries believe of the candidates of one decision, as one token each.

    d_i^m = LN(ẑ_i^m - z_g^m)                 directions, within a geometry's own space   (§4.1)
    r_i^m = (rank(c_i^m) - 1) / (K - 1)       preference, free of scale                   (§4.1)
    v_i   = [d_i^1; ...; d_i^M; r_i^1; ...; r_i^M]

Nothing here has seen an outcome; there is no field in which one could be stored.

Legend: N starts, K candidates, M geometries, D latent (each geometry its own), F token width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from djepa.bank.read import Bank
from djepa.errors import DjepaError, unknown_name
from djepa.evidence.ranks import check_pools, check_values, ordinal_ranks


@dataclass(frozen=True, eq=False)
class Evidence:
    """Evidence of N decisions; make it with `from_arrays` or `from_bank`."""

    identities: tuple[str, ...]  # N names of starts; no two populations may share one
    ids: Tensor  # (N, K) int64
    names: tuple[str, ...]  # M geometries, in the order of the ranks
    costs: Tensor  # (N, K, M) float64 native costs
    terminals: Mapping[str, Tensor]  # name -> (N, K, D) last predicted latents, where known
    goals: Mapping[str, Tensor]  # name -> (N, D)
    weights: Mapping[str, str] = field(default_factory=dict)  # name -> hash, where it is known

    def __len__(self) -> int:
        return len(self.identities)

    @property
    def candidates(self) -> int:
        """K."""
        return self.ids.shape[1]

    @classmethod
    def from_arrays(
        cls,
        identities: Sequence[str],
        ids: Any,
        costs: Mapping[str, Any],
        terminals: Mapping[str, Any] | None = None,
        goals: Mapping[str, Any] | None = None,
    ) -> "Evidence":
        """From any model's numbers.

        `ids` (N, K) int, `costs` name -> (N, K); for geometries whose directions are to be used,
        `terminals` name -> (N, K, D) last predicted latents and `goals` name -> (N, D).
        """
        pools = _tensor(ids)
        given = {name: _tensor(cost) for name, cost in costs.items()}
        if not given:
            raise DjepaError("Evidence needs the native costs of at least one geometry.")
        check_pools(pools, **{f"costs of {name}": cost for name, cost in given.items()})
        if len(identities) != len(pools):
            raise DjepaError(f"{len(identities)} identities for {len(pools)} starts.")
        if len(set(identities)) < len(identities):
            raise DjepaError("An identity stands twice; every start has one of its own.")
        ends = {name: _latent(terminal) for name, terminal in (terminals or {}).items()}
        check_values(pools, **{f"terminals of {name}": end for name, end in ends.items()})
        aims = {name: _goal(goals, name, end) for name, end in ends.items()}
        for name in ends:
            if name not in given:
                raise unknown_name("geometry", name, given)
        stacked = torch.stack([cost.double() for cost in given.values()], dim=-1)
        return cls(tuple(identities), pools.long(), tuple(given), stacked, ends, aims)

    @classmethod
    def from_bank(cls, bank: Bank, names: Sequence[str], dense: Sequence[str]) -> "Evidence":
        """From predictions stored beside a bank; `dense` names those whose directions are used."""
        from djepa.models.predictions import read_predictions

        held = {name: read_predictions(bank, name) for name in names}
        terminals, goals = {}, {}
        for name in dense:
            futures = held[name].futures
            if futures is None:
                raise DjepaError(
                    f"{bank.path} holds no futures of '{name}'. "
                    f"Make them: djepa predict {bank.path} --geometry {name} --futures"
                )
            terminals[name], goals[name] = futures[:, :, -1], held[name].goal
        identities = [bytes(row).hex() for row in bank.decisions.identities]
        costs = {name: predictions.cost for name, predictions in held.items()}
        found = cls.from_arrays(identities, bank.decisions.candidate_ids, costs, terminals, goals)
        return replace(found, weights={name: of.weights for name, of in held.items()})

    def ranks(self, names: Sequence[str] | None = None) -> Tensor:
        """Ranks r (N, K, M) float64 of these geometries, or of all."""
        chosen = [self._index(name) for name in (self.names if names is None else names)]
        if not chosen:
            raise DjepaError("Ranks are those of at least one geometry.")
        return torch.stack([ordinal_ranks(self.costs[..., m], self.ids) for m in chosen], dim=-1)

    def directions(self, name: str) -> Tensor:
        """Directions d (N, K, D) float32 of one geometry: LN(ẑ_H - z_g), no affine, eps 1e-5."""
        if name not in self.terminals:
            raise unknown_name("terminal latents of", name, self.terminals)
        away = self.terminals[name].float() - self.goals[name].float()[:, None]
        return F.layer_norm(away, away.shape[-1:])

    def rows(self, chosen: Any) -> "Evidence":
        """The evidence of some starts."""
        at = torch.as_tensor(chosen, device=self.ids.device)
        at = at.nonzero().flatten() if at.dtype == torch.bool else at.long()
        return Evidence(
            tuple(self.identities[i] for i in at.tolist()),
            self.ids[at],
            self.names,
            self.costs[at],
            {name: end[at] for name, end in self.terminals.items()},
            {name: goal[at] for name, goal in self.goals.items()},
            self.weights,
        )

    def to(self, device: str | torch.device) -> "Evidence":
        """The same on another device."""
        ends = {name: end.to(device) for name, end in self.terminals.items()}
        goals = {name: goal.to(device) for name, goal in self.goals.items()}
        ids, costs = self.ids.to(device), self.costs.to(device)
        return Evidence(self.identities, ids, self.names, costs, ends, goals, self.weights)

    def columns(self, positions: Tensor) -> "Evidence":
        """Smaller pools: (N, K') positions to keep; ranks are those within what is left."""

        def take(x: Tensor) -> Tensor:
            return x.gather(1, positions[..., None].expand(-1, -1, x.shape[-1]))

        ends = {name: take(end) for name, end in self.terminals.items()}
        ids = self.ids.gather(1, positions)
        check_pools(ids)
        return replace(self, ids=ids, costs=take(self.costs), terminals=ends)

    def _index(self, name: str) -> int:
        if name not in self.names:
            raise unknown_name("geometry", name, self.names)
        return self.names.index(name)


def join(parts: Sequence[Evidence]) -> Evidence:
    """All starts of several sets of evidence of the same geometries, one after the other."""
    first = parts[0]
    if len({(part.names, tuple(part.terminals)) for part in parts}) > 1:
        raise DjepaError("Evidence of different geometries cannot be joined.")
    for part in parts:
        same_weights(first.weights, part.weights)
    names = tuple(name for part in parts for name in part.identities)
    if len(set(names)) < len(names):
        raise DjepaError("An identity stands twice; every start has one of its own.")
    ends = {name: torch.cat([part.terminals[name] for part in parts]) for name in first.terminals}
    goals = {name: torch.cat([part.goals[name] for part in parts]) for name in first.goals}
    ids, costs = (torch.cat([getattr(part, what) for part in parts]) for what in ("ids", "costs"))
    return Evidence(names, ids, first.names, costs, ends, goals, first.weights)


def same_weights(known: Mapping[str, str], given: Mapping[str, str]) -> None:
    """Refuse evidence of other weights under the same name; arrays have none and pass."""
    for name, of in given.items():
        if known.get(name, of) != of:
            raise DjepaError(
                f"Evidence of '{name}' was predicted by weights {of[:12]}, this was made with "
                f"{known[name][:12]}. Predict with those, or fit again."
            )


def clusters(identities: Sequence[str]) -> Tensor:
    """(N,) int64: rows that are one start seen in several looks, `NAME@LOOK`, share a number."""
    numbers: dict[str, int] = {}
    return torch.tensor([numbers.setdefault(i.split("@")[0], len(numbers)) for i in identities])


def disjoint(**populations: Evidence) -> None:
    """Refuse populations that share a start."""
    owner: dict[str, str] = {}
    for name, evidence in populations.items():
        for identity in evidence.identities:
            if owner.setdefault(identity, name) != name:
                raise DjepaError(
                    f"Start {identity[:16]} is in the {owner[identity]} and in the {name} set; "
                    "they must not share starts. Collect with different --split."
                )


def _goal(goals: Mapping[str, Any] | None, name: str, end: Tensor) -> Tensor:
    if goals is None or name not in goals:
        raise DjepaError(f"Terminal latents of '{name}' need its goals too.")
    goal = _latent(goals[name])
    if end.ndim != 3 or goal.shape != (len(end), end.shape[-1]):
        raise DjepaError(f"terminals of {name} are {tuple(end.shape)}, goals {tuple(goal.shape)}.")
    if not goal.isfinite().all():
        raise DjepaError(f"A goal of {name} holds a NaN or an infinity.")
    return goal


def _tensor(array: Any) -> Tensor:
    if isinstance(array, Tensor):
        return array
    try:
        return torch.from_numpy(np.require(array, requirements=("C", "W")))
    except (TypeError, ValueError) as error:  # no numbers; rows of different lengths
        raise DjepaError(f"Evidence is made of numbers: {error}") from None


def _latent(array: Any) -> Tensor:
    """Directions are computed in float32: a number too large for it must show as an infinity."""
    latent = _tensor(array)
    return latent.float() if latent.dtype == torch.float64 else latent
