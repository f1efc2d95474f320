"""Engines give every item's result once, whatever happens to the workers."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from djepa.bank.collect import collect
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.rollout.cluster import RayEngine
from djepa.rollout.engine import Engine, LocalEngine, get_engine, in_order, usable_cores
from djepa.rollout.execute import CollectConfig


def double(item: int) -> int:
    return 2 * item


def die_once(item: tuple[int, str]) -> int:
    number, flag = item
    mark = Path(flag)
    if number == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.01)
    return number


def die(item: int) -> int:
    os._exit(1)


def complain(item: int) -> int:
    raise DjepaError(f"item {item} is bad")


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_every_item_is_done_once(workers: int) -> None:
    items = [(key, key + 100) for key in range(11)]
    results = list(LocalEngine(workers).map(double, items))
    assert sorted(results) == [(key, 2 * (key + 100)) for key in range(11)]


def test_results_in_order_wait_for_those_before() -> None:
    came = [(2, "c"), (0, "a"), (1, "b"), (3, "d")]
    assert list(in_order(iter(came))) == ["a", "b", "c", "d"]


def test_no_items_is_no_work() -> None:
    assert list(LocalEngine(2).map(double, [])) == []


def test_a_dead_worker_is_replaced(tmp_path: Path) -> None:
    items = [(key, (key, str(tmp_path / "died"))) for key in range(8)]
    results = dict(LocalEngine(2).map(die_once, items))
    assert results == {key: key for key in range(8)}
    assert (tmp_path / "died").exists()


def test_workers_that_always_die_are_an_error() -> None:
    with pytest.raises(DjepaError, match="died 3 times in a row"):
        list(LocalEngine(2).map(die, [(0, 0), (1, 1)]))


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_in_an_item_reaches_the_caller(workers: int) -> None:
    with pytest.raises(DjepaError, match="is bad"):
        list(LocalEngine(workers).map(complain, [(0, 0), (1, 1)]))


def test_unknown_engine() -> None:
    with pytest.raises(DjepaError, match="Did you mean 'local'"):
        get_engine("locale")


def test_ray_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(DjepaError, match=r"djepa\[ray\]"):
        list(RayEngine().map(double, [(0, 1)]))


@dataclass
class Noted:
    """Leaves a mark wherever it is unpickled."""

    folder: str

    def __setstate__(self, state: dict[str, str]) -> None:
        self.folder = state["folder"]
        Path(tempfile.mkstemp(prefix=f"{os.getpid()}-", dir=self.folder)[1]).touch()


def add_pid(item: int, shared: Noted) -> tuple[int, int]:
    time.sleep(0.01)
    return item + len(shared.folder), os.getpid()


def check_shared(engine: Engine, folder: Path) -> None:
    """Every item sees what is shared, and each worker was sent it once."""
    folder.mkdir()
    items = [(key, key) for key in range(20)]
    results = dict(engine.map(add_pid, items, Noted(str(folder))))
    assert {key: of[0] - len(str(folder)) for key, of in results.items()} == dict(items)
    marks = [int(mark.name.split("-")[0]) for mark in folder.iterdir()]
    assert len(marks) == len(set(marks))
    assert {of[1] for of in results.values()} <= {*marks}


def visible(item: int) -> tuple[str, int]:
    return os.environ.get("CUDA_VISIBLE_DEVICES", ""), os.getpid()


def check_gpus(cluster: Any) -> None:
    """Ray counts GPUs that a node says it has; an item takes one, or a part if more are to run."""
    items = [(key, key) for key in range(4)]
    with pytest.raises(DjepaError, match="has no GPU"):
        list(RayEngine().map(visible, items, device="cuda"))
    cluster.add_node(num_cpus=2, num_gpus=1)
    found = dict(RayEngine().map(visible, items, device="cuda")).values()
    assert len(set(found)) == 1  # one after the other, in one worker that is kept
    assert {gpu for gpu, _ in found} == {"0"}
    shared = dict(RayEngine(workers=2).map(visible, items, device="cuda")).values()
    assert {gpu for gpu, _ in shared} == {"0"}


def test_what_items_share_is_sent_to_each_worker_once(tmp_path: Path) -> None:
    check_shared(LocalEngine(2), tmp_path / "shared")
    here = dict(LocalEngine(1).map(add_pid, [(0, 1)], Noted("abc")))
    assert here == {0: (4, os.getpid())}


@pytest.mark.filterwarnings("ignore")
def test_a_lost_and_a_late_ray_node_change_no_byte(
    small_bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two raylets, then one, then two; `make cluster` does the like with every stage."""
    pytest.importorskip("ray")
    from cluster import cluster_of, differing

    places = [str(Path(__file__).parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(places))  # workers import this file
    config: Any = replace(CollectConfig(**small_bank.manifest["config"]), block=1)
    collect(tmp_path / "one" / "bank", config, LocalEngine(1))
    with cluster_of(1) as engine:
        engine.kill, engine.add = 1, 2
        collect(tmp_path / "ray" / "bank", config, engine)
        assert engine.events == ["killed", "added"]
        check_shared(RayEngine(), tmp_path / "shared")
        check_gpus(engine.cluster)
    assert not differing(tmp_path / "one", tmp_path / "ray")


def test_on_a_gpu_local_work_stays_in_one_process_unless_more_are_asked_for() -> None:
    assert LocalEngine().processes("cuda") == 1
    assert LocalEngine(3).processes("cuda") == 3
    assert LocalEngine().processes("cpu") == usable_cores()


def wait_for_port(port: int) -> None:
    for _ in range(300):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the cluster did not start")


@pytest.mark.filterwarnings("ignore")
def test_a_running_cluster_is_joined_by_address(small_bank: Bank, tmp_path: Path) -> None:
    """A cluster of its own process, as on another machine; the same bytes come back."""
    pytest.importorskip("ray")
    port, scratch = 20000 + os.getpid() % 20000, tempfile.mkdtemp(prefix="r")  # sockets: short path
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_TMPDIR": scratch}
    ray = str(Path(sys.executable).with_name("ray"))
    head = ["start", "--head", f"--port={port}", "--num-cpus=1", "--include-dashboard=false"]
    cluster = subprocess.Popen(
        [ray, *head, "--block"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_for_port(port)
        size = ["--starts", "10", "--block", "4", "--out", str(tmp_path / "bank")]
        where = ["--engine", "ray", "--address", f"127.0.0.1:{port}"]
        command = [sys.executable, "-m", "djepa", "collect", "push", *size, *where]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    finally:
        os.killpg(cluster.pid, signal.SIGKILL)
        cluster.wait()
        shutil.rmtree(scratch, ignore_errors=True)
    assert Bank(tmp_path / "bank").hash == small_bank.hash


def die_four_times(item: tuple[int, str]) -> int:
    number, folder = item
    mark = Path(folder) / str(number)
    if number % 2 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.05)
    return number


def test_deaths_with_progress_between_them_are_forgiven(tmp_path: Path) -> None:
    items = [(key, (key, str(tmp_path))) for key in range(12)]
    assert dict(LocalEngine(2).map(die_four_times, items)) == {key: key for key in range(12)}
    assert len(list(tmp_path.iterdir())) == 6
