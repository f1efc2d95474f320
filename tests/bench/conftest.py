"""Benches in the test's own process: each child takes seconds to start."""

import pytest

from djepa.bench import geometry, growth


@pytest.fixture(autouse=True)
def no_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured stays the same, but for the memory of a whole process."""
    for module in (geometry, growth):
        monkeypatch.setattr(module, "in_child", lambda work: work())
