"""What comes with the package: fitted methods for three kinds of pools."""

import pytest

from djepa.align.presets import SUITE
from djepa.align.suite import load_suite
from djepa.studies.pusht import PROFILES, PUBLISHED, SHIPPED


@pytest.mark.parametrize("pools", [name for name in PROFILES if name != PUBLISHED])
def test_shipped_suites_load_and_say_what_they_were_fitted_on(pools: str) -> None:
    suite = load_suite(SHIPPED / pools)
    assert set(suite.alignments) == set(SUITE)
    for name, alignment in suite.alignments.items():
        assert alignment.config == SUITE[name], name  # the presets of this version made them
        assert alignment.report is not None
        assert 0 < alignment.report.starts <= 4096
    assert (SHIPPED / pools / "suite.json").exists()
