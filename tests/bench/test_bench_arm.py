"""Command timing of the arm: every way is measured, over the real SDK too; no time is demanded."""

import pytest

from djepa.bench import arm
from djepa.bench.measure import Options

for package in ("mujoco", "piper_sdk", "can"):
    pytest.importorskip(package, reason="extra arms")


@pytest.mark.filterwarnings("ignore:The 'bustype':DeprecationWarning")
def test_every_way_to_command_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arm, "COMMANDS", 3)
    said: list[str] = []
    rows = list(arm.bench_arm(Options(seconds=0.01), said.append))
    ways = [f"{where}, {what}" for where in ("simulated arm", "SDK") for what in ("joints", "pose")]
    assert [row.what for row in rows] == [*ways, "SDK, joints, arrival"]
    assert all(row.ours > 0 for row in rows)
    assert len(said) == 2
