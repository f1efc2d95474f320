"""Sizes that no alignment has: refused by name, before memory is asked for."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from djepa.align.fit import Alignment
from djepa.align.gates import Gate
from djepa.align.operator import OperatorConfig
from djepa.align.presets import mixed
from djepa.align.store import load_alignment
from djepa.artefacts.records import sha256
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence


@pytest.fixture(scope="module")
def alignment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random, N, K = np.random.default_rng(0), 12, 5
    costs = {name: random.uniform(0.1, 1.0, (N, K)) for name in ("one", "two")}
    evidence = Evidence.from_arrays(
        start_ids=range(N), candidate_ids=np.tile(np.arange(K), (N, 1)), costs=costs
    )
    success, parts = costs["one"] + costs["two"] < 1, (range(8), range(8, 12))
    config = replace(mixed(("one", "two"), (), "log"), updates=2, every=1)
    (fit, calibration) = ((evidence.rows(rows), success[rows]) for rows in map(list, parts))
    folder = tmp_path_factory.mktemp("absurd") / "alignment"
    Alignment(config).fit(*fit).calibrate(*calibration).save(folder)
    return folder


ABSURD: list[tuple[dict[str, Any], str]] = [
    ({"inputs": 10**9}, "has about 640000.* weights; at most 268435456"),
    ({"width": 0}, "width is at least 1, not 0"),
    ({"width": 10**6}, "at most 268435456"),
    ({"heads": 0}, "heads is at least 1, not 0"),
    ({"heads": -4}, "heads is at least 1"),
    ({"heads": 3}, "width 64 must divide by 3 heads"),
    ({"hidden": 0}, "hidden is at least 1"),
    ({"hidden": 10**9}, "at most 268435456"),
    ({"rank": 0}, "rank is at least 1"),
    ({"layers": 10**6}, "0 to 256 layers, not 1000000"),
    ({"layers": -1}, "0 to 256 layers"),
    ({"epsilon": float("nan")}, "an epsilon above 0"),
    ({"epsilon": float("inf")}, "an epsilon above 0, and finite"),
    ({"dropout": 1.0}, "dropout is 0 or more, below 1"),
    ({"dropout": -0.1}, "dropout is 0 or more"),
]


@pytest.mark.parametrize(("sizes", "complaint"), ABSURD)
def test_operators_that_cannot_be_are_refused(sizes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DjepaError, match=complaint):
        OperatorConfig(**{"inputs": 5, **sizes})
    OperatorConfig(inputs=10**6, width=256, layers=0)  # larger than any there is


@pytest.mark.parametrize("decimals", [-1, 16, 10**6])
def test_gates_that_round_beyond_a_number_are_refused(decimals: int) -> None:
    with pytest.raises(DjepaError, match=f"0 to 15 decimals, not to {decimals}"):
        Gate(decimals=decimals)
    Gate(decimals=15)


def edited(folder: Path, name: str, value: Any) -> None:
    """Loads the alignment with another JSON file under its own hash."""
    manifest = folder / "manifest.json"
    before, data = manifest.read_text(), (folder / name).read_bytes()
    new = json.dumps(value).encode()
    stated = json.loads(before)
    stated["files"][name], stated["sizes"][name] = sha256(new), len(new)
    try:
        (folder / name).write_bytes(new)
        manifest.write_text(json.dumps(stated))
        load_alignment(folder)
    finally:
        manifest.write_text(before)
        (folder / name).write_bytes(data)


def test_a_file_that_asks_for_them_is_refused(alignment: Path) -> None:
    config = json.loads((alignment / "config.json").read_text())
    gate = json.loads((alignment / "calibration.json").read_text())
    for name, value in (("heads", 0), ("width", 0), ("layers", 10**9)):
        align = {**config["align"], "operator": {**config["align"]["operator"], name: value}}
        with pytest.raises(DjepaError, match=rf"config\.json.*{name}"):
            edited(alignment, "config.json", {**config, "align": align})
    with pytest.raises(DjepaError, match="1000000000 inputs"):
        edited(alignment, "config.json", {**config, "inputs": 10**9})
    with pytest.raises(DjepaError, match=r"calibration\.json.*1000000"):
        edited(alignment, "calibration.json", {**gate, "decimals": 10**6})
    load_alignment(alignment)
