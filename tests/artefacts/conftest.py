"""One small folder of every kind, made once."""

import pytest
from artefact import Artefact
from every_kind import make_all

from djepa.bank.read import Bank


@pytest.fixture(scope="session")
def artefacts(small_bank: Bank, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artefact]:
    """By name. A test that alters one puts back what was there."""
    return make_all(tmp_path_factory.mktemp("artefacts"), small_bank.path)
