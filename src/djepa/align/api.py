"""`djepa.fit` and `djepa.load`: an alignment in one call."""

from dataclasses import replace
from pathlib import Path

from djepa.align.fit import AlignConfig, Alignment, Given
from djepa.align.presets import FOR_EVIDENCE
from djepa.align.store import load_alignment
from djepa.artefacts.store import locate
from djepa.errors import DjepaError, unknown_name
from djepa.evidence.evidence import Evidence


def fit(
    evidence: Evidence,
    outcomes: Given,
    *,
    preset: str = "best",
    config: AlignConfig | None = None,
    seed: int | None = None,
) -> Alignment:
    """Fit an alignment; calibrate it on other starts with `fit(...).calibrate(...)`.

    `outcomes` are `Outcomes` or an (N, K) array of successes. The configuration follows from the
    evidence: `best` is the likelihood mixture under a careful gate, `published` the paper's
    relational operator. A `config` replaces the preset.
    """
    if not isinstance(evidence, Evidence):
        raise DjepaError("Evidence comes first: make it with djepa.Evidence.from_arrays(...).")
    if preset not in FOR_EVIDENCE:
        raise unknown_name("preset", preset, FOR_EVIDENCE)
    chosen = FOR_EVIDENCE[preset](evidence) if config is None else config
    return Alignment(chosen if seed is None else replace(chosen, seed=seed)).fit(evidence, outcomes)


def load(folder: str | Path) -> Alignment:
    """Load a calibrated alignment that `alignment.save(folder)` or `djepa fit` wrote."""
    return load_alignment(locate(folder))
