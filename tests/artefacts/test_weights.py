"""Weights go by name, wherever they lie."""

import shutil
import sys
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from djepa.align.suite import SUITE_KIND
from djepa.artefacts.write import save
from djepa.errors import DjepaError
from djepa.models import weights
from djepa.models.bimanual import load_policy
from djepa.models.bimanual_jepa import load_jepa
from djepa.models.traffic_predict import load_scorer
from djepa.models.weights import (
    SHIPPED,
    copy_weights,
    describe,
    find_weights,
    load_geometry,
    shipped,
    weights_hash,
)

KNOWN = {"reacher-lewm": "c5ef7512a63e"}  # what results were bound to before folders moved


def test_hashes_do_not_depend_on_where_weights_are_stored(tmp_path: Path) -> None:
    assert {name: weights_hash(name)[:12] for name in KNOWN} == KNOWN
    assert copy_weights("tdjepa", tmp_path / "copy") == weights_hash("tdjepa")


@pytest.mark.parametrize(("name", "base"), [("tdjepa", "lewm"), ("dinowm", "jepawm")])
def test_no_two_models_share_an_encoder(name: str, base: str) -> None:
    own, theirs = load_geometry(name).state_dict(), load_geometry(base).state_dict()
    shared = [tensor for tensor in own if tensor.startswith("encoder.") and tensor in theirs]
    assert len(shared) == 78
    assert not any(torch.equal(own[t], theirs[t]) for t in shared if own[t].std() > 0)


def test_names_are_looked_up_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_weights("lewm") == SHIPPED / "lewm"
    assert find_weights("reacher-lewm").parent == weights.CHECKOUT / "weights"
    shutil.copytree(SHIPPED / "dinowm", tmp_path / "more" / "mine")
    with pytest.raises(DjepaError, match=r"Unknown weights 'mine'.*DJEPA_WEIGHTS"):
        find_weights("mine")
    monkeypatch.setenv("DJEPA_WEIGHTS", str(tmp_path / "more"))
    assert find_weights("mine") == tmp_path / "more" / "mine"
    assert "mine" in shipped()
    assert "whole" in describe("mine")
    shutil.copytree(SHIPPED / "jepawm", tmp_path / "lewm")  # a folder here comes first
    assert find_weights("lewm") == Path("lewm")
    with pytest.raises(DjepaError, match=r"neither here nor in .*hub|Hugging Face gave none"):
        find_weights("nobody/nothing-at-all")


def test_folders_of_another_kind_hide_no_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody works where a suite, a policy or a geometry has the name of other weights."""
    policy, here = load_policy(weights.CHECKOUT / "weights/bimanual").hash, tmp_path / "here"
    for name in ("lewm", "bimanual"):
        save(here / name, SUITE_KIND, {"a.json": b"{}"})
    monkeypatch.chdir(here)
    assert find_weights("lewm") == SHIPPED / "lewm"
    assert load_policy().hash == policy
    assert "bimanual policy" in describe("bimanual")
    with pytest.raises(DjepaError, match="lewm is djepa-suite 2; this version reads djepa-geom"):
        load_geometry(here / "lewm")  # named outright, it is refused for what it is
    with pytest.raises(DjepaError, match=r"bimanual is djepa-suite 2; .* djepa-bimanual-policy"):
        load_policy(here / "bimanual")
    shutil.rmtree(here)
    shutil.copytree(weights.CHECKOUT / "weights/bimanual", here / "lewm")
    shutil.copytree(SHIPPED / "dinowm", here / "bimanual")
    monkeypatch.chdir(here)
    assert find_weights("lewm") == SHIPPED / "lewm"
    assert load_policy().hash == policy


def test_a_damaged_folder_here_is_refused_and_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("lewm", "bimanual"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text("{")
    with pytest.raises(DjepaError, match=r"lewm/manifest\.json is damaged"):
        load_geometry("lewm")
    with pytest.raises(DjepaError, match=r"bimanual/manifest\.json is damaged"):
        load_policy()
    assert find_weights("tdjepa") == SHIPPED / "tdjepa"


NATIVES = {"traffic": load_scorer, "bimanual": load_policy, "bimanual-jepa": load_jepa}


def fake_hub(monkeypatch: pytest.MonkeyPatch, cache: Path, holds: dict[str, Path]) -> None:
    """A hub whose repositories are folders. As the real one it links what the patterns allow."""

    def snapshot_download(name: str, allow_patterns: list[str]) -> str:
        if name not in holds:
            raise OSError(f"404: no {name}")
        (snapshot := cache / name.replace("/", "--")).mkdir(parents=True, exist_ok=True)
        for file in holds[name].iterdir():
            link = snapshot / file.name
            if any(fnmatch(file.name, of) for of in allow_patterns) and not link.exists():
                link.symlink_to(file)
        return str(snapshot)

    hub = SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)


@pytest.mark.parametrize("name", NATIVES)
def test_native_models_come_from_the_hub(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load: Callable[..., Any] = NATIVES[name]
    own = weights.CHECKOUT / "weights" / name
    shutil.copytree(own, there := tmp_path / "there")
    (there / "notes.pkl").write_bytes(b"of no use")  # is not fetched
    fake_hub(monkeypatch, tmp_path / "cache", {"me/native": there, "me/lewm": SHIPPED / "lewm"})
    assert load("me/native").hash == load(own).hash
    fetched = {file.name for file in (tmp_path / "cache/me--native").iterdir()}
    assert fetched == {file.name for file in own.iterdir()}
    assert "whole" in describe("me/native")
    with pytest.raises(DjepaError, match=r"Hugging Face gave none: 404.*train"):
        load("me/nothing")
    with pytest.raises(DjepaError, match="is djepa-geometry"):
        load("me/lewm")
    altered = bytearray((there / weights.TENSORS).read_bytes())
    altered[-1] ^= 1
    (there / weights.TENSORS).write_bytes(altered)
    with pytest.raises(DjepaError, match=r"altered|damaged|SHA"):
        load("me/native")


def test_geometries_come_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_hub(monkeypatch, tmp_path, {"me/lewm": SHIPPED / "lewm"})
    assert weights_hash("me/lewm") == weights_hash("lewm")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for load in (load_geometry, load_policy):
        with pytest.raises(DjepaError, match=r"djepa\[hub\]"):
            load("me/lewm")
