"""The bench measures what it says; no time is asserted."""

import numpy as np

from djepa.bench.table import bench_markdown
from djepa.bench.world import Row, bench_world, loop
from djepa.worlds.push import PushWorld


def test_the_plain_loop_and_ours_do_the_same_work() -> None:
    world, rng = PushWorld(), np.random.default_rng(0)
    state = np.array([200.0, 300.0, 256.0, 200.0, 0.3, 0, 0, 0, 0, 0])
    controls = rng.uniform(-1, 1, (4, 25, 2))
    assert np.array_equal(loop(world, state, controls), world.execute(state, controls)[:, -1])


def test_every_row_is_measured() -> None:
    rows = bench_world(0.03, lambda line: None)
    assert [row.what for row in rows] == [
        "controls",
        "restores",
        "starts",
        "frames at 112 px",
        "frames at 224 px",
        "collection, second core",
        "memory per 1,000 starts",
    ]
    assert all(row.ours > 0 for row in rows[:-1])
    assert "frames at 112 px" in bench_markdown(rows)


def test_the_table_shows_ratios() -> None:
    table = bench_markdown([Row("a", "x/s", 3000.0, 1500.0), Row("b", "MB", 2.0)])
    assert "| a | 3,000 x/s | 1,500 x/s | 2.0x |" in table
    assert "| b | 2 MB |  |  |" in table
