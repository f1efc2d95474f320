"""Tests against real packages, each in an environment that is made for it.

They share the packages of this one, so that torch is not installed again.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from interop_kit import Kit

from environments import environment, run

TESTS = Path(__file__).parent
ONNX = ("onnx==1.23.2", "onnxruntime==1.31.1", "onnxscript==0.7.2", "onnx_ir==1.1.0")
SWM = ("stable-worldmodel==0.1.1", "loguru", "tabulate", "einops", "typer", "shellingham", "pygame")
SWM += ("opencv-python-headless", "h5py==3.16.0", "hdf5plugin")
LANCE = ("lancedb", "pylance", "lance-namespace", "lance-namespace-urllib3-client", "pydantic")
LANCE += ("pydantic-core", "annotated-types", "typing-inspection", "overrides", "deprecation")
HUB = ("huggingface_hub==2.4.0", "httpx2==2.16.0", "httpcore2==2.16.0", "hf-xet==1.8.0")
HUB += ("fsspec==2026.9.0", "tqdm==4.70.1", "anyio==4.16.0", "h11==0.16.0", "truststore==0.10.5")
LEROBOT = ("lerobot==0.4.4", "torchvision==0.28.0", "huggingface_hub<1", "datasets==4.1.1")
LEROBOT += ("accelerate==1.10.1", "diffusers==0.35.2", "transformers==4.57.1", "tokenizers<0.23")
LEROBOT += (
    "dill==0.4.0",
    "multiprocess==0.70.16",
    "pyyaml-include==1.4.1",
    "pyserial",
    "draccus==0.10.0",
)
LEROBOT += ("mergedeep", "typing-inspect", "mypy-extensions", "einops", "xxhash", "pandas", "pytz")
LEROBOT += ("aiohttp", "tqdm", "fsspec", "deepdiff", "orderly-set", "cachebox", "jsonlines", "toml")
LEROBOT += ("imageio", "termcolor", "av", "importlib_metadata", "regex")
ENVIRONMENTS = {  # the file that is run -> what is installed, without dependencies
    "test_onnx.py": (*ONNX, "ml_dtypes==0.6.0", "flatbuffers==25.12.19"),
    "test_hub.py": HUB,
    "test_lerobot.py": LEROBOT,
    "test_lerobot_env.py": LEROBOT,
    "test_lerobot_robot.py": LEROBOT,
    "test_mapie.py": ("mapie==1.6.0", "scikit-learn", "joblib", "threadpoolctl", "narwhals"),
    "test_mink.py": ("mink==1.2.0", "daqp==0.11.0", "qpsolvers==4.13.0"),
    "test_swm.py": (*SWM, *LANCE, "torchvision==0.28.0", "imageio==2.38.1"),
}

CHECKER = ("commonroad-drivability-checker==2025.4.0",)  # of boxes, for the driving world
ORACLE = "traffic/test_traffic_clauses.py::test_boxes_meet_as_an_independent_checker_says"


@pytest.mark.parametrize("file", sorted(ENVIRONMENTS))
def test_with_the_real_package(file: str) -> None:
    python = environment(file.removesuffix(".py"), ENVIRONMENTS[file])
    said = run(python, "-m", "pytest", "-q", "-rs", TESTS / file)
    skipped = [line for line in said.splitlines() if line.startswith("SKIPPED")]
    assert all(line.endswith("it is installed") for line in skipped)  # tests of its absence


def test_boxes_beside_an_independent_checker() -> None:
    python = environment("drivability", CHECKER)
    said = run(python, "-m", "pytest", "-q", "-rs", "-n", "0", TESTS.parent / ORACLE)
    assert "SKIPPED" not in said


def test_a_decision_where_torch_is_not_installed(kit: Kit, tmp_path: Path) -> None:
    alone = environment("onnxruntime", ("onnxruntime==1.31.1", "numpy==2.4.6"), alone=True)
    python = environment("test_onnx", ENVIRONMENTS["test_onnx.py"])
    run(python, "-m", "djepa", "export", kit.folder, "--onnx", tmp_path / "p.onnx", "--horizon", 5)
    given = kit.given._replace(candidates=kit.given.candidates[:, :, :5].contiguous())
    named = {name: tensor.numpy() for name, tensor in given._asdict().items()}
    np.savez(tmp_path / "a.npz", **named, ids=kit.ids.numpy())
    said = run(alone, "-c", DECIDE, tmp_path / "p.onnx", tmp_path / "a.npz")
    known = (given.frames, given.history, given.goal, given.candidates, kit.ids, given.proprio)
    assert json.loads(said) == kit.planner.plan(*known).choice.tolist()


DECIDE = """
import importlib.util, json, sys
import numpy as np
from djepa.interop.graph import Graph
assert importlib.util.find_spec("torch") is None
found = Graph(sys.argv[1]).plan(**np.load(sys.argv[2]))
print(json.dumps(found["choice"].tolist()))
"""
