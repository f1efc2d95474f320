"""Episodes whose hashes agree and whose arrays are wrong: one line that names the file."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from djepa.artefacts.folder import Arrays, encode, load_arrays
from djepa.artefacts.records import sha256
from djepa.control.episodes import EpisodeConfig
from djepa.control.loop import control
from djepa.control.planners import Planner, PlannerConfig
from djepa.control.results import LAYOUT, Episodes
from djepa.errors import DjepaError
from djepa.rollout.engine import LocalEngine

NAME = "episodes/000001.safetensors"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = EpisodeConfig(split="other", episodes=3, budget=10, block=2)
    planner = Planner(PlannerConfig("random"), "push")
    return control(tmp_path_factory.mktemp("ran") / "it", config, planner, LocalEngine(1))


def rewritten(folder: Path, data: bytes, **about: object) -> Episodes:
    """Other bytes under their own hash."""
    manifest = folder / "manifest.json"
    before = manifest.read_text(), (folder / NAME).read_bytes()
    stated = json.loads(before[0])
    stated["files"][NAME], stated["sizes"][NAME] = sha256(data), len(data)
    stated["about"]["planner"].update(about)
    try:
        (folder / NAME).write_bytes(data)
        manifest.write_text(json.dumps(stated))
        found = Episodes(folder)
        _ = found.arrays
        return found
    finally:
        manifest.write_text(before[0])
        (folder / NAME).write_bytes(before[1])


CHANGES: dict[str, Callable[[Arrays], Arrays]] = {
    **{f"no {n}": (lambda a, n=n: {k: x for k, x in a.items() if k != n}) for n in LAYOUT},
    "an array nobody knows": lambda a: {**a, "more": a["cost"]},
    "cost of one axis": lambda a: {**a, "cost": a["cost"][:, 0]},
    "cost of another budget": lambda a: {**a, "cost": a["cost"][:, 1:]},
    "opened as numbers": lambda a: {**a, "opened": a["opened"].astype(float)},
    "fewer controls": lambda a: {**a, "controls": a["controls"][:, :-1]},
    "models nobody named": lambda a: {**a, "evaluations": np.zeros((len(a["number"]), 2), int)},
    "episodes twice": lambda a: {n: np.concatenate([x, x]) for n, x in a.items()},
}


@pytest.mark.parametrize("change", CHANGES)
def test_arrays_that_are_no_episodes_are_refused(change: str, ran: Path) -> None:
    arrays = load_arrays(ran / NAME, (ran / NAME).read_bytes())
    with pytest.raises(DjepaError, match=r"(000001\.safetensors: |holds 4 episodes, not 3)"):
        rewritten(ran, encode(CHANGES[change](arrays)))
    assert Episodes(ran).summary()["episodes"] == 3  # as it was


def test_decisions_that_are_no_records_are_refused(ran: Path) -> None:
    """They are asked for by the planner's settings, and are bytes of JSON."""
    arrays = load_arrays(ran / NAME, (ran / NAME).read_bytes())
    with pytest.raises(DjepaError, match="foreign arrays: decisions"):
        rewritten(ran, encode(arrays), record=True)
    found = Episodes(ran)
    found.__dict__["arrays"] = {"decisions": np.frombuffer(b'{"start": 1}\n', np.uint8)}
    with pytest.raises(DjepaError, match="damaged decisions"):
        found.decisions()
