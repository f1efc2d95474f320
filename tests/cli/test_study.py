"""`djepa study`: what it refuses before any work is done."""

import importlib.util
from pathlib import Path

import pytest

from djepa.cli.study import RunStudy
from djepa.errors import DjepaError, MissingExtraError


@pytest.mark.parametrize(
    ("study", "missing", "extra"),
    [
        ("all", "mujoco", "mujoco"),
        ("reacher", "mujoco", "mujoco"),
        ("cube", "ogbench", "cube"),
        ("shapes", "matplotlib", "report"),
    ],
)
def test_a_missing_extra_is_named_before_the_work(
    study: str, missing: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == missing else known(name)
    )
    with pytest.raises(MissingExtraError, match=rf"djepa\[{extra}\]"):
        RunStudy(study, out=tmp_path / "out").run()
    assert not (tmp_path / "out").exists()


def test_an_unknown_study_or_preset_is_named(tmp_path: Path) -> None:
    with pytest.raises(DjepaError, match="Did you mean 'reacher'"):
        RunStudy("reachr", out=tmp_path / "out").run()
    with pytest.raises(DjepaError, match="Did you mean 'quick'"):
        RunStudy("shapes", preset="quik", out=tmp_path / "out").run()
    assert not (tmp_path / "out").exists()
