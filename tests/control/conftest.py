"""Two tiny models with random weights, and an alignment of them, found by name."""

from pathlib import Path

import numpy as np
import pytest
import torch

from djepa.align.fit import Alignment
from djepa.align.presets import mixed
from djepa.evidence.evidence import Evidence
from djepa.models.lewm import LeWM
from djepa.models.tdjepa import TDJEPA
from djepa.models.weights import save_geometry, weights_hash
from tiny import TINY


def save_tiny(folder: Path, kind: type[LeWM], seed: int, world: str = "push") -> Path:
    torch.manual_seed(seed)
    model = kind(TINY).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    model.action_std.fill_(0.3)
    save_geometry(model, folder, {"recipe": {"world": world}})
    return folder


def fit_alignment(hashes: dict[str, str], folder: Path) -> Path:
    """A likelihood mixture of both costs, fitted on numbers drawn at random."""
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
    alignment.weights = hashes
    alignment.save(folder)
    return folder


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with tiny-lewm, tiny-tdjepa and tiny-arm; an alignment lies beside it."""
    root = tmp_path_factory.mktemp("control") / "models"
    save_tiny(root / "tiny-lewm", LeWM, 0)
    save_tiny(root / "tiny-tdjepa", TDJEPA, 1)
    save_tiny(root / "tiny-arm", LeWM, 2, "reacher")
    hashes = {name: weights_hash(root / f"tiny-{name}") for name in ("lewm", "tdjepa")}
    fit_alignment(hashes, root.parent / "alignment")
    return root


@pytest.fixture
def models(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, its weights going by name."""
    monkeypatch.setenv("DJEPA_WEIGHTS", str(home))
    return home
