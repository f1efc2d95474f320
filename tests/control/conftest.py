"""Two tiny models with random weights, and an alignment of them, found by name."""

from pathlib import Path

import pytest
import torch
from control_kit import fit_alignment

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
