"""Every method in one code path: fitted on the same starts, deciding from the same evidence.

The sceptic's controls stand beside the alignment: a pool made around a hidden solution points at it
(docs/pools.md), so a gain counts only over what density alone finds.

Legend: N starts, K candidates.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from djepa.align.fit import AlignConfig, Alignment
from djepa.align.labels import Labels
from djepa.align.presets import FOUR, PAIR, PRESETS
from djepa.evidence.evidence import Evidence
from djepa.evidence.fusion import fit_fusion, fuse
from djepa.evidence.ranks import best, ordinal_ranks
from djepa.evidence.tokens import consensus

Chooser = Callable[[Evidence], Tensor]  # (N,) positions, from evidence alone


@dataclass(frozen=True, eq=False)
class Population:
    """Evidence of some starts, and what execution showed of them."""

    evidence: Evidence
    labels: Labels


def native(name: str) -> Chooser:
    """The lowest native cost of one geometry."""
    return lambda e: best(e.costs[..., e.names.index(name)], e.ids)


def densest(name: str) -> Chooser:
    """Consensus: the predicted end with the nearest neighbours. No goal, no label."""
    return lambda e: best(consensus(e, name), e.ids)


def fused(names: tuple[str, ...], fit: Population, dense: str | None = None) -> Chooser:
    """Calibrated convex rank fusion; with `dense`, the consensus rank is one more voice."""

    def ranks(e: Evidence) -> Tensor:
        voices = e.ranks(names)
        if dense is None:
            return voices
        crowd = ordinal_ranks(consensus(e, dense), e.ids)
        return torch.cat([voices, crowd[..., None]], dim=-1)

    found = fit_fusion(
        ranks(fit.evidence),
        fit.evidence.ids,
        fit.labels.success,
        parts=20 if len(names) + (dense is not None) > 2 else None,
        observed=fit.labels.observed,
    )
    return lambda e: best(fuse(ranks(e), found.weights), e.ids)


def aligned(config: AlignConfig, fit: Population, calibration: Population) -> Chooser:
    """A fitted and calibrated alignment."""
    alignment = Alignment(config).fit(fit.evidence, fit.labels)
    alignment.calibrate(calibration.evidence, calibration.labels)
    return lambda e: alignment.decide(e).position


def choosers(
    fit: Population, calibration: Population, say: Callable[[str], None]
) -> dict[str, Chooser]:
    """All methods, by the names of the tables."""
    found: dict[str, Chooser] = {f"native {name}": native(name) for name in FOUR}
    found |= {f"consensus {name}": densest(name) for name in PAIR}
    say("fusions")
    found["fusion, two"] = fused(PAIR, fit)
    found["fusion, four"] = fused(FOUR, fit)
    found["consensus + fusion, two"] = fused(PAIR, fit, dense="tdjepa")
    found["consensus + fusion, four"] = fused(FOUR, fit, dense="tdjepa")
    for name, config in PRESETS.items():
        say(name)
        found[f"aligned: {name}"] = aligned(config, fit, calibration)
    return found
