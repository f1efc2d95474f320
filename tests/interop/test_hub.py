"""Folders for the hub: card, configuration, loading again; offline unless asked otherwise."""

import inspect
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from interop_kit import Kit
from scratch import needs
from test_interop_page import block

from djepa.align.fit import Alignment
from djepa.align.store import save_alignment
from djepa.errors import DjepaError, MissingExtraError
from djepa.interop.hub import from_pretrained, push_to_hub, save_pretrained
from djepa.lift.planner import Planner
from djepa.models.lewm import LeWM
from djepa.models.weights import load_geometry

real = needs("huggingface_hub")


def head_of(folder: Path) -> dict[str, Any]:
    return dict(yaml.safe_load((folder / "README.md").read_text().split("---")[1]))


def test_a_planner_comes_back_as_it_was(kit: Kit, tmp_path: Path) -> None:
    made = save_pretrained(
        kit.folder, tmp_path / "hub", base_model=("me/lewm",), about="For tests."
    )
    head = head_of(made)
    assert head["pipeline_tag"] == "robotics"
    assert head["library_name"] == "djepa"
    assert head["license"] == "apache-2.0"
    assert head["base_model"] == ["me/lewm"]
    assert "For tests." in (made / "README.md").read_text()
    config = json.loads((made / "config.json").read_text())
    assert config["geometries"]["lewm"]["config"]["config"]["latent"] == 16
    assert config["gate"]["threshold"] == getattr(kit.alignment.gate, "threshold", None)
    planner = from_pretrained(made)
    assert isinstance(planner, Planner)
    g = kit.given
    known = (g.frames, g.history, g.goal, g.candidates, kit.ids)
    assert torch.equal(planner.plan(*known).order, kit.planner.plan(*known).order)


def test_an_alignment_and_weights_come_back_too(kit: Kit, tmp_path: Path) -> None:
    save_alignment(kit.alignment, tmp_path / "alignment", {})
    saved = save_pretrained(tmp_path / "alignment", tmp_path / "a")
    assert isinstance(from_pretrained(saved), Alignment)
    inner = save_pretrained(kit.folder.parent / "lewm", tmp_path / "g")
    assert isinstance(from_pretrained(inner), LeWM)
    assert head_of(inner)["pipeline_tag"] == "robotics"


def test_shipped_weights_are_saved_whole(tmp_path: Path) -> None:
    """DINO-WM borrows its encoder from JEPA-WM here; on the hub it stands alone."""
    made = save_pretrained("dinowm", tmp_path / "d")
    one, other = from_pretrained(made).state_dict(), load_geometry("dinowm").state_dict()
    assert all(torch.equal(one[name], other[name]) for name in other)


def test_what_is_wrong_is_named(kit: Kit, tmp_path: Path) -> None:
    made = save_pretrained(kit.folder, tmp_path / "hub")
    with pytest.raises(DjepaError, match="not empty"):
        save_pretrained(kit.folder, made)
    with pytest.raises(DjepaError, match="published are"):
        save_pretrained(kit.bank.path, tmp_path / "b")
    with pytest.raises(DjepaError, match="has no README"):
        push_to_hub(kit.folder.parent / "lewm", "me/mine")
    with pytest.raises(DjepaError, match="neither a folder nor a repository"):
        from_pretrained("a/b/c")
    data = bytearray((made / "planner.safetensors").read_bytes())
    data[-1] ^= 1
    (made / "planner.safetensors").write_bytes(data)
    with pytest.raises(DjepaError, match=r"damaged|altered|SHA"):
        from_pretrained(made)


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"djepa\[hub\]"):
        from_pretrained("me/mine")


@real
def test_nothing_is_fetched_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import socket

    def refuse(*_: Any) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(DjepaError, match="unless you say download=True"):
        from_pretrained("me/mine")


@real
def test_the_page_and_the_card_by_the_library_itself(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    sent: dict[str, Any] = {}

    class Api:  # no repository of ours can be reached from a test
        def create_repo(self, name: str, private: bool, exist_ok: bool) -> None:
            sent["private"] = private

        def upload_folder(self, **given: Any) -> str:
            sent.update(given)
            return "address"

    monkeypatch.chdir(tmp_path)
    code = block("Hugging Face hub").replace("runs/planner.safetensors", str(kit.folder))
    real_api = huggingface_hub.HfApi
    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    exec(code, {})
    assert sent["private"] is True
    wanted = inspect.signature(real_api.upload_folder).parameters
    assert {"repo_id", "folder_path", "allow_patterns"} <= set(wanted)
    card = huggingface_hub.ModelCard.load("for-hub/README.md")
    assert card.data.pipeline_tag == "robotics"
    assert card.data.library_name == "djepa"
