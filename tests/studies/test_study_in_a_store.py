"""A whole study in an object store: what a folder on this machine holds, and a lost connection."""

from collections.abc import Iterator
from typing import Any

import pytest
from study_kit import Finished, Tiny

from djepa.artefacts.store import Remote, locate
from djepa.errors import DjepaError

pytest.importorskip("matplotlib")
pytest.importorskip("fsspec")
pytest.importorskip("mujoco")


@pytest.fixture
def far() -> Iterator[Remote]:
    """A folder in a store within this process."""
    yield Remote("memory://studies/reacher")
    for file in Remote("memory://studies").rglob("*"):
        file.unlink()


def test_a_study_is_the_same_in_a_store(
    finished: Finished, far: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is lost while evidence is written; the same command goes on from there."""
    near, write, puts = finished("reacher"), Remote.write, list[str]()

    def lost(self: Remote, data: Any) -> None:
        puts.append(self.url)
        if len(puts) > 40:
            raise DjepaError(f"Cannot reach {self}")
        write(self, data)

    study = Tiny(near.design, locate(far.url))
    with monkeypatch.context() as patch:
        patch.setattr(Remote, "write", lost)
        with pytest.raises(DjepaError, match="Cannot reach"):
            study.run()
    begun = far.sizes()
    assert 0 < len(begun) < len(near.files())
    assert "report.html" not in begun
    ran = study.run()
    assert ran[-1] == "page"
    assert "collect reference" not in ran  # it was finished before
    there = {name: (far / name).read_bytes() for name in far.sizes()}
    here = {name: data for name, (_, data) in near.files().items()}
    assert set(there) == set(here)
    odd = [name for name in here if there[name] != here[name]]
    assert odd == []
    assert study.run() == []
