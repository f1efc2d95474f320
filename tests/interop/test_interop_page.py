"""Every Python line of docs/interop.md runs, one block after the other."""

import re
from pathlib import Path
from typing import Any

import pytest
from interop_kit import Kit
from test_serve import serving
from tools.docs.fill import ROOT

PAGE = (ROOT / "docs/interop.md").read_text()


def block(head: str, number: int = 0) -> str:
    """A Python block of one section."""
    section = re.search(rf"^## {head}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert section
    return re.findall(r"```python\n(.*?)```", section[1], re.DOTALL)[number]


def arrays(kit: Kit) -> dict[str, Any]:
    given = {name: tensor[:2].numpy() for name, tensor in kit.given._asdict().items()}
    return {**given, "ids": kit.ids[:2].numpy()}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_record() -> None:
    exec(block("Decision record"), {})
    assert Path("mine.json").is_file()


def test_the_client(kit: Kit, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(kit) as (_, client):
        exec(block("Server").replace("http://127.0.0.1:8765", client.url), arrays(kit))
    assert "'status': 'ok'" in capsys.readouterr().out


def test_the_environments(capsys: pytest.CaptureFixture[str]) -> None:
    exec(block("Gymnasium"), {})
    assert "(4, 10)" in capsys.readouterr().out


def test_the_warning(kit: Kit, capsys: pytest.CaptureFixture[str]) -> None:
    twice = {"alignment": kit.alignment, "calibration": kit.evidence, "new": kit.evidence}
    exec(block("MAPIE"), twice)
    assert "False No difference" in capsys.readouterr().out
