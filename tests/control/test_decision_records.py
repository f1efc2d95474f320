"""Decision records of closed loop: what is written is what was decided and what it led to."""

from pathlib import Path

import numpy as np
import pytest
from test_loop import SHORT, files, planner

from commands import djepa
from djepa.control.loop import control
from djepa.control.results import Episodes
from djepa.errors import DjepaError
from djepa.interop.record import read_decisions
from djepa.rollout.engine import LocalEngine


@pytest.mark.parametrize("kind", ["aligned", "native-cem", "icem", "aligned-cem"])
def test_every_decision_has_a_record(kind: str, models: Path, tmp_path: Path) -> None:
    plain, told = tmp_path / "plain", tmp_path / "told"
    control(plain, SHORT, planner(kind, models), LocalEngine(1))
    control(told, SHORT, planner(kind, models, record=True), LocalEngine(1))
    before, after = Episodes(plain), Episodes(told)
    for key, array in before.arrays.items():  # recording changes no episode
        assert np.array_equal(array, after.arrays[key]), key
    with pytest.raises(DjepaError, match="without --decisions"):
        before.decisions()
    records = after.decisions()
    counts = (after.arrays["candidate"] >= 0).sum(axis=1)
    names = [f"{n}:{t}" for n, c in zip(after.names, counts, strict=True) for t in range(c)]
    assert [one.start for one in records] == names
    chosen, costs = after.arrays["candidate"], after.arrays["cost"]
    for one in records:
        row, turn = after.names.index(one.start.split(":")[0]), int(one.start.split(":")[1])
        assert one.choice == chosen[row, turn]
        assert len(one.candidates) == 7
        end = min((turn + 1) * SHORT.replan, after.arrays["executed"][row])
        assert one.outcome is not None
        assert one.outcome.cost == costs[row, end]
        spent = costs[row, turn * SHORT.replan + 1 : end + 1]
        assert one.outcome.success == bool((spent < 1).any())
        assert (one.gate is not None) == (kind == "aligned")
        if one.gate is not None:
            assert one.gate.opened == bool(after.arrays["opened"][row, turn])
        kinds = {s.kind for s in one.scorers}
        wanted = {"aligned": {"model", "base", "aligned"}, "aligned-cem": {"aligned"}}
        assert kinds == wanted.get(kind, {"model"})


def test_the_command_writes_what_audit_reads(models: Path, tmp_path: Path) -> None:
    file, out = tmp_path / "decisions.json", tmp_path / "run"
    options = ("--geometry", "tiny-tdjepa", "--alignment", models.parent / "alignment")
    small = ("--evaluations", 48, "--samples", 8, "--elites", 3, "--workers", 1)
    short = ("--episodes", 2, "--budget", 10, "--split", "other")
    given = ("control", "push", "--out", out, "--decisions", file, *options, *small, *short)
    done = djepa(*given)
    assert done.returncode == 0, done.stderr
    before = file.read_bytes(), files(out)
    djepa(*given)  # again: nothing is run, the same file is written
    assert (file.read_bytes(), files(out)) == before
    stored = read_decisions(file)
    assert stored.made_from == {"episodes": Episodes(out).hash}
    said = djepa("audit", file).stdout
    assert f"{len(stored.decisions)}" in said
    assert "success of the choice" in said


@pytest.mark.parametrize("kind", ["random", "mppi", "aligned-mppi"])
def test_where_no_candidate_is_executed_nothing_can_be_recorded(kind: str, models: Path) -> None:
    with pytest.raises(DjepaError, match="executes no candidate"):
        planner(kind, models, record=True)
