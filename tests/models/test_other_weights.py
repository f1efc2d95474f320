"""The shipped models of other worlds still make of stored starts what they made of them."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from safetensors.numpy import load_file

SCRIPT = Path(__file__).parents[1] / "goldens" / "make_other_weights.py"
NAMES = ("reacher-lewm", "reacher-tdjepa", "reacher-jepawm", "granular-dinowm", "cube-lewm",
         "cube-tdjepa", "shapes-jepawm")  # fmt: skip
NEEDS = {"reacher": "mujoco", "cube": "mujoco", "granular": "pymunk", "push": "pymunk"}


@pytest.fixture(scope="module")
def goldens() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_other_weights", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_one_is_there(goldens: ModuleType) -> None:
    assert tuple(goldens.SCENES) == NAMES
    stored = load_file(goldens.FILE)
    assert {name.split(".")[0] for name in stored} == {"given", *NAMES}
    assert goldens.FILE.stat().st_size < 300_000


@pytest.mark.parametrize("name", NAMES)
def test_latents_and_costs_are_what_they_were(name: str, goldens: ModuleType) -> None:
    """Frames, encoder, predictor and cost together."""
    stored, world = load_file(goldens.FILE), goldens.SCENES[name].world
    pytest.importorskip(NEEDS[world])
    given = {kind: stored[f"given.{world}.{kind}"] for kind in goldens.GIVEN}
    found = goldens.results(name, given)
    assert {kind for kind in stored if kind.startswith(f"{name}.")} == set(found)
    for kind, value in found.items():
        assert value.shape == stored[kind].shape
        assert np.ptp(stored[kind]) > 0.01
        np.testing.assert_allclose(value, stored[kind], rtol=1e-4, atol=1e-4)
    cost = stored[f"{name}.cost"]
    assert cost.shape == given["actions"].shape[:2] == (2, 4)
    assert (cost.argmin(1) == found[f"{name}.cost"].argmin(1)).all()
