"""Small real banks, shared by the tests that read them, and `--quick`.

`make quick` leaves out what tests/slow.txt names: tests, or whole files. `make slow` runs all tests
and writes that list anew.
"""

from pathlib import Path

import pytest

from djepa.bank.collect import collect
from djepa.bank.read import Bank
from djepa.rollout.engine import LocalEngine
from djepa.rollout.execute import CollectConfig

SLOW = Path(__file__).parent / "slow.txt"
CALL, SETUP = 0.7, 2.0  # seconds: of a test; of what its whole file waits for
SMALL = CollectConfig(starts=10, block=4)


@pytest.fixture(scope="session")
def small_bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    """Ten reference-control starts in three blocks. Not to be written to."""
    return collect(tmp_path_factory.mktemp("banks") / "small", SMALL, LocalEngine(1))


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
    left_out = [item for item in items if slow & {_test(item.nodeid), _file(item.nodeid)}]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--write-slow") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Stopwatch())


class _Stopwatch:
    """Collects what is slow, from all workers."""

    def __init__(self) -> None:
        self.slow: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "setup" and report.duration > SETUP:
            self.slow.add(_file(report.nodeid))
        if report.when == "call" and report.duration > CALL:
            self.slow.add(_test(report.nodeid))

    def pytest_sessionfinish(self) -> None:
        found = sorted(
            name for name in self.slow if "::" not in name or _file(name) not in self.slow
        )
        SLOW.write_text("\n".join(found) + "\n")


def _test(nodeid: str) -> str:
    return nodeid.partition("[")[0]


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]
