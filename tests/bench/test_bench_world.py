"""The bench measures what it says; no time is asserted."""

import os

import numpy as np
import pytest

from djepa.bench import world as bench
from djepa.bench.measure import Options, Row, bench_markdown, figures, in_child
from djepa.bench.world import bench_world, here, loop
from djepa.errors import DjepaError, MissingExtraError
from djepa.rollout.execute import BlockWork, CollectConfig, draw_block
from djepa.tasks.task import TASKS
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


def test_every_row_is_measured() -> None:
    rows = list(bench_world(Options(("push",), 0.03), quiet))
    assert [row.what for row in rows] == [
        "controls",
        "starts",
        "frames at 112 px",
        "frames at 224 px",
        "collection, second core",
    ]
    assert all(row.ours > 0 for row in rows)
    assert "frames at 112 px" in bench_markdown(rows)


def test_driving_scenes_are_judged_in_the_memory_of_few() -> None:
    speed, few, more = bench_world(Options(("traffic",), 0.03, scenes=(6, 2)), quiet)
    assert speed.note.startswith("32 candidates")
    assert (few.what, more.what) == ("traffic, peak of 2 scenes", "traffic, peak of 6 scenes")
    assert few.plain == more.plain == few.ours > 0
    with pytest.raises(DjepaError, match="scenes must be at least 1, got 0"):
        Options(scenes=(4, 0))


def test_every_row_of_another_world_is_measured() -> None:
    pytest.importorskip("mujoco")
    said: list[str] = []
    starts, frames, collection = bench_world(Options(("reacher",), 0.03, candidates=5), said.append)
    assert starts.note.startswith("5 x 25 controls")
    names = [row.what for row in (starts, frames, collection)]
    assert names == [
        "reacher starts",
        "reacher frames at 112 px",
        "reacher collection, second core",
    ]
    assert all(row.ours > 0 and row.plain for row in (starts, frames, collection))
    assert said == ["measuring reacher ..."]


def test_a_slow_world_is_measured_with_fewer_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []

    def collection(ground: bench.Ground, seconds: float) -> Row:
        drawn.append(len(ground.drawn))
        return Row(ground.named("collection"), "starts/s", 1.0)

    monkeypatch.setattr(bench, "_collection", collection)  # that would be seconds
    rows = list(bench_world(Options(("granular",), 0.01, candidates=2), quiet))
    names = ["granular starts", "granular frames at 112 px", "granular collection"]
    assert [row.what for row in rows] == names
    assert rows[0].note.startswith("2 x 5 controls")
    assert drawn == [1]


def test_a_world_whose_extra_is_missing_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(task: str = "") -> None:
        name, extra = ("arm", "arms") if task else ("reacher", "mujoco")
        raise MissingExtraError(f"The {name} world", extra)

    monkeypatch.setattr("djepa.worlds.reacher.load_model", missing)
    monkeypatch.setattr("djepa.worlds.arms.table.load_scene", missing)
    said: list[str] = []
    flat = [name for name in TASKS if name != "cube"]  # which has an extra of its own
    assert list(here(flat, said.append)) == ["push", "granular"]
    assert len(said) == 2
    assert "reacher is left out. The reacher world needs the extra 'mujoco'" in said[0]
    assert "arm is left out. The arm world needs the extra 'arms'" in said[1]
    with pytest.raises(DjepaError, match="the extra 'mujoco'"):  # asked for by name
        list(bench_world(Options(("reacher",)), quiet))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seconds": 0.0}, "seconds must be above 0"),
        ({"candidates": 1}, "candidates must be at least 2"),
        ({"starts": 0}, "starts must be at least 1"),
        ({"fit": 6}, "fit must be at least 7"),
    ],
)
def test_bad_requests_are_named(changes: dict[str, float], message: str) -> None:
    with pytest.raises(DjepaError, match=message):
        Options(**changes)  # type: ignore[arg-type]


def test_the_table_shows_ratios() -> None:
    table = bench_markdown([Row("a", "x/s", 3000.0, 1500.0), Row("b", "MB", 2.0)])
    assert "| a | 3,000 x/s | 1,500 x/s | 2.0x |" in table
    assert "| b | 2 MB |  |  |" in table
    assert Row("c", "MB", 2.0, 0.0).ratio is None
    assert [figures(x) for x in (2618.4, 59.06, 0.31234)] == ["2620", "59.1", "0.312"]
