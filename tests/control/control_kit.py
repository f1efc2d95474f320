"""An alignment of any geometries, fitted on numbers drawn at random."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from djepa.align.fit import Alignment
from djepa.align.presets import mixed
from djepa.evidence.evidence import Evidence


def fit_alignment(hashes: Mapping[str, str], folder: Path) -> Path:
    """Geometry -> hash of its weights; a likelihood mixture of their costs."""
    random = np.random.default_rng(0)
    costs = {name: random.uniform(0.1, 1.0, (24, 7)) for name in hashes}
    success = costs["lewm"] + 0.5 * costs["tdjepa"] < 0.6
    ids = np.tile(np.arange(7), (24, 1))
    parts = [
        (
            Evidence.from_arrays(
                start_ids=[f"{i}" for i in rows],
                candidate_ids=ids[rows],
                costs={name: of[rows] for name, of in costs.items()},
            ),
            success[rows],
        )
        for rows in (range(16), range(16, 24))
    ]
    alignment = Alignment(mixed(tuple(hashes), (), "log")).fit(*parts[0]).calibrate(*parts[1])
    alignment.weights = dict(hashes)
    alignment.save(folder)
    return folder
