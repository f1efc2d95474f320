"""The Reacher variant: a relational alignment and a temporal transport head learned with it.

    s = b + δ,  b = α r^L + (1 - α) r^T        the gated s chooses the executed candidate
    z̃ = ẑ^T + β (ẑ^L - ẑ^T) / ‖ẑ^L - ẑ^T‖      |β| ≤ ρ (Eq. 3); not used by the choice

Fitting: temporal_fit.py. On disk: an alignment (store.py), with the head in transport.safetensors.

Legend: N starts, K candidates, B blocks of five controls, D latent; L is LeWM, T is TD-JEPA.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from safetensors.torch import save
from torch import Tensor

from djepa.align.fit import AlignConfig, Alignment, Decision
from djepa.align.store import ALIGNMENT, load_alignment, save_alignment
from djepa.artefacts.folder import Folder
from djepa.artefacts.records import typed
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence
from djepa.evidence.ranks import check_values, ordinal_ranks
from djepa.lift.head import filled
from djepa.lift.transport import TemporalTransport

# (N, K, B, D) futures, (N, D) goals -> (N, K) cost, such as `TDJEPA.native_cost`
Criterion = Callable[[Tensor, Tensor], Tensor]
REACHER = AlignConfig(updates=1500, policy="conservative", decimals=8)
HEAD = "transport.safetensors"
HALF = 2e-3  # tolerance: evidence, trajectories or both may be rounded to half precision


@dataclass(frozen=True)
class TemporalConfig:
    """Settings of the variant; the defaults are the published ones. `align.loss` is not used."""

    align: AlignConfig = REACHER  # its `base` names L, then T
    hidden: int = 32
    radius: float = 0.1  # ρ
    temperature: float = 0.1  # of scores and of the criterion, which keeps its own unit
    pairs: float = 0.25
    preserve: float = 0.02

    def __post_init__(self) -> None:
        a = self.align
        if len(a.base) != 2 or a.mixture != "ranks" or a.operator.dropout or a.grid:
            raise DjepaError("Transport takes ranks of two geometries, no dropout and no grid.")
        if min(self.hidden, self.radius, self.temperature) <= 0:
            raise DjepaError("hidden, radius and temperature must be above 0.")


@dataclass(frozen=True, eq=False)
class Trajectories:
    """The futures of both models, every step, float16 or float32."""

    towards: Tensor  # (N, K, B, D) futures of L
    moved: Tensor  # (N, K, B, D) futures of T
    goal: Tensor  # (N, D) goals of T

    def rows(self, at: Tensor) -> "Trajectories":
        """The trajectories of the starts at (n,) indices."""
        return Trajectories(*(x[at] for x in vars(self).values()))

    def columns(self, positions: Tensor) -> "Trajectories":
        """The trajectories of the candidates at (N, K') positions, as for evidence."""
        towards, moved = _take(self.towards, positions), _take(self.moved, positions)
        return Trajectories(towards, moved, self.goal)

    def to(self, where: str | torch.device | torch.dtype) -> "Trajectories":
        """A copy on another device or with another dtype."""
        return Trajectories(*(x.to(where) for x in vars(self).values()))

    def check(self, evidence: Evidence, L: str, T: str) -> None:
        """Raise unless last latents and goals equal those of the evidence, within HALF."""
        shapes, none = [tuple(x.shape) for x in vars(self).values()], torch.empty(0)
        N, K, B, D = shapes[1] if len(shapes[1]) == 4 else (0, 0, 0, 0)
        if not B or shapes != [(N, K, B, D), (N, K, B, D), (N, D)]:
            raise DjepaError(f"Futures of {L} and {T} and goal have shapes {shapes}.")
        stored = [evidence.latents.get(name, none) for name in (L, T)]
        stored.append(evidence.goals.get(T, none))
        ours = (self.towards[:, :, -1], self.moved[:, :, -1], self.goal)
        for mine, theirs in zip(ours, stored, strict=True):
            same = mine.shape == theirs.shape
            if not same or not torch.allclose(mine.float(), theirs.float(), HALF, HALF):
                raise DjepaError(
                    "Trajectories do not end where the evidence does: they must be of the same "
                    f"starts and candidates in the same order, futures of {L} and of {T}."
                )


class Checkpoint(NamedTuple):
    """The operator after `update` updates, evaluated on calibration starts."""

    update: int
    loss: float | None  # of the batch of this update; None before the first
    successes: int  # starts that the gated choice solves
    cost: float  # mean task cost of the gated choice
    threshold: float  # of the gate


class Transported(NamedTuple):
    """Transported futures of T, and the criterion before and after transport."""

    futures: Tensor  # (N, K, B, D) float32
    coefficients: Tensor  # (N, K, B) β
    before: Tensor  # (N, K) criterion on futures as predicted
    after: Tensor  # (N, K) criterion on transported futures
    ranks: Tensor  # (N, K) float64 in [0, 1], of the final score


@dataclass(frozen=True, eq=False)
class TemporalAlignment:
    """A calibrated alignment with its transport head, from `fit_temporal` or `load_temporal`."""

    config: TemporalConfig
    relational: Alignment
    head: TemporalTransport
    history: tuple[Checkpoint, ...]

    def decide(self, evidence: Evidence) -> Decision:
        """Decide by the gated relational score; transport does not affect the choice."""
        return self.relational.decide(evidence)

    @torch.no_grad()
    def transport(
        self, evidence: Evidence, trajectories: Trajectories, criterion: Criterion
    ) -> Transported:
        """Transport the futures of T (Eq. 3); like `decide`, this reads no outcome."""
        c, names = self.config, self.config.align.base
        trajectories.check(evidence, *names)
        by_id = evidence.ids.argsort(dim=1)  # so that sums round alike for any order
        known, paths = evidence.columns(by_id), trajectories.columns(by_id)
        decision, head = self.decide(known), self.head.to(known.ids.device)
        final = ordinal_ranks(decision.final, known.ids)[..., None]
        ranks = torch.cat([known.ranks(names), final], dim=-1)
        parts = []
        for at in torch.arange(len(known)).split(c.align.batch):
            part = paths.rows(at).to(torch.float32)  # float16 would lose small β
            futures, beta = head(part.moved, part.towards, ranks[at], decision.opened[at])
            costs = [criterion(x, part.goal) for x in (part.moved, futures)]
            parts.append((futures, beta, *costs, ranks[at][..., 2]))
        moved = Transported(*(torch.cat(x) for x in zip(*parts, strict=True)))
        check_values(known.ids, coefficients=moved.coefficients, criterion=moved.after)
        return Transported(*(_take(x, by_id.argsort(dim=1)) for x in moved))


def coefficient_table(coefficients: Tensor, ranks: Tensor, bins: int = 9) -> Tensor:
    """(N, K, B) β, (N, K) ranks in [0, 1] -> (bins, B) float64 mean signed β, best ranks first.

    With 63 candidates, each of nine bins has seven ranks. An empty bin is NaN.
    """
    K = ranks.shape[-1]
    if coefficients.ndim != 3 or coefficients.shape[:2] != ranks.shape or not 1 <= bins <= K:
        raise DjepaError("A table needs β (N, K, B), ranks (N, K) and at most K bins.")
    place = (ranks.double() * (K - 1)).round().long()
    inside = F.one_hot((place * bins // K).flatten(), bins).double()  # (N K, bins)
    return inside.T @ coefficients.double().flatten(0, 1) / inside.sum(0)[:, None]


def displacement(coefficients: Tensor, radius: float = 0.1) -> dict[str, Any]:
    """(N, K, B) β -> mean and largest |β|, share above 90 % of ρ, mean sign of every step."""
    size = coefficients.double().abs()
    return {
        "mean": float(size.mean()),
        "largest": float(size.max()),
        "at_bound": float((size > 0.9 * radius).double().mean()),
        "signs": coefficients.double().sign().mean((0, 1)).tolist(),  # 1 all towards L, -1 away
    }


def save_temporal(temporal: TemporalAlignment, folder: Path, card: dict[str, Any]) -> None:
    """Write the alignment with its head; `load_alignment` reads it too, without the head."""
    data = bytes(save(temporal.head.state_dict()))
    settings = {k: v for k, v in asdict(temporal.config).items() if k != "align"}
    history = [checkpoint._asdict() for checkpoint in temporal.history]
    card = {**card, "transport": {"config": settings, "history": history}}
    save_alignment(temporal.relational, folder, card, {HEAD: data})


def load_temporal(folder: Path) -> TemporalAlignment:
    """Load a calibrated temporal alignment; anything missing or altered is an error."""
    relational, stored = load_alignment(folder), Folder(folder, ALIGNMENT)
    own = stored.record("card.json").get("transport")
    if own is None:
        raise DjepaError(f"{folder} holds an alignment without transport.")
    said = typed(stored.path / "card.json", own, TransportRecord)
    config = TemporalConfig(relational.config, **asdict(said.config))
    head = filled(stored, HEAD, config.hidden, config.radius)
    history = tuple(Checkpoint(**asdict(checkpoint)) for checkpoint in said.history)
    return TemporalAlignment(config, relational, head, history)


@dataclass(frozen=True)
class SettingsRecord:
    """The fields of `TemporalConfig` except `align`, which is in `config.json`."""

    hidden: int
    radius: float
    temperature: float
    pairs: float
    preserve: float


@dataclass(frozen=True)
class CheckpointRecord:
    """A `Checkpoint`, as stored."""

    update: int
    loss: float | None
    successes: int
    cost: float
    threshold: float


@dataclass(frozen=True)
class TransportRecord:
    """The settings and the history of the head, as stored."""

    config: SettingsRecord
    history: tuple[CheckpointRecord, ...]


def _take(x: Tensor, positions: Tensor) -> Tensor:
    """(N, K, ...) values and (N, K') positions -> (N, K', ...)."""
    return x.take_along_dim(positions.view(*positions.shape, *[1] * (x.ndim - 2)), dim=1)
