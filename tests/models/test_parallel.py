"""Training under torchrun: two processes take the steps that one takes, within rounding."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from djepa.errors import DjepaError
from djepa.models import episodes, jepawm, lewm, parallel
from djepa.models.recipes import TrainConfig
from djepa.models.step import Step
from djepa.models.train import Trainer
from tiny import TINY_DEEP, TINY_PATCHES, simulate

KINDS = ("tdjepa", "jepawm")  # with all that is gathered: SIGReg, BatchNorm, foreign windows, views
SETTINGS: dict[str, Any] = {"steps": 8, "episodes": 32, "shrink": 32, "development": 2}
SETTINGS |= {"noise": 0.1, "last": 2, "shapes": ("T", "L")}
SMALL = ((lewm.SIZES, TINY_DEEP), (jepawm.SIZES, TINY_PATCHES))  # TINY_DEEP drops out
SCRIPT = """
import sys
from pathlib import Path
sys.path[:0] = {paths}
import test_parallel as test
test.episodes.SHARD = 16
for sizes, tiny in test.SMALL:
    sizes["small"] = tiny
test.train_all(Path({home!r}), "two")
"""


def train_all(home: Path, name: str) -> dict[str, Any]:
    """Train in tiny: losses of all steps and the weights; of several processes the first's."""
    found: dict[str, Any] = {}
    for kind in KINDS:
        seen, call = list[float](), Step.__call__

        def noting(self: Any, inputs: Any, progress: float, call: Any = call) -> Any:
            value = call(self, inputs, progress)
            seen.append(value.item())  # noqa: B023
            return value

        Step.__call__ = noting  # type: ignore[method-assign]
        try:
            trainer = Trainer(TrainConfig(kind, **SETTINGS), home / name / kind, home / "data")
            found[kind] = {"weights": trainer.run().state_dict(), "losses": torch.tensor(seen)}
        finally:
            Step.__call__ = call  # type: ignore[method-assign]
    if parallel.count() == 2 and parallel.number() == 0:
        torch.save(found, home / f"{name}.pt")
    return found


def test_two_processes_train_as_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episodes, "SHARD", 16)
    for sizes, tiny in SMALL:
        monkeypatch.setitem(sizes, "small", tiny)
    simulate(episodes.plan_shards(tmp_path / "data", 32, 0, ("T", "L")))
    script = tmp_path / "script.py"
    paths = [str(Path(__file__).parents[i]) for i in (0, 1)]
    script.write_text(SCRIPT.format(paths=paths, home=str(tmp_path)))
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run([*run, str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    one, two = train_all(tmp_path, "one"), torch.load(tmp_path / "two.pt")
    for kind in KINDS:
        a, b = one[kind]["losses"], two[kind]["losses"]
        assert len(a) == len(b) == 8
        torch.testing.assert_close(a[:2], b[:2], rtol=1e-5, atol=0)  # the first step's gradient too
        torch.testing.assert_close(a, b, rtol=1e-3, atol=0)  # Adam makes more of rounding
        torch.testing.assert_close(one[kind]["weights"], two[kind]["weights"], rtol=0.01, atol=0.01)
        logs = [(tmp_path / name / kind / "log.jsonl").read_text() for name in ("one", "two")]
        assert logs[0].count("\n") == logs[1].count("\n")  # one process writes


def test_a_batch_that_cannot_be_shared_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "count", lambda: 3)
    with pytest.raises(DjepaError, match="not shared evenly by 3 processes"):
        parallel.check_batch(8)
    parallel.check_batch(12, 2)
