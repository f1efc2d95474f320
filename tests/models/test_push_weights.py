"""The shipped push models still make of four stored starts what they made of them."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from safetensors.numpy import load_file

from djepa.align.presets import FOUR

SCRIPT = Path(__file__).parents[1] / "goldens" / "make_push_weights.py"


@pytest.fixture(scope="module")
def goldens() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_push_weights", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("geometry", FOUR)
def test_latents_and_costs_are_what_they_were(geometry: str, goldens: ModuleType) -> None:
    """Frames, encoder, predictor and cost together."""
    stored = load_file(goldens.FILE)
    given = {name: stored[f"given.{name}"] for name in goldens.GIVEN}
    found = goldens.results(geometry, given)
    assert {name for name in stored if name.startswith(f"{geometry}.")} == set(found)
    for name, value in found.items():
        assert value.shape == stored[name].shape
        assert np.ptp(stored[name]) > 0.01
        np.testing.assert_allclose(value, stored[name], rtol=1e-4, atol=1e-4)
    cost = stored[f"{geometry}.cost"]
    assert cost.shape == given["actions"].shape[:2] == (4, 8)
    assert (cost.argmin(1) == found[f"{geometry}.cost"].argmin(1)).all()
