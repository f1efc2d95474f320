"""The table of coefficients and the displacement that it gives, worked out by hand."""

import json

import pytest
import torch

from djepa.errors import DjepaError
from djepa.lift.temporal import coefficient_table, displacement


def test_table_by_hand() -> None:
    beta = torch.tensor([[[1.0, -1.0], [3.0, -3.0], [5.0, 0.0], [7.0, 2.0]]])
    ranks = torch.tensor([[1.0, 0.0, 1 / 3, 2 / 3]])
    torch.testing.assert_close(
        coefficient_table(beta, ranks, bins=2),
        torch.tensor([[4.0, -1.5], [4.0, 0.5]], dtype=torch.float64),
    )
    every = coefficient_table(beta, ranks, bins=4)
    assert every.tolist() == [[3.0, -3.0], [5.0, 0.0], [7.0, 2.0], [1.0, -1.0]]
    empty = coefficient_table(beta, torch.zeros(1, 4), bins=2)
    assert empty[0].tolist() == [4.0, -0.5]
    assert empty[1].isnan().all()
    places = torch.arange(63)[None] / 62
    shares = coefficient_table((places * 62).round()[..., None], places)[:, 0]
    assert shares.tolist() == [3 + 7 * i for i in range(9)]  # seven places each
    for bad in ({"ranks": ranks[:, :3]}, {"bins": 5}, {"bins": 0}, {"coefficients": beta[0]}):
        with pytest.raises(DjepaError, match="A table needs"):
            coefficient_table(**{"coefficients": beta, "ranks": ranks, **bad})  # type: ignore[arg-type]


def test_displacement_by_hand() -> None:
    beta = torch.tensor([[[0.095, -0.05], [0.085, 0.0]]], dtype=torch.float64)
    found = displacement(beta)
    assert found["mean"] == pytest.approx(0.23 / 4)
    assert found["largest"] == 0.095
    assert found["at_bound"] == 0.25
    assert found["signs"] == [1.0, -0.5]
    assert displacement(beta, radius=0.05)["at_bound"] == 0.75
    json.dumps(found)
