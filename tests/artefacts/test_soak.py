"""A short sample of `make soak`."""

import time
from pathlib import Path

import numpy as np

from soak import commands, soak, table


def test_a_killed_prediction_ends_in_the_same_bytes(tmp_path: Path) -> None:
    chosen = [commands()["predict"]]
    soak(tmp_path, chosen, 2, time.monotonic() + 600, np.random.default_rng(1))
    assert (chosen[0].tried, chosen[0].survived) == (2, 2), table(chosen)
