"""The bench measures what it says; no time is asserted."""

import os

import numpy as np
import pytest

from djepa.bench import world as bench
from djepa.bench.measure import in_child
from djepa.bench.table import all_markdown, bench_markdown
from djepa.bench.world import WORLDS, Row, WorldBench, bench_world, here, loop
from djepa.errors import DjepaError, MissingExtraError
from djepa.rollout.execute import BlockWork, CollectConfig, draw_block
from djepa.worlds.push import PushWorld


def quiet(line: str) -> None:
    pass


def test_the_plain_loop_and_ours_do_the_same_work() -> None:
    world, rng = PushWorld(), np.random.default_rng(0)
    state = np.array([200.0, 300.0, 256.0, 200.0, 0.3, 0, 0, 0, 0, 0])
    controls = rng.uniform(-1, 1, (4, 25, 2))
    assert np.array_equal(loop(world, state, controls), world.execute(state, controls)[:, -1])


@pytest.mark.parametrize("name", ["reacher", "granular"])
def test_so_they_do_in_other_worlds(name: str) -> None:
    if name == "reacher":
        pytest.importorskip("mujoco")
    config = CollectConfig(world=name, starts=1, block=1)
    world, (drawn,) = config.make_world(), draw_block(BlockWork(config, 0))
    assert drawn.pool is not None
    state, controls = drawn.start.state, drawn.pool.actions[:2]
    assert np.array_equal(loop(world, state, controls), world.execute(state, controls)[:, -1])


def test_a_child_is_a_process_of_its_own() -> None:
    assert in_child(os.getpid) != os.getpid()


def test_every_row_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "GROWN", (2, 6))
    rows = bench_world(WorldBench(("push",), 0.03), quiet)
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


def test_every_row_of_another_world_is_measured() -> None:
    pytest.importorskip("mujoco")
    said: list[str] = []
    starts, frames, collection = bench_world(WorldBench(("reacher",), 0.03, 5), said.append)
    assert starts.note.startswith("5 x 25 controls")
    names = [row.what for row in (starts, frames, collection)]
    assert names == [
        "reacher starts",
        "reacher frames at 112 px",
        "reacher collection, second core",
    ]
    assert all(row.ours > 0 and row.plain for row in (starts, frames, collection))
    assert said[0] == "reacher starts, one core"


def test_a_slow_world_is_measured_with_fewer_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []

    def collection(ground: bench.Ground, seconds: float) -> Row:
        drawn.append(len(ground.drawn))
        return Row(ground.named("collection"), "starts/s", 1.0)

    monkeypatch.setattr(bench, "_collection", collection)  # that would be seconds
    rows = bench_world(WorldBench(("granular",), 0.01, candidates=1), quiet)
    names = ["granular starts", "granular frames at 112 px", "granular collection"]
    assert [row.what for row in rows] == names
    assert rows[0].note.startswith("1 x 5 controls")
    assert drawn == [1]


def test_a_world_whose_extra_is_missing_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise MissingExtraError("The reacher world", "mujoco")

    monkeypatch.setattr("djepa.worlds.reacher.load_model", missing)
    said: list[str] = []
    assert here(WORLDS, said.append) == ("push", "granular")
    assert len(said) == 1
    assert "reacher is left out. The reacher world needs the extra 'mujoco'" in said[0]
    with pytest.raises(DjepaError, match="the extra 'mujoco'"):  # asked for by name
        bench_world(WorldBench(("reacher",)), quiet)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"seconds": 0.0}, "seconds must be above 0"), ({"candidates": 0}, "candidates must be at")],
)
def test_bad_requests_are_named(changes: dict[str, float], message: str) -> None:
    with pytest.raises(DjepaError, match=message):
        WorldBench(**changes)  # type: ignore[arg-type]


def test_the_table_shows_ratios() -> None:
    table = bench_markdown([Row("a", "x/s", 3000.0, 1500.0), Row("b", "MB", 2.0)])
    assert "| a | 3,000 x/s | 1,500 x/s | 2.0x |" in table
    assert "| b | 2 MB |  |  |" in table
    assert Row("c", "MB", 2.0, 0.0).ratio is None


def test_one_table_says_which_bench_a_row_is_from() -> None:
    table = all_markdown({"world": [Row("a", "x/s", 30.0, 15.0)], "growth": [Row("b", "MB", 2.0)]})
    assert table.splitlines()[0].startswith("| bench | what |")
    assert "| world | a | 30 x/s | 15 x/s | 2.0x |  |" in table
    assert "| growth | b | 2 MB |  |  |  |" in table
