"""All compared methods: fitted on the same starts, deciding from the same evidence.

Controls are among them: the density of a pool made around a hidden solution reveals that solution
(docs/pools.md), so a gain counts only if it exceeds what density alone achieves.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from djepa.align.compose import Pair, calibrate_composition, compose
from djepa.align.fit import AlignConfig, Alignment, Decision
from djepa.align.fusion import fit_fusion
from djepa.align.gates import Gate
from djepa.align.outcomes import Outcomes
from djepa.align.plastic import Patch, apply_patch
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence, join
from djepa.evidence.fusion import check_convex, fuse
from djepa.evidence.ranks import best, order, ordinal_ranks
from djepa.evidence.tokens import consensus
from djepa.models.lewm import LeWM
from djepa.rollout.engine import Engine, LocalEngine
from djepa.threads import threads_for

HERE = LocalEngine(1)
PLASTIC, TUNED = "tdjepa-plastic", "tdjepa-tuned"  # TD-JEPA with the end of its predictor replaced


class Choice(NamedTuple):
    """The choices of one method in N pools."""

    position: Tensor  # (N,) positions of the chosen candidates
    score: Tensor  # (N, K) float64, lower is better
    base: Tensor | None = None  # (N, K) base score of an alignment
    opened: Tensor | None = None  # (N,) bool: its gate opened
    advantage: Tensor | None = None  # (N,) advantage that its gate compares with the threshold
    threshold: float | None = None


Chooser = Callable[[Evidence], Choice]  # from evidence alone
Dense = str | tuple[str, ...] | None  # geometries whose pool density is ranked: one, several, none


@dataclass(frozen=True, eq=False)
class Population:
    """Evidence of some starts, and their outcomes."""

    evidence: Evidence
    outcomes: Outcomes

    def rows(self, chosen: Tensor) -> "Population":
        """The chosen starts."""
        return Population(self.evidence.rows(chosen), self.outcomes.rows(chosen))

    def to(self, device: str | torch.device) -> "Population":
        """A copy on another device."""
        return Population(self.evidence.to(device), self.outcomes.to(device))

    @classmethod
    def join(cls, parts: Sequence["Population"]) -> "Population":
        """Concatenate the starts of several populations."""
        outcomes = [part.outcomes for part in parts]
        costs = [of.cost for of in outcomes if of.cost is not None]
        success, observed = (
            torch.cat([getattr(of, what) for of in outcomes]) for what in ("success", "observed")
        )
        evidence = join([part.evidence for part in parts])
        cost = torch.cat(costs) if len(costs) == len(outcomes) else None
        return cls(evidence, Outcomes(evidence.identities, success, observed, cost))


def lowest(score: Tensor, ids: Tensor) -> Choice:
    """Choose the candidate with the lowest score, ties to the smaller ID."""
    return Choice(best(score, ids), score.double())


def native(name: str) -> Chooser:
    """A chooser of the lowest native cost of one geometry."""
    return lambda e: lowest(e.cost(name), e.ids)


def densest(name: str) -> Chooser:
    """A chooser of the densest predicted end (consensus); it uses neither goal nor outcome."""
    return lambda e: lowest(consensus(e, name), e.ids)


@dataclass(frozen=True)
class Mixture:
    """Calibrated convex rank fusion; each geometry of `dense` adds its consensus rank."""

    names: tuple[str, ...]
    weights: tuple[float, ...]
    dense: Dense = None

    def __post_init__(self) -> None:
        count = len(self.names) + len(self._densities)
        if self.weights and len(self.weights) != count:
            raise DjepaError(f"{len(self.weights)} weights for {count} ranks of a mixture.")
        if self.weights:  # empty before fitting
            check_convex(self.weights)

    @property
    def _densities(self) -> tuple[str, ...]:
        return (self.dense,) if isinstance(self.dense, str) else self.dense or ()

    @classmethod
    def fit(
        cls, names: tuple[str, ...], fit: Population, dense: Dense = None, graded: bool = False
    ) -> "Mixture":
        """Fit weights for the most successes on fitting starts; with `graded`, most quality."""
        inputs, of = cls(names, (), dense).inputs(fit.evidence), fit.outcomes
        quality = of.quality if graded else None
        found = fit_fusion(
            inputs, fit.evidence.ids, of.success, observed=of.observed, quality=quality
        )
        return cls(names, found.weights, dense)

    def inputs(self, e: Evidence) -> Tensor:
        """(N, K, M) ranks."""
        each = (consensus(e, name) for name in self._densities)
        density = [ordinal_ranks(of, e.ids)[..., None] for of in each]
        return torch.cat([e.ranks(self.names), *density], dim=-1)

    def __call__(self, e: Evidence) -> Choice:
        """Choose the lowest mixture of ranks."""
        return lowest(fuse(self.inputs(e), self.weights), e.ids)


def aligned(alignment: Alignment) -> Chooser:
    """A chooser that follows a calibrated alignment."""

    def choose(e: Evidence) -> Choice:
        d, gate = alignment.decide(e), alignment.gate
        assert gate is not None  # `decide` requires a gate
        gain = gate.advantage(d.base, d.refined, e.ids)
        return Choice(d.position, d.final, d.base, d.opened, gain, gate.threshold)

    return choose


def gated(gate: Gate, base: Tensor, refined: Tensor, ids: Tensor) -> Choice:
    """The choice of a gate between two (N, K) scores."""
    known = (base, refined, ids)
    gain, opened = gate.advantage(*known), gate.opens(*known)
    return Choice(gate.choose(*known), gate.final(*known), base, opened, gain, gate.threshold)


def fit_aligned(config: AlignConfig, fit: Population, calibration: Population) -> Alignment:
    """A fitted and calibrated alignment; on a CPU one thread computes it, for equal rounding."""
    with threads_for(fit.evidence.ids.device.type):
        alignment = Alignment(config).fit(fit.evidence, fit.outcomes)
        return alignment.calibrate(calibration.evidence, calibration.outcomes)


def fit_each(
    configs: Iterable[tuple[str, AlignConfig]],
    fit: Population,
    calibration: Population,
    engine: Engine = HERE,
) -> Iterator[tuple[str, Alignment]]:
    """Fit one alignment per engine worker; yield (name, alignment) as they finish."""
    names, device = list[str](), fit.evidence.ids.device.type

    def items() -> Iterator[tuple[int, AlignConfig]]:
        for name, config in configs:
            names.append(name)
            yield len(names) - 1, config

    for n, found in engine.map(_fit_item, items(), (fit, calibration), device):
        yield names[n], found.that_saw(fit.evidence, calibration.evidence)


def _fit_item(config: AlignConfig, parts: tuple[Population, Population]) -> Alignment:
    """A fitted alignment without checkpoints and evidence, to be sent between processes."""
    return fit_aligned(config, *parts).that_saw(None, None)


def with_plastic(e: Evidence) -> Evidence:
    """The evidence with TD-JEPA's latents, costs and ranks replaced by the adapted TD-JEPA's."""
    costs = e.costs.clone()
    costs[..., e.names.index("tdjepa")] = e.cost(PLASTIC)
    ends = {**e.latents, "tdjepa": e.latents[PLASTIC]}
    return replace(e, costs=costs, latents=ends)


def pair_of(alignment: Alignment, e: Evidence) -> Pair:
    """The relational decision and the operator's scores on the adapted predictor's futures."""
    d = alignment.decide(e)
    _, proposals = alignment.scores(with_plastic(e))
    return Pair(e.ids, d.base, d.refined, d.position, proposals)


def decide_composed(alignment: Alignment, threshold: float, e: Evidence) -> Decision:
    """Calibrated composition (align/compose.py) as a decision.

    `base` is the default g, `refined` are the proposals, `opened` marks where one replaced i_R.
    """
    pair = pair_of(alignment, e)
    found, default = compose(pair, threshold), pair.default()
    final = torch.where(found.opened[:, None], pair.proposals.double(), default)
    ids = e.ids.gather(1, order(final, e.ids))
    return Decision(found.choice, ids, default, pair.proposals, final, found.opened, found.position)


def composed(alignment: Alignment, threshold: float) -> Chooser:
    """A chooser by calibrated composition of an alignment and the adapted predictor."""

    def choose(e: Evidence) -> Choice:
        d = decide_composed(alignment, threshold, e)
        return Choice(d.position, d.final, d.base, d.opened)

    return choose


@dataclass(frozen=True, eq=False)
class Composition:
    """The adapted predictor and threshold that a relational alignment is composed with."""

    patch: Patch
    threshold: float  # τ_P
    hash: str  # of the patch folder; evidence of the adapted predictor must carry the same

    def __post_init__(self) -> None:
        Gate(self.threshold)  # refuses what is not finite
        if self.patch.geometry != "tdjepa":
            raise DjepaError(f"Composition adapts tdjepa; the patch is of {self.patch.geometry}.")

    def adapted(self, model: object) -> LeWM:
        """The model with the patch applied, named as its evidence is."""
        if not isinstance(model, LeWM):
            raise DjepaError("Composition adapts a TD-JEPA, and these weights are of another kind.")
        found = apply_patch(model, self.patch)
        found.name = PLASTIC
        return found


def fit_composed(alignment: Alignment, calibration: Population) -> float:
    """Calibrate τ_P of the composition."""
    return calibrate_composition(pair_of(alignment, calibration.evidence), calibration.outcomes)


def successes(choosers: Mapping[str, Chooser], test: Population) -> dict[str, Tensor]:
    """Method -> (N,) bool: whether what it chose succeeded."""
    found = {}
    for name, choose in choosers.items():
        at = choose(test.evidence).position[:, None]
        found[name] = test.outcomes.success.gather(1, at)[:, 0]
    return found
