"""Evidence: the predictions of M geometries for the candidates of a decision, one token each.

    d_i^m = LN(ẑ_i^m - z_g^m)                 directions, within a geometry's own space   (§4.1)
    r_i^m = (rank(c_i^m) - 1) / (K - 1)       ranks, free of scale                        (§4.1)
    v_i   = [d_i^1; ...; d_i^M; r_i^1; ...; r_i^M]

Evidence has no field for outcomes, so decisions made from it cannot read any.

Legend: N starts, K candidates, M geometries, D latent (each geometry its own), F token width.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from djepa.artefacts.folder import Arrays, stacked
from djepa.bank.read import Bank
from djepa.errors import DjepaError, unknown_name
from djepa.evidence.blocks import Filled, block_size, filled, join_ids, shared
from djepa.evidence.ranks import check_pools, check_values, ordinal_ranks
from djepa.evidence.stored import StoredLatents

if TYPE_CHECKING:
    from djepa.models.predictions import Stored

RESIDENT = 2**27  # bytes of latents kept in memory; larger ones are read from file on demand


@dataclass(frozen=True, eq=False)
class Evidence:
    """Evidence of N decisions; make it with `from_arrays` or `from_bank`."""

    identities: tuple[str, ...]  # N starts, NAME or NAME@LOOK; populations must not share a NAME
    ids: Tensor  # (N, K) int64; of a bank whose pools have the same ones, a view of one row
    names: tuple[str, ...]  # M geometries, in the order of the ranks
    costs: Tensor  # (N, K, M) native costs, float32 if all are given so, else float64; see `cost`
    latents: Mapping[str, Tensor]  # name -> (N, K, D) last predicted latents, where known
    goals: Mapping[str, Tensor]  # name -> (N, D) goals in the same space, where known
    weights: Mapping[str, str] = field(default_factory=dict)  # name -> hash, where it is known

    def __len__(self) -> int:
        return len(self.identities)

    @property
    def candidates(self) -> int:
        """K, the number of candidates of a pool."""
        return self.ids.shape[1]

    @property
    def directed(self) -> tuple[str, ...]:
        """Geometries with latents and goals, for which directions can be computed."""
        return tuple(name for name in self.names if name in self.latents and name in self.goals)

    @classmethod
    def from_arrays(
        cls,
        *,
        start_ids: Iterable[str | int],
        candidate_ids: Any,
        costs: Mapping[str, Any],
        latents: Mapping[str, Any] | None = None,
        goals: Mapping[str, Any] | None = None,
    ) -> "Evidence":
        """Evidence from arrays of any model; every array is copied.

        `start_ids` N names, `candidate_ids` (N, K) int, `costs` name -> (N, K). Optional: `latents`
        name -> (N, K, D) last predicted latents, or (N, K, H, D) futures whose last step is used;
        `goals` name -> (N, D), required for directions.
        """
        ids, names = _ids(candidate_ids), start_names(start_ids)
        given = {
            name: to_tensor(f"costs of {name}", x) for name, x in _named("costs", costs).items()
        }
        if not given:
            raise DjepaError("Evidence needs the native costs of at least one geometry.")
        check_pools(ids, **{f"costs of {name}": cost for name, cost in given.items()})
        if len(names) != len(ids):
            raise DjepaError(f"{len(names)} start_ids for {len(ids)} starts.")
        ends = {n: _last(f"latents of {n}", x) for n, x in _named("latents", latents).items()}
        check_values(ids, **{f"latents of {name}": end for name, end in ends.items()})
        for name in ends:
            if name not in given:
                raise unknown_name("geometry", name, given)
        aims = _named("goals", goals)
        known = {name: _goal(name, aims[name], end) for name, end in ends.items() if name in aims}
        narrow = all(cost.dtype == torch.float32 for cost in given.values())
        wide = torch.float32 if narrow else torch.float64
        together = torch.stack([cost.to(wide) for cost in given.values()], dim=-1)
        return cls(names, ids, tuple(given), together, ends, known)

    @classmethod
    def from_bank(cls, bank: Bank, names: Sequence[str], dense: Sequence[str]) -> "Evidence":
        """Evidence from predictions stored with a bank; latents of the geometries in `dense`.

        Latents of more than RESIDENT bytes stay on disk (`StoredLatents`), and `rows` reads them.
        """
        from djepa.models.predictions import Stored

        stored = {name: Stored(bank, name) for name in names}
        for name in dense:
            if not stored[name].futures:
                raise DjepaError(
                    f"{bank.path} holds no futures of '{name}'. "
                    f"Make them: djepa predict {bank.path} --geometry {name} --futures"
                )
        costs, goals, latents = (Filled(len(bank)) for _ in range(3))
        ids, large = list[Tensor](), False
        for part in bank.parts():
            found = cls._of_part(part, stored, dense)
            size = sum(end.nbytes for end in found.latents.values()) * len(bank)
            large = size > RESIDENT * len(part)
            ids.append(shared(found.ids))
            costs.add(all=found.costs)
            goals.add(**found.goals)
            latents.add(**({} if large else found.latents))
        ends: Mapping[str, Tensor] = latents.arrays
        if large:
            used = {name: stored[name] for name in dense}
            ends = StoredLatents(used, bank.blocks, bank.config.block)
        weights = {name: of.weights for name, of in stored.items()}
        known = start_names(bank.identities), join_ids(ids), tuple(names), costs.arrays["all"]
        return cls(*known, ends, goals.arrays, weights)

    @classmethod
    def _of_part(
        cls, part: Bank, stored: "Mapping[str, Stored]", dense: Sequence[str]
    ) -> "Evidence":
        """Evidence of some blocks, one shard in memory at a time."""

        def kept(name: str, number: int) -> Arrays:
            arrays = stored[name].block(number)
            found = {"cost": arrays["cost"], "goal": arrays["goal"]}
            return {**found, "end": arrays["futures"][:, :, -1]} if name in dense else found

        read = {
            name: stacked(of.folder, (kept(name, number) for number in part.blocks), len(part))
            for name, of in stored.items()
        }
        return cls.from_arrays(
            start_ids=part.identities,
            candidate_ids=part.decisions.candidate_ids,
            costs={name: arrays["cost"] for name, arrays in read.items()},
            latents={name: read[name]["end"] for name in dense},
            goals={name: read[name]["goal"] for name in dense},
        )

    def ranks(self, names: Sequence[str] | None = None) -> Tensor:
        """Ranks r (N, K, M) float64 of the named geometries, by default of all."""
        chosen = self.names if names is None else names
        if not chosen:
            raise DjepaError("Ranks are those of at least one geometry.")

        def ranked(part: Evidence) -> Tensor:
            return torch.stack([ordinal_ranks(part.cost(n), part.ids) for n in chosen], dim=-1)

        return self.apart(ranked)

    def directions(self, name: str) -> Tensor:
        """Directions d (N, K, D) float32 of one geometry: LN(ẑ_H - z_g), no affine, eps 1e-5."""
        if name not in self.latents:
            raise unknown_name("last latents of", name, self.latents)
        if name not in self.goals:
            raise DjepaError(
                f"Directions of '{name}' need its goals: give goals= with its latents."
            )
        away = self.latents[name].float() - self.goals[name].float()[:, None]
        return F.layer_norm(away, away.shape[-1:])

    @property
    def stored(self) -> bool:
        """Whether latents are still on disk; then process a few starts at a time."""
        return isinstance(self.latents, StoredLatents)

    def split(self, starts: int) -> "Iterator[Evidence]":
        """Yield consecutive parts of `starts` starts, with latents in memory."""
        for part in torch.arange(len(self), device=self.ids.device).split(starts):
            yield self.rows(part)

    def apart(self, work: "Callable[[Evidence], Tensor]") -> Tensor:
        """Results of `work`, which sees a block of starts at a time and no latents."""
        size = block_size(self.candidates)
        if len(self) <= size:
            return work(self)
        return filled(map(work, replace(self, latents={}).split(size)), len(self))

    def rows(self, chosen: Any) -> "Evidence":
        """The evidence of the chosen starts, with latents in memory."""
        at = torch.as_tensor(chosen, device=self.ids.device)
        at = at.nonzero().flatten() if at.dtype == torch.bool else at.long()
        ends = self.latents
        if isinstance(ends, StoredLatents):
            ends = ends.rows(at)
        else:
            ends = {name: end[at] for name, end in ends.items()}
        return Evidence(
            tuple(self.identities[i] for i in at.tolist()),
            self.ids[at],
            self.names,
            self.costs[at],
            ends,
            {name: goal[at] for name, goal in self.goals.items()},
            self.weights,
        )

    def to(self, device: str | torch.device) -> "Evidence":
        """A copy on another device."""
        ends = {name: end.to(device) for name, end in self.latents.items()}
        goals = {name: goal.to(device) for name, goal in self.goals.items()}
        ids, costs = self.ids.to(device), self.costs.to(device)
        return Evidence(self.identities, ids, self.names, costs, ends, goals, self.weights)

    def columns(self, positions: Tensor) -> "Evidence":
        """Keep the candidates at (N, K') positions; ranks refer to the remaining pool."""

        def take(x: Tensor) -> Tensor:
            return x.gather(1, positions[..., None].expand(-1, -1, x.shape[-1]))

        ends = self.latents
        if isinstance(ends, StoredLatents):
            ends = ends.columns(positions)
        else:
            ends = {name: take(end) for name, end in ends.items()}
        ids = self.ids.gather(1, positions)
        check_pools(ids)
        return replace(self, ids=ids, costs=take(self.costs), latents=ends)

    def cost(self, name: str) -> Tensor:
        """(N, K) float64 native costs of one geometry."""
        if name not in self.names:
            raise unknown_name("geometry", name, self.names)
        return self.costs[..., self.names.index(name)].double()


def join(parts: Sequence[Evidence]) -> Evidence:
    """Concatenate the starts of several sets of evidence of the same geometries."""
    first = parts[0]
    if len({(part.names, tuple(part.latents)) for part in parts}) > 1:
        raise DjepaError("Evidence of different geometries cannot be joined.")
    for part in parts:
        same_weights(first.weights, part.weights)
    names = start_names(name for part in parts for name in part.identities)
    ends = {name: torch.cat([part.latents[name] for part in parts]) for name in first.latents}
    goals = {name: torch.cat([part.goals[name] for part in parts]) for name in first.goals}
    ids, costs = join_ids([part.ids for part in parts]), torch.cat([part.costs for part in parts])
    return Evidence(names, ids, first.names, costs, ends, goals, first.weights)


def same_weights(known: Mapping[str, str], given: Mapping[str, str]) -> None:
    """Raise if a geometry has another weight hash; evidence without hashes passes."""
    for name, of in given.items():
        if known.get(name, of) != of:
            raise DjepaError(
                f"Evidence of '{name}' was predicted by weights {of[:12]}, this was made with "
                f"{known[name][:12]}. Predict with those, or fit again."
            )


def start_of(identity: str) -> str:
    """The start of a row: NAME of `NAME@LOOK`."""
    return identity.split("@")[0]


def clusters(identities: Sequence[str]) -> Tensor:
    """(N,) int64 numbers from 0: rows of one start (in several looks) share a number."""
    numbers: dict[str, int] = {}
    return torch.tensor([numbers.setdefault(start_of(i), len(numbers)) for i in identities])


def disjoint(**populations: Evidence) -> None:
    """Raise if two populations share a start, even in different looks."""
    owner: dict[str, str] = {}
    for name, evidence in populations.items():
        for start in map(start_of, evidence.identities):
            if owner.setdefault(start, name) != name:
                raise DjepaError(
                    f"Start {start[:16]} is in the {owner[start]} and in the {name} set; "
                    "they must not share starts. Collect with different --split."
                )


def to_tensor(what: str, array: Any) -> Tensor:
    """A tensor copy of `array` without shared memory or gradients; `what` names it in errors."""
    if isinstance(array, Tensor):
        if array.layout != torch.strided or array.is_meta:
            raise DjepaError(f"{what} must be a dense tensor that holds numbers.")
        return array.detach().clone()
    try:
        return torch.from_numpy(np.array(array, order="C"))
    except (TypeError, ValueError, RuntimeError) as error:  # not numbers, or a ragged list
        raise DjepaError(f"{what} must be an array of numbers: {error}") from None


def _ids(array: Any) -> Tensor:
    ids = to_tensor("candidate_ids", array)
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise DjepaError(f"candidate IDs must be integers, got {ids.dtype}.")
    return ids.long()


def start_names(given: Iterable[str | int]) -> tuple[str, ...]:
    """Names of starts as strings; duplicates raise an error."""
    rows = given.tolist() if hasattr(given, "tolist") else given
    if isinstance(rows, str) or not isinstance(rows, Iterable):
        raise DjepaError(f"start_ids must be N names, one per start, not {given!r}.")
    names = []
    for name in rows:
        if isinstance(name, bool) or not isinstance(name, str | int | np.integer):
            raise DjepaError(f"start_ids must be text or integers, got {type(name).__name__}.")
        names.append(str(name))
    if len(set(names)) < len(names):
        raise DjepaError("A start ID stands twice; every start has one of its own.")
    return tuple(names)


def _named(what: str, given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise DjepaError(f'{what} must be a dictionary, such as {{"my model": array}}.')
    return given or {}


def _last(what: str, array: Any) -> Tensor:
    """(N, K, D) last latents, from latents or from the last step of (N, K, H, D) futures."""
    steps = array if hasattr(array, "ndim") else to_tensor(what, array)
    if steps.ndim not in (3, 4):
        raise DjepaError(f"{what} must be (N, K, D) or (N, K, H, D), got {tuple(steps.shape)}.")
    return _latent(what, steps if steps.ndim == 3 else steps[:, :, -1])


def _goal(name: str, array: Any, end: Tensor) -> Tensor:
    goal = _latent(f"goals of {name}", array)
    if goal.shape != (len(end), end.shape[-1]):
        raise DjepaError(f"latents of {name} are {tuple(end.shape)}, goals {tuple(goal.shape)}.")
    if not goal.isfinite().all():
        raise DjepaError(f"A goal of {name} holds a NaN or an infinity.")
    return goal


def _latent(what: str, array: Any) -> Tensor:
    """A latent array; float64 becomes float32, as directions need, and overflow becomes inf."""
    latent = to_tensor(what, array)
    return latent.float() if latent.dtype == torch.float64 else latent
