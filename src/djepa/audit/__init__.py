"""Audit where a model's ranking of candidates contradicts their executed outcomes.

The package is callable: `djepa.audit(evidence, outcomes)` runs `djepa.audit.report.audit`.
"""

import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """A callable module, so that `djepa.audit` is both the package and the function."""

    def __call__(self, *given: Any, **named: Any) -> Any:
        """See `djepa.audit.report.audit`."""
        from djepa.audit.report import audit

        return audit(*given, **named)


sys.modules[__name__].__class__ = _Room
