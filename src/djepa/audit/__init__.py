"""Where a model's order of candidates contradicts what execution showed.

The package is this room; called, it is what the room does: `djepa.audit(evidence, outcomes)`.
"""

import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """A room that can be called: a package and a function cannot share a name otherwise."""

    def __call__(self, *given: Any, **named: Any) -> Any:
        """See `djepa.audit.report.audit`."""
        from djepa.audit.report import audit

        return audit(*given, **named)


sys.modules[__name__].__class__ = _Room
