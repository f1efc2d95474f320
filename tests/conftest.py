"""Small real banks, shared by the tests that read them."""

from pathlib import Path

import pytest

from djepa.bank.collect import collect
from djepa.bank.read import Bank
from djepa.rollout.engine import LocalEngine
from djepa.rollout.execute import CollectConfig

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
