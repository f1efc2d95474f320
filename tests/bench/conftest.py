"""Benches in the test's own process: each child takes seconds to start."""

import pytest

from djepa.bench import align, geometry, growth


@pytest.fixture(autouse=True)
def no_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """The world bench still measures its memory in children."""
    for module in (align, geometry, growth):
        monkeypatch.setattr(module, "in_child", lambda work: work())
