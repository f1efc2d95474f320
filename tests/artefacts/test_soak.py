"""A short sample of `make soak`."""

import time
from pathlib import Path

import numpy as np

from soak import commands, left, soak, start, table


def test_a_killed_prediction_ends_in_the_same_bytes(tmp_path: Path) -> None:
    chosen = [commands()["predict"]]
    soak(tmp_path, chosen, 2, time.monotonic() + 600, np.random.default_rng(1))
    assert (chosen[0].tried, chosen[0].survived) == (2, 2), table(chosen)


def test_a_killed_simulation_leaves_no_worker(tmp_path: Path) -> None:
    process = start(tmp_path, ("simulate", "push", "--episodes", "9000", "--workers", "2"))
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while len(children.read_text().split()) < 3:  # two workers, and what tracks their resources
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.kill()
    process.communicate()
    assert not left(process.pid)
