"""Weights go by name, wherever they lie, and a shared encoder is stored once."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from djepa.artefacts.folder import Folder
from djepa.errors import DjepaError
from djepa.models import weights
from djepa.models.weights import (
    GEOMETRY,
    SHIPPED,
    copy_weights,
    describe,
    find_weights,
    load_geometry,
    read_tensors,
    shipped,
    weights_hash,
)

# What results were bound to before encoders were shared and folders moved.
KNOWN = {"lewm": "f777221a1add", "tdjepa": "821265b922cf", "reacher-lewm": "c5ef7512a63e"}


@pytest.mark.parametrize(("name", "base"), [("tdjepa", "lewm"), ("dinowm", "jepawm")])
def test_a_shared_encoder_is_stored_once_and_read_from_there(name: str, base: str) -> None:
    own = load_file(SHIPPED / name / "model.safetensors")
    assert not any(tensor.startswith("encoder.") for tensor in own)
    whole, theirs = load_geometry(name).state_dict(), load_geometry(base).state_dict()
    shared = [tensor for tensor in whole if tensor.startswith("encoder.")]
    assert len(shared) == 78
    assert all(torch.equal(whole[tensor], theirs[tensor]) for tensor in shared)


def test_hashes_do_not_depend_on_where_and_how_weights_are_stored(tmp_path: Path) -> None:
    assert {name: weights_hash(name)[:12] for name in KNOWN} == KNOWN
    assert copy_weights("tdjepa", tmp_path / "whole") == weights_hash("tdjepa")
    tensors = load_file(tmp_path / "whole" / "model.safetensors")
    assert len([name for name in tensors if name.startswith("encoder.")]) == 78
    stored = Folder(tmp_path / "whole", GEOMETRY)
    assert read_tensors(stored) == read_tensors(Folder(SHIPPED / "tdjepa", GEOMETRY))


def test_another_encoder_is_refused(tmp_path: Path) -> None:
    shutil.copytree(SHIPPED / "dinowm", tmp_path / "dinowm")
    shutil.copytree(find_weights("shapes-jepawm"), tmp_path / "jepawm")
    with pytest.raises(DjepaError, match="needs the encoder of the weights 'jepawm'"):
        load_geometry(tmp_path / "dinowm")
    shutil.rmtree(tmp_path / "jepawm")
    load_geometry(tmp_path / "dinowm")  # those that come with the package


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
