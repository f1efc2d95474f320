"""What arrays a file must hold, and which blocks a bank."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from artefact import Artefact, rehashed

from djepa.artefacts.folder import encode, load_arrays
from djepa.artefacts.layout import check_layout
from djepa.bank.driving import TrafficBank
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence
from djepa.studies.bimanual_fits import FILE, SCALARS, GatesRecord, TaskGates, _position

LAYOUT = {"a": ("int64", "N 3"), "b": ("float16 float32", "N K"), "c": ("uint8", "*")}
FITTING = {
    "a": np.zeros((2, 3), np.int64),
    "b": np.zeros((2, 5), np.float32),
    "c": np.zeros(0, np.uint8),
}


def test_letters_get_their_lengths() -> None:
    assert check_layout(Path("x"), FITTING, LAYOUT) == {"N": 2, "K": 5}
    assert check_layout(Path("x"), FITTING, LAYOUT, {"N": 2}, "Again.")["K"] == 5
    none = {name: of[:0] for name, of in FITTING.items()}
    assert check_layout(Path("x"), none, LAYOUT, {"N": 0, "K": 5})["N"] == 0


@pytest.mark.parametrize(
    ("change", "sizes", "says"),
    [
        ({"a": np.zeros((2, 4), np.int64)}, {}, r"x: 'a' is int64 \(2, 4\); int64 \(N=2 3\)"),
        ({"a": np.zeros(2, np.int64)}, {}, "'a' is int64"),
        ({"b": np.zeros((3, 5), np.float32)}, {}, "'b' is float32"),
        ({"b": np.zeros((2, 0), np.float32)}, {}, r"\(N=2 K above 0\) is needed"),
        ({"b": np.zeros((2, 5))}, {}, "'b' is float64"),
        ({"d": np.zeros(2)}, {}, "foreign arrays: d. Again."),
        ({}, {"N": 3}, r"\(N=3 3\) is needed. Again."),
        ({}, {"K": 4}, "K=4"),
    ],
)
def test_other_arrays_are_refused(
    change: dict[str, np.ndarray], sizes: dict[str, int], says: str
) -> None:
    with pytest.raises(DjepaError, match=says):
        check_layout(Path("x"), FITTING | change, LAYOUT, sizes, "Again.")


def test_a_block_without_files_has_no_scenes(
    artefacts: dict[str, Artefact], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of generated logs this is looked at; recorded ones may lie elsewhere."""
    path = artefacts["driving bank"].path
    top = path / "manifest.json"
    before = top.read_bytes()
    stated = json.loads(before)
    stated["about"]["config"]["logs"] = 4  # the last block would have another log
    top.write_text(json.dumps(stated))
    assert len(TrafficBank(path)) == 3
    stated["about"]["config"]["logs"] = 5
    top.write_text(json.dumps(stated))
    with pytest.raises(DjepaError, match="does not list all blocks"):
        TrafficBank(path)
    monkeypatch.setattr("djepa.bank.driving.scenes_in", lambda config, log: ())
    assert len(TrafficBank(path)) == 3
    top.write_bytes(before)


@pytest.mark.parametrize("rows", [[0, 0], [1, 1], [1, 0]])
def test_no_scene_of_a_block_is_there_twice_or_out_of_order(
    rows: list[int], artefacts: dict[str, Artefact], tmp_path: Path
) -> None:
    path = Path(shutil.copytree(artefacts["driving bank"].path, tmp_path / "copy"))
    name, top = "decision/block-000000.safetensors", path / "manifest.json"
    arrays = load_arrays(path / name, (path / name).read_bytes())
    assert arrays["place"].tolist() == [[0, 0], [1, 0]]
    data = encode({**arrays, "place": arrays["place"][rows]})
    (path / name).write_bytes(data)
    top.write_bytes(rehashed(top, name, data))
    with pytest.raises(DjepaError, match=f"{path / name} does not hold scenes of its logs"):
        _ = TrafficBank(path).known


def test_gates_of_other_tasks_and_candidates_are_named(artefacts: dict[str, Artefact]) -> None:
    path = artefacts["gates"].path
    record: GatesRecord = artefacts["gates"].read()
    assert record.of("grab roller", path).fixed.candidate == 3
    with pytest.raises(DjepaError, match=f"{path / FILE} has gates of grab roller, not of x"):
        record.of("x", path)
    with pytest.raises(ValueError, match="no task"):
        GatesRecord({}, record.limit)
    task = record.tasks["grab roller"]
    few = {name: task.scalars[name] for name in list(SCALARS)[1:]}
    with pytest.raises(ValueError, match="gates are"):
        TaskGates(task.fixed, few, task.preserve)
    ids = np.array([[0, 3], [3, 4]])
    evidence = Evidence.from_arrays(
        start_ids=["a", "b"], candidate_ids=ids, costs={"c": np.ones((2, 2))}
    )
    assert torch.equal(_position(evidence, 3, path), torch.tensor([1, 0]))
    with pytest.raises(DjepaError, match=f"{path / FILE} corrects by candidate 4"):
        _position(evidence, 4, path)
