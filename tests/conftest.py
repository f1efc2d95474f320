"""Small real banks, shared by the tests that read them, and `--quick`.

`make quick` leaves out what tests/slow.txt names: tests (`file::test`), and all tests of a file
that ask for a fixture (`file@fixture`). `make slow` runs all tests and writes that list anew, by
the CPU time of tests and of the processes they start: how busy the machine is has no say.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from djepa.bank.collect import collect
from djepa.bank.read import Bank
from djepa.rollout.engine import LocalEngine, end_workers
from djepa.rollout.execute import CollectConfig

SLOW = Path(__file__).parent / "slow.txt"
CALL, SETUP = 0.2, 1.5  # seconds of a core: of a test; of a fixture that a whole file shares
LAZY = {"finished"}  # fixtures that work when a test first asks them to: whole studies
SMALL = CollectConfig(starts=10, block=4)


@pytest.fixture(scope="session")
def small_bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    """Ten reference-control starts in three blocks. Not to be written to."""
    return collect(tmp_path_factory.mktemp("banks") / "small", SMALL, LocalEngine(1))


@pytest.fixture(autouse=True)
def no_worker_stays() -> Iterator[None]:
    """Workers would have the environment of an earlier test."""
    yield
    end_workers()
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        ray.shutdown()


@pytest.fixture
def bank_copy(small_bank: Bank, tmp_path: Path) -> Path:
    """A copy of the small bank that a test may damage."""
    import shutil

    return Path(shutil.copytree(small_bank.path, tmp_path / "copy"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out what tests/slow.txt names")
    parser.addoption("--write-slow", action="store_true", help="write tests/slow.txt anew")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--quick"):
        return
    slow = set(SLOW.read_text().split())
    left_out = [item for item in items if (slow | LAZY) & _names(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--write-slow") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Stopwatch())


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Iterator[Any]:
    began = _cpu()
    try:
        return (yield)
    finally:
        if (spent := _cpu() - began) > SETUP:
            item = request._pyfuncitem  # the test that asked first, also for shared fixtures
            file = item.nodeid.partition("::")[0]
            item.user_properties.append((f"{file}@{fixturedef.argname}", spent))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    began = _cpu()
    try:
        return (yield)
    finally:
        if (spent := _cpu() - began) > CALL:
            item.user_properties.append((_test(item.nodeid), spent))


class _Stopwatch:
    """Collects what is slow, from all workers."""

    def __init__(self) -> None:
        self.slow: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.slow |= {name: float(str(spent)) for name, spent in report.user_properties}

    def pytest_sessionfinish(self) -> None:
        SLOW.write_text("\n".join(sorted(self.slow)) + "\n")


def _cpu() -> float:
    """Seconds of a core that this process and the processes it has waited for have taken."""
    return sum(os.times()[:4])


def _names(item: pytest.Item) -> set[str]:
    file = item.nodeid.partition("::")[0]
    fixtures = getattr(item, "fixturenames", ())
    return {_test(item.nodeid), *fixtures, *(f"{file}@{name}" for name in fixtures)}


def _test(nodeid: str) -> str:
    return nodeid.partition("[")[0]
