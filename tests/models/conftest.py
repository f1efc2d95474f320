"""Trainings small enough for tests."""

from pathlib import Path

import pytest

from djepa.models import dinowm, episodes, jepawm
from djepa.models.lewm import SIZES
from tiny import TINY, TINY_PATCHES, simulate


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Shards of 16 episodes, already simulated, and tiny nets."""
    monkeypatch.setattr(episodes, "SHARD", 16)
    monkeypatch.setitem(SIZES, "small", TINY)
    for sizes in (jepawm.SIZES, dinowm.SIZES):
        monkeypatch.setitem(sizes, "small", TINY_PATCHES)
    simulate(episodes.plan_shards(tmp_path / "episodes", 32, 0, ("T",)))
    return tmp_path
