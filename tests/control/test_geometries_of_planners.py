"""Which models a planner takes for an alignment."""

from pathlib import Path

import pytest
from control_kit import fit_alignment

from djepa.control.parts import Parts
from djepa.errors import DjepaError
from djepa.models.weights import weights_hash


def test_a_view_of_a_model_is_not_taken_for_the_model(tmp_path: Path) -> None:
    """Studies of granular and shapes fit on views, or on parts of a cost, of a single model."""
    of = weights_hash("lewm")
    folder = fit_alignment(
        {"lewm": of, "tdjepa": weights_hash("tdjepa"), "turned-90": of}, tmp_path
    )
    with pytest.raises(DjepaError, match=r"reads 'turned-90', one view or one part .* of lewm"):
        Parts.find("push", "tdjepa", str(folder), "cpu")


def test_weights_that_are_nowhere_are_named(tmp_path: Path) -> None:
    folder = fit_alignment({"lewm": "0" * 64, "tdjepa": weights_hash("tdjepa")}, tmp_path)
    with pytest.raises(DjepaError, match="weights 000000000000 of lewm, and none"):
        Parts.find("push", "tdjepa", str(folder), "cpu")
