"""Real packages that the project does not depend on: there, or in an environment of their own.

`DJEPA_SCRATCH=FOLDER pytest tests/interop` makes such environments below FOLDER and runs the tests
in them (`test_scratch.py`); otherwise tests whose package is missing are skipped by its name.
"""

import importlib.util

import pytest


def needs(*packages: str) -> pytest.MarkDecorator:
    """Skip a test by the name of a package that is not installed."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    why = f"needs {', '.join(missing)}: install it, or set DJEPA_SCRATCH to a folder"
    return pytest.mark.skipif(bool(missing), reason=why)
