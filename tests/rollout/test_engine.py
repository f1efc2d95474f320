"""Engines give every item's result once, whatever happens to the workers."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from djepa.bank.collect import collect
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.rollout.engine import LocalEngine, RayEngine, get_engine
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


@pytest.mark.filterwarnings("ignore")
def test_ray_writes_the_same_bank(small_bank: Bank, tmp_path: Path) -> None:
    config: Any = CollectConfig(**small_bank.manifest["config"])
    bank = collect(tmp_path / "ray", config, RayEngine(workers=2))
    assert bank.hash == small_bank.hash
    assert len(bank.files) == 9
    for name in bank.files:
        assert (bank.path / name).read_bytes() == (small_bank.path / name).read_bytes()


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
